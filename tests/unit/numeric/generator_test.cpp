#include "numeric/generator.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "base/trace.h"
#include "numeric/philox.h"

using namespace ttrace;

TEST_SUITE("numeric") {
  using Block = std::array<std::uint32_t, 4>;

  TEST_CASE("Philox4x32-10 gives the answers that Random123 publishes") {
    CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) == Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  }

  float value_at(std::uint64_t seed, std::string_view key, std::int64_t index) {
    float value = 0;
    fill_uniform(seed, key, Shape{index + 1}, Shape{index}, Shape{1}, &value);
    return value;
  }

  TEST_CASE("A generated value never changes between versions, machines and compilers") {
    CHECK(value_at(0, "0/0/output/embedding", 0) == -0x1.e6d13cp-1f);
    CHECK(value_at(1, "0/0/output/embedding", 0) == -0x1.1c613p-1f);
    CHECK(value_at(0, "0/0/output/embedding", 5'000'000'001) == 0x1.f83378p-1f);
  }

  TEST_CASE("Shards of a tensor are generated alike on any rank") {
    const Shape shape{5, 7, 6};
    std::vector<float> whole(5 * 7 * 6);
    fill_uniform(42, "key", shape, Shape{0, 0, 0}, shape, whole.data());
    const Shape start{1, 2, 3}, size{3, 4, 2};
    std::vector<float> shard(3 * 4 * 2);
    fill_uniform(42, "key", shape, start, size, shard.data());
    std::size_t at = 0;
    for (std::int64_t i = 1; i < 4; ++i) {
      for (std::int64_t j = 2; j < 6; ++j) {
        for (std::int64_t k = 3; k < 5; ++k) CHECK(shard[at++] == whole[(i * 7 + j) * 6 + k]);
      }
    }
    CHECK(whole[17] == value_at(42, "key", 17));
  }

  TEST_CASE("A scalar is generated as a tensor of one element") {
    float value = 0;
    fill_uniform(3, "loss", {}, {}, {}, &value);
    CHECK(value == value_at(3, "loss", 0));
  }

  TEST_CASE("An empty shard touches no memory") {
    fill_uniform(3, "x", Shape{4, 0}, Shape{0, 0}, Shape{4, 0}, nullptr);
  }

  TEST_CASE("Generated values are uniform in [-1, 1) and exact multiples of 2^-23") {
    const std::int64_t n = 1 << 20;
    std::vector<float> values(n);
    fill_uniform(7, "uniformity", Shape{n}, Shape{0}, Shape{n}, values.data());
    double sum = 0, squares = 0;
    for (const float value : values) {
      REQUIRE(value >= -1.0f);
      REQUIRE(value < 1.0f);
      REQUIRE(std::ldexp(value, 23) == std::nearbyint(std::ldexp(value, 23)));
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    // Mean 0 and variance 1/3, within five standard errors of 2^20 draws.
    CHECK(std::fabs(sum / n) < 5 * std::sqrt(1.0 / 3 / n));
    CHECK(std::fabs(squares / n - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / n));
  }
}
