#include "sketch/fingerprint.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sketch/signs.h"

namespace ttrace {
namespace {

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937_64 random(count);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// The definition in fingerprint.h, word by word.
std::uint64_t defined(std::vector<std::byte> bytes) {
  bytes.resize((bytes.size() + 7) / 8 * 8);
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < bytes.size() / 8; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + 8 * i, 8);
    word *= 0x9e3779b97f4a7c15;
    word ^= word >> 32;
    const std::uint64_t a = mix64((std::uint64_t{1} << 34) + i % 1024) | 1,
                        b = mix64((std::uint64_t{1} << 35) + i / 1024) | 1;
    total += word * a * b;
  }
  return total;
}

}  // namespace

TEST_SUITE("sketch") {
  TEST_CASE("a fingerprint is what its definition says, whatever the size") {
    for (const std::size_t size : {0, 1, 7, 8, 8191, 8192, 8193, 30000}) {
      CAPTURE(size);
      const std::vector<std::byte> bytes = random_bytes(size);
      CHECK(fingerprint(bytes.data(), size) == defined(bytes));
    }
  }

  TEST_CASE("each bit of a tensor, and each pair of signs, changes its fingerprint") {
    std::vector<std::byte> bytes(16400);
    std::set<std::uint64_t> seen{fingerprint(bytes.data(), bytes.size())};
    const auto flip = [&](std::size_t byte, int bit) { bytes[byte] ^= static_cast<std::byte>(1 << bit); };
    std::size_t changes = 1;
    for (std::size_t byte = 0; byte < bytes.size(); byte += 61) {
      for (int bit = 0; bit < 8; ++bit, ++changes) {
        flip(byte, bit);
        CHECK(seen.insert(fingerprint(bytes.data(), bytes.size())).second);
        flip(byte, bit);
      }
    }
    for (const std::size_t width : {2, 4, 8}) {  // of elements, whose sign is in their last byte
      for (std::size_t first = width - 1; first < 64; first += width) {
        for (const std::size_t second : {first + width, first + 8192, first + 8192 + width}) {
          flip(first, 7);
          flip(second, 7);
          CHECK(fingerprint(bytes.data(), bytes.size()) != fingerprint(bytes.data(), 0));
          flip(first, 7);
          flip(second, 7);
        }
      }
    }
    CHECK(seen.size() == changes);
  }
}

}  // namespace ttrace
