// A fingerprint of a tensor's bytes that a device can make with what any array library has: products and sums of 64-bit
// integers, in any order. Equal tensors have equal ones; others almost never.
//
// The bytes are words of 64 bits, little-endian, with zeros beyond the end. Modulo 2^64 it is the sum of
//
//   fold(w[i] * kSpread) * a[i mod 1024] * b[i / 1024],    fold(x) = x xor x >> 32,
//
// where a[k] = mix64(2^34 + k) | 1 and b[p] = mix64(2^35 + p) | 1 (`mix64` is in signs.h). Odd factors lose no bit. The
// factors of two places differ like random numbers, so that values which change places, or change by the same amount,
// are told apart. A change of the top bit of a word alone, a sign, would stay there under any factor, and two of them
// would be none: `fold` brings the top half of a word to its low one, and kSpread the signs of both of its halves, too.
// So two changes cancel each other for one of 2^32 pairs of factors at most.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ttrace {

std::uint64_t fingerprint(const std::byte* data, std::uint64_t bytes);

}  // namespace ttrace
