// Words for findings: ranks, boxes, coordinates.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

// `rank 3`, `ranks 0, 1, 2`; a long list is cut: `ranks 0, 1, ... (1024 in all)`. -1 is `unknown`.
std::string describe_ranks(std::span<const std::int32_t> ranks);

std::string describe(const Box& box);  // `[0:4, 8:16]`, as a slice; `[]` of a scalar

std::string join(std::span<const std::string> words);  // `a, b, c`, cut in the same way

}  // namespace ttrace
