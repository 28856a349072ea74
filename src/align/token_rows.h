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

// Returns `tensor` without the elements whose index in one of the dimensions `cut` lies behind what any rank holds, with
// its tokens counted in the dimensions up to the last of `cut`. Where some rank holds all, it stays as it is.
LogicalTensor without_cut(const LogicalTensor& tensor, const std::vector<std::size_t>& cut);

// Returns `tensor`, which has a row for each token that is not dropped, as one without those tokens.
LogicalTensor with_dropped(const LogicalTensor& tensor, std::shared_ptr<const std::vector<std::int64_t>> dropped);

// Returns `tensor`, which is whole, without the tokens that another one of its shape lacks.
LogicalTensor cut_like(const LogicalTensor& tensor, const KeptTokens& kept);

// True where `cut_like` has a meaning: the tensor has the shape of the other one with all of its tokens.
bool has_whole_shape(const LogicalTensor& tensor, const KeptTokens& kept);

}  // namespace ttrace
