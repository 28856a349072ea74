// The consistent generator (TTrace, section 4.2): the value of an element depends on nothing but a seed,
// the tensor's canonical key and the element's logical index, so each rank makes just its own shard of
// the same logical tensor, on any machine. Counter-based: Philox4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC'11).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ttrace {

// Fills `out` with the box [start, start + size) of the logical tensor of shape `shape`, row-major: each element
// uniform in [-1, 1), a multiple of 2^-23, exact in fp32. The Philox key is XXH3-64 of `key` with `seed`; the counter
// is the element's logical index / 4, the lane that index % 4. The spans have equal lengths and the box lies in the
// shape.
void fill_uniform(std::uint64_t seed, std::string_view key, std::span<const std::int64_t> shape,
                  std::span<const std::int64_t> start, std::span<const std::int64_t> size, float* out);

}  // namespace ttrace
