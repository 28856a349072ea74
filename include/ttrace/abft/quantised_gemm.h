// Low-precision matrix products that check themselves (Li et al., "Efficient Soft-Error Detection for Low-precision
// Deep Learning Recommendation Models", section IV). B carries one more column, its row sums modulo 127; the int32
// product C_temp = A B then carries the checksum of its own rows. Integers do not round: there is no threshold.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ttrace::abft {

// The largest odd number of int8: no single flipped bit, a power of two, is a multiple of it (section IV-C).
constexpr std::int32_t kModulus = 127;

struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
};

// Spans of A [m, k], B [k, n] or C do not have the shape's elements, or int32 could overflow: one line. Empty if all is
// well. `c` is C_temp's number of elements.
std::string problem_of(const GemmShape& shape, std::int64_t a, std::int64_t b, std::int64_t c);

// B [k, n] with the checksum column: [k, n + 1].
std::vector<std::int8_t> pack_with_checksum(std::span<const std::int8_t> b, std::int64_t k, std::int64_t n);

// C_temp [m, n + 1] of A [m, k] and the packed B.
std::vector<std::int32_t> multiply(std::span<const std::uint8_t> a, std::span<const std::int8_t> packed,
                                   const GemmShape& shape);

// Rows of C_temp whose sum is not congruent to their checksum (Algorithm 1, lines 10 to 15). Before requantisation,
// which is not linear (section IV-B).
std::vector<std::int64_t> corrupted_rows(std::span<const std::int32_t> c, std::int64_t m, std::int64_t n);

// x is about scale x_I + bias.
struct Quantisation {
  float scale = 1, bias = 0;
};

// C [m, n] of 8 bits from C_temp and the rank-1 terms (equation 1), without the checksum column. `a` and `packed` are
// the operands.
std::vector<std::uint8_t> requantise(std::span<const std::int32_t> c, std::span<const std::uint8_t> a,
                                     std::span<const std::int8_t> packed, const GemmShape& shape,
                                     const Quantisation& of_a, const Quantisation& of_b, const Quantisation& of_c);

}  // namespace ttrace::abft
