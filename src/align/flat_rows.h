// Tensors whose rows are the positions of all samples, one sample after the other, of a batch that each rank padded to
// the longest of its own samples: flat logits [samples * positions, ..], flat labels.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/mapping.h"
#include "identify/samples.h"

namespace ttrace {

struct FlatRows {
  Samples rows;  // by rank, row after row: its number among the reference's rows that some rank holds
  std::vector<std::int64_t> dropped;  // the reference's other rows: positions behind the ends of the ranks' samples
  friend auto operator<=>(const FlatRows&, const FlatRows&) = default;
};

// `id` is of a tensor that has so many rows in the reference, and `own` on each rank. The order of the samples, and how
// long each rank's are, are as inputs told, less a number of positions that is the same for all: labels of the next token
// are one shorter. Nothing where they tell no such rows, or the ranks hold all.
std::optional<FlatRows> flat_rows(const SampleOrders& orders, const TensorId& id, std::int64_t rows,
                                  const std::vector<std::int64_t>& own);

}  // namespace ttrace
