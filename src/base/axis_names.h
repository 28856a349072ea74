// The names of axes that mean something to ttrace. Any other name may be an axis of a mesh, too.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace ttrace {

// The axis of sequence parallelism, and the one whose ranks it usually shares.
inline constexpr const char *kSequenceAxis = "sp", *kTensorAxis = "tp";

// The axes whose ranks share the micro-batches where nobody says which do, outermost first.
inline constexpr std::array<const char*, 4> kDataAxes = {"dp", "dp_replicate", "dp_shard", "fsdp"};

// Annotations may name these on a mesh that lacks them: one file serves programs with and without each.
inline constexpr std::array<std::string_view, 10> kOptionalAxes = {"tp",       "sp", "cp",  "dp", "dp_replicate",
                                                                   "dp_shard", "ep", "etp", "pp", "edp"};

inline bool is_optional_axis(std::string_view name) {
  return std::find(kOptionalAxes.begin(), kOptionalAxes.end(), name) != kOptionalAxes.end();
}

}  // namespace ttrace
