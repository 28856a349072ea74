#include "numeric/xxh3.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using State = std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)>;

State new_state() {
  State state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  return state;
}

std::uint64_t ours(const std::string& bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
std::uint64_t ours_seeded(const std::string& bytes) { return XXH3_64bits_withSeed(bytes.data(), bytes.size(), 7); }
std::uint64_t ours_in_parts(const std::string& bytes, std::size_t part) {
  const State state = new_state();
  for (std::size_t i = 0; i < bytes.size(); i += part) {
    XXH3_64bits_update(state.get(), bytes.data() + i, std::min(part, bytes.size() - i));
  }
  return XXH3_64bits_digest(state.get());
}

std::string text_of(XXH128_hash_t hash) { return std::to_string(hash.high64) + " " + std::to_string(hash.low64); }
std::string ours_128(const std::string& bytes) { return text_of(XXH3_128bits(bytes.data(), bytes.size())); }
std::string ours_128_in_parts(const std::string& bytes, std::size_t part) {
  const State state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  for (std::size_t i = 0; i < bytes.size(); i += part) {
    XXH3_128bits_update(state.get(), bytes.data() + i, std::min(part, bytes.size() - i));
  }
  return text_of(XXH3_128bits_digest(state.get()));
}

// Behind the macros are the functions that any x86 can run.
#undef XXH3_64bits
#undef XXH3_64bits_withSeed
#undef XXH3_128bits

TEST_SUITE("numeric") {
  TEST_CASE("XXH3 gives the bits of the plain function, on every processor and in any parts") {
    std::vector<std::size_t> sizes{1000, 1023, 1024, 1025, 4096, 5000, 65'537, 1 << 20};
    for (std::size_t size = 0; size < 600; ++size) sizes.push_back(size);
    for (const std::size_t size : sizes) {
      std::string bytes(size, '\0');
      for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * i * 2'654'435'761u >> 7);
      const std::uint64_t expected = XXH3_64bits(bytes.data(), size);
      CHECK(ours(bytes) == expected);
      CHECK(ours_seeded(bytes) == XXH3_64bits_withSeed(bytes.data(), size, 7));
      const std::string expected_128 = text_of(XXH3_128bits(bytes.data(), size));
      CHECK(ours_128(bytes) == expected_128);
      for (const std::size_t part : {13, 256, 5000}) {
        CHECK(ours_in_parts(bytes, part) == expected);
        CHECK(ours_128_in_parts(bytes, part) == expected_128);
      }
    }
  }
}

}  // namespace
}  // namespace ttrace
