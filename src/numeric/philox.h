// Philox4x32-10, the counter-based generator that numeric/generator.h is built on.
#pragma once

#include <array>
#include <cstdint>

namespace ttrace {

// Ten rounds of Philox4x32 (Salmon et al., SC'11, section 3.3): a bijection of `counter` for each `key`.
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

}  // namespace ttrace
