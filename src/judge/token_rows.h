// Tensors with a row for each token: [.., columns], the tokens' dimensions before the last, counted row-major.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// Many tensors share one: a candidate may re-route all tokens of a micro-batch.
struct RowChange {
  std::shared_ptr<const std::vector<std::int64_t>> dropped;  // tokens, ascending; null: none
  // Says, by token, where each column of its row goes: a permutation of the columns. Others stay where they are; null:
  // all.
  std::shared_ptr<const std::map<std::int64_t, std::vector<std::int64_t>>> moved = nullptr;
};

// Returns `tensor` as [tokens, columns], without the tokens that are dropped, each column where `change` puts it. The
// tensor must have two dimensions at least, and no `rows`.
LogicalTensor with_changed_rows(const LogicalTensor& tensor, const RowChange& change);

}  // namespace ttrace
