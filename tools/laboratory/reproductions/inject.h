// Faults put into a matrix on purpose, the same for the same seed.
#pragma once

#include <cstdint>
#include <optional>

#include "reproductions/mutable_matrix_view.h"

namespace ttrace::reproductions {

enum class FaultKind {
  kBitFlip,
  kInfinity,  // with the element's sign
  kNan,
  kNearInfinity,  // the element's sign and fraction with the second largest finite exponent: about 1e38 in fp32
  kRandomValue,   // any finite bit pattern
};

struct Injection {
  FaultKind kind = FaultKind::kBitFlip;
  std::int64_t row = 0, col = 0;
  int bit = -1;  // of a bit flip, 0 the least significant
  double before = 0, after = 0;
};

// Holds what the caller fixes; the seed draws the rest.
struct InjectionChoice {
  std::optional<std::int64_t> row = std::nullopt, col = std::nullopt;
  std::optional<int> bit = std::nullopt;
};

// Changes one element of `matrix`, which has some and is floating-point; the element's bits do change. Infinity in
// e4m3fn, which has none, is NaN.
Injection inject(const MutableMatrixView& matrix, FaultKind kind, std::uint64_t seed,
                 const InjectionChoice& choice = {});

// Flips bit `bit` of `bytes` bytes, which hold a little-endian number.
void flip_bit(std::byte* number, int bit);

}  // namespace ttrace::reproductions
