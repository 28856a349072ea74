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

// Returns in one line why the product cannot be checked: A, the packed B or C_temp, with `a`, `b` and `c` elements, do
// not have the shape, or int32 could overflow. Empty if it can.
std::string problem_of(const GemmShape& shape, std::int64_t a, std::int64_t b, std::int64_t c);

// Appends the checksum column to B [k, n]: returns [k, n + 1].
std::vector<std::int8_t> pack_with_checksum(std::span<const std::int8_t> b, std::int64_t k, std::int64_t n);

// Returns the rows of C_temp [m, n + 1] whose sum is not congruent to their checksum (Algorithm 1, lines 10 to 15).
// C_temp must not be requantised yet, which is not linear (section IV-B).
std::vector<std::int64_t> corrupted_rows(std::span<const std::int32_t> c, std::int64_t m, std::int64_t n);

}  // namespace ttrace::abft
