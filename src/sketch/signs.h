// The table of signs and lanes, version 1. A trace that was made with another one would be another format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sketch/cells.h"

namespace ttrace {

inline constexpr std::size_t kChunks = kMostCellElements / kChunkElements;
inline constexpr std::size_t kGroupsAChunk = kChunkElements / kCellSums;

// The finaliser of MurmurHash3 (Appleby).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccd;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53;
  return x ^ x >> 33;
}

struct SignTable {
  std::array<std::uint16_t, kChunks * kGroupsAChunk> signs{};  // bit l: whether element l of the group is subtracted
  std::array<std::uint8_t, kChunks> lanes{};                   // below kCellSums
};

constexpr SignTable make_sign_table() {
  constexpr std::uint64_t kVersion = 1;
  SignTable table;
  for (std::size_t i = 0; i < table.signs.size(); ++i) {
    table.signs[i] = static_cast<std::uint16_t>(mix64(kVersion << 32 | i) >> 48);
  }
  for (std::size_t i = 0; i < table.lanes.size(); ++i) {
    table.lanes[i] = static_cast<std::uint8_t>(mix64(kVersion << 32 | 1 << 16 | i) >> 60);
  }
  return table;
}

inline constexpr SignTable kSignTable = make_sign_table();

}  // namespace ttrace
