// Finds pairs of tensors that are made of the same bytes: a trace stores a tensor once that was recorded twice, as a
// module's output and as the next one's input.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "compare/compare.h"

namespace ttrace {

// Says of each pair which is the first that reads the same bytes on both sides, of the same shape and in the same
// places: often itself. What is measured of that one holds for both. `for_each(count, body)` calls `body(i)` for every
// i below `count`, maybe on several threads.
using ForEach = std::function<void(std::size_t, const std::function<void(std::size_t)>&)>;
std::vector<std::size_t> first_of_each(std::span<const TensorPair> pairs, const ForEach& for_each);

}  // namespace ttrace
