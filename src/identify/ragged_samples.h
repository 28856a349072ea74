// The rows of samples of unlike lengths, which a tensor holds one sample behind the other, or packed step by step: the
// words of all sentences, the points of all clouds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/alignment.h"
#include "identify/census.h"
#include "identify/ranks.h"
#include "identify/sample_lists.h"
#include "identify/samples.h"

namespace ttrace {

struct CommonInputs;
struct Microbatches;

// Where samples end that lie one behind the other, in an input that each rank counts from its own 0: cu_seqlens of packed
// attention, offsets of nested tensors.
struct OwnEnds {
  TensorId id;
  std::vector<std::int64_t> lengths;           // of the reference's samples
  std::vector<std::vector<std::int64_t>> own;  // of the ranks', by coordinate on the micro-batch axes
};

// Nothing where it is none, or the lengths of all ranks are not the reference's.
std::optional<OwnEnds> own_ends(const TensorId& id, const SlicedInput& input);

// The order of the samples by the bytes of those of `inputs` whose rows the ends divide.
std::vector<std::pair<TensorId, Telling>> tellings_of(const std::vector<OwnEnds>& ends,
                                                      const std::map<TensorId, SlicedInput>& inputs);

// Sets `orders.ragged` of the micro-batches in which an input, a list or packed sequences tell how long each sample is,
// and the order of the samples is told. An input does that lists where samples end, how long they are, or which of their
// positions count: masks of 0 and 1, labels of which some are -100. Of sequences that the program packs as well, the rows
// of some input or output tell which of the two orders it is; where none does, the others say one behind the other, and
// packed sequences by themselves nothing. And where numbers of a batch of graphs begin anew on each rank, the order of rows
// of two kinds, edges and one for each node behind them, that the rows of some tensor have. `layout` has a reference.
void add_ragged_orders(const RankTable& table, const Census& census, const Microbatches& microbatches,
                       const ModelLayout& layout, const CommonInputs& inputs, SampleOrders& orders);

}  // namespace ttrace
