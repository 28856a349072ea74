// Parts of boxes, and logical tensors that are a part of another one.
#pragma once

#include <optional>

#include "base/alignment.h"

namespace ttrace {

// The elements that both boxes hold; nothing where they share none.
std::optional<Box> common_part(const Box& a, const Box& b);

// The elements of `tensor` inside `box`, as a tensor of the box's shape. The box must lie inside the tensor's shape,
// and the tensor must have no `rows`.
LogicalTensor region_of(const LogicalTensor& tensor, const Box& box);

// The rows that `tensor` holds, one after the other: a tensor without `rows`. One that has none is returned as it is.
LogicalTensor held_rows_of(const LogicalTensor& tensor);

}  // namespace ttrace
