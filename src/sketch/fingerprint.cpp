#include "sketch/fingerprint.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "sketch/signs.h"

namespace ttrace {
namespace {

constexpr std::size_t kPieceWords = 1024;
constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: Knuth, volume 3, 6.4

constexpr std::array<std::uint64_t, kPieceWords> make_factors() {
  std::array<std::uint64_t, kPieceWords> factors{};
  for (std::uint64_t k = 0; k < factors.size(); ++k) factors[k] = mix64((std::uint64_t{1} << 34) + k) | 1;
  return factors;
}

constexpr std::array<std::uint64_t, kPieceWords> kFactors = make_factors();

std::uint64_t factor_of_piece(std::uint64_t piece) { return mix64((std::uint64_t{1} << 35) + piece) | 1; }

std::uint64_t fold(std::uint64_t x) { return x ^ x >> 32; }

}  // namespace

std::uint64_t fingerprint(const std::byte* data, std::uint64_t bytes) {
  constexpr std::uint64_t kPieceBytes = kPieceWords * sizeof(std::uint64_t);
  std::uint64_t total = 0;
  for (std::uint64_t piece = 0; piece * kPieceBytes < bytes; ++piece) {
    const std::uint64_t size = std::min(kPieceBytes, bytes - piece * kPieceBytes);
    std::array<std::uint64_t, kPieceWords> words;
    if (size < kPieceBytes) words.fill(0);
    std::memcpy(words.data(), data + piece * kPieceBytes, size);
    std::uint64_t sum = 0;
    for (std::size_t k = 0; k < kPieceWords; ++k) sum += fold(words[k] * kSpread) * kFactors[k];
    total += sum * factor_of_piece(piece);
  }
  return total;
}

}  // namespace ttrace
