#include "reproductions/embedding_bag.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "reproductions/random.h"

namespace {

using namespace ttrace::reproductions;

struct BagExample {
  std::vector<std::uint8_t> values;
  std::vector<float> scales, biases, weights;
  std::vector<std::int64_t> indices, offsets;
  QuantisedTable table;
  Bags bags;
};

// Positive biases: no sum cancels, so the relative bound holds.
BagExample random_bags(Random& random) {
  BagExample x;
  x.table = {1 + random.below(50), 1 + random.below(40), random.below(2) == 0 ? 4 : 8, {}, {}, {}};
  const std::int64_t bytes = x.table.rows * ((x.table.dimension * x.table.bits + 7) / 8);
  for (std::int64_t i = 0; i < bytes; ++i) x.values.push_back(static_cast<std::uint8_t>(random.bits()));
  for (std::int64_t i = 0; i < x.table.rows; ++i) {
    x.scales.push_back(static_cast<float>(random.uniform(0.001, 0.1)));
    x.biases.push_back(static_cast<float>(random.uniform(0, 1)));
  }
  const bool weighted = random.below(2) == 0;
  for (std::int64_t bag = 0; bag < 1 + random.below(5); ++bag) {
    x.offsets.push_back(std::ssize(x.indices));
    for (std::int64_t i = random.below(20); i > 0; --i) {
      x.indices.push_back(random.below(x.table.rows));
      if (weighted) x.weights.push_back(static_cast<float>(random.uniform(0.1, 2)));
    }
  }
  x.table.values = x.values;
  x.table.scales = x.scales;
  x.table.biases = x.biases;
  x.bags = {x.indices, x.offsets, x.weights};
  return x;
}

bool any_disagrees(const std::vector<BagCheck>& checks) {
  return std::any_of(checks.begin(), checks.end(), [](const BagCheck& check) { return check.disagrees(); });
}

TEST_SUITE("reproductions") {
  TEST_CASE("bags by hand, of 4 bits with weights") {
    const std::vector<std::uint8_t> values = {0x21, 0x03, 0x54, 0x06};  // [1 2 3], [4 5 6]
    const std::vector<float> scales = {2, 10}, biases = {-1, 0.5f}, weights = {1, 3, 0.5f};
    const std::vector<std::int64_t> indices = {0, 1, 0}, offsets = {0, 2, 2};
    const QuantisedTable table{2, 3, 4, values, scales, biases};
    const Bags bags{indices, offsets, weights};
    REQUIRE(problem_of(table, bags).empty());
    CHECK(row_sums(table) == std::vector<std::int32_t>{6, 15});
    const std::vector<float> results = embedding_bag(table, bags);
    CHECK(results == std::vector<float>{122.5f, 154.5f, 186.5f, 0, 0, 0, 0.5f, 1.5f, 2.5f});
    const std::vector<BagCheck> checks = check_bags(table, bags, row_sums(table), results);
    CHECK(checks[0].result == 463.5);
    CHECK(checks[0].checksum == 463.5);
    CHECK(checks[2].checksum == 4.5);
    CHECK(!any_disagrees(checks));
  }

  TEST_CASE("right bags agree, and a flipped upper bit of the table is found in the bags that use the row") {
    Random random(5);
    int used = 0, found = 0;
    for (int trial = 0; trial < 2000; ++trial) {
      BagExample x = random_bags(random);
      REQUIRE(problem_of(x.table, x.bags).empty());
      const std::vector<std::int32_t> sums = row_sums(x.table);
      CHECK(!any_disagrees(check_bags(x.table, x.bags, sums, embedding_bag(x.table, x.bags))));
      if (x.table.bits != 8 || x.indices.empty()) continue;
      const std::int64_t row = x.indices[static_cast<std::size_t>(random.below(std::ssize(x.indices)))];
      const std::int64_t col = random.below(x.table.dimension);
      x.values[static_cast<std::size_t>(row * x.table.dimension + col)] ^=
          static_cast<std::uint8_t>(0x80 >> random.below(4));
      ++used;
      found += any_disagrees(check_bags(x.table, x.bags, sums, embedding_bag(x.table, x.bags)));
    }
    CHECK(used > 500);
    CHECK(found >= 0.99 * used);
  }

  TEST_CASE("NaN disagrees") {
    CHECK(BagCheck{std::numeric_limits<double>::quiet_NaN(), 1}.disagrees());
    CHECK(BagCheck{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()}.disagrees());
    CHECK(!BagCheck{0, 0}.disagrees());
  }

  TEST_CASE("what does not fit is named") {
    Random random(6);
    const BagExample x = random_bags(random);
    QuantisedTable table = x.table;
    table.bits = 3;
    CHECK(problem_of(table, x.bags) == "a table of 3 bits; 4 or 8 were expected");
    table = x.table;
    table.scales = table.scales.subspan(1);
    CHECK(problem_of(table, x.bags).find("scales for") != std::string::npos);
    const std::vector<std::int64_t> indices = {0, x.table.rows}, falling = {0, 2, 1}, late = {1}, none;
    const std::vector<std::int64_t> first = {0};
    CHECK(problem_of(x.table, {indices, first, {}}).find("index ") == 0);
    const std::vector<std::int64_t> zeros = {0, 0};
    CHECK(problem_of(x.table, {zeros, falling, {}}) == "bag 1 is from 2 to 1");
    CHECK(problem_of(x.table, {zeros, late, {}}) == "the first bag does not begin with the first index");
    CHECK(problem_of(x.table, {zeros, none, {}}) == "there are no bags");
  }
}

}  // namespace
