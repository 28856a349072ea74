// Walks a tensor's elements in row-major order, whatever its strides.
#pragma once

#include <functional>
#include <string_view>

#include "record/trace_writer.h"

namespace ttrace {

// Tells whether the elements lie in memory one after the other, in row-major order.
bool is_row_major(const TensorView& tensor);

// Calls `consume` with the elements' bytes in row-major order, in one call for a tensor that lies so in
// memory, else in blocks gathered through a buffer of a few MiB. Dimensions must not be negative.
void for_each_block(const TensorView& tensor, const std::function<void(std::string_view)>& consume);

}  // namespace ttrace
