#include "align/coverage.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

using namespace ttrace;

TEST_SUITE_BEGIN("align");

TEST_CASE("shards that tile a tensor cover it exactly") {
  const std::vector<Box> boxes = {{{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}, {{0, 3}, {4, 1}}};
  CHECK(cover({4, 4}, boxes).exact());
}

TEST_CASE("a gap is reported as one box") {
  const std::vector<Box> boxes = {{{0, 0}, {2, 4}}, {{2, 0}, {2, 1}}, {{2, 3}, {2, 1}}};
  const Coverage coverage = cover({4, 4}, boxes);
  CHECK(coverage.gaps == std::vector<Region>{{{{2, 1}, {2, 2}}, {}}});
  CHECK(coverage.overlaps.empty());
}

TEST_CASE("an overlap is reported with those who hold it") {
  const std::vector<Box> boxes = {{{0}, {5}}, {{3}, {5}}, {{8}, {2}}};
  const Coverage coverage = cover({10}, boxes);
  CHECK(coverage.gaps.empty());
  CHECK(coverage.overlaps == std::vector<Region>{{{{3}, {2}}, {0, 1}}});
}

TEST_CASE("a box outside the tensor is reported and fills nothing") {
  const std::vector<Box> boxes = {{{0}, {4}}, {{2}, {3}}, {{-1}, {1}}, {{0, 0}, {1, 1}}};
  const Coverage coverage = cover({4}, boxes);
  CHECK(coverage.outside == std::vector<std::size_t>{1, 2, 3});
  CHECK(coverage.gaps.empty());
  CHECK_FALSE(coverage.exact());
}

TEST_CASE("a scalar needs one box, an empty tensor none") {
  const std::vector<Box> one(1);
  CHECK(cover({}, one).exact());
  CHECK(cover({}, {}).gaps.size() == 1);
  CHECK(cover({0, 4}, {}).exact());
}

TEST_CASE("any set of boxes is accounted for element by element") {
  std::mt19937 random(1);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 1000; ++round) {
    const Shape shape = {pick(1, 5), pick(1, 5), pick(1, 4)};
    std::vector<Box> boxes(static_cast<std::size_t>(pick(0, 5)));
    for (Box& box : boxes) {
      for (const std::int64_t extent : shape) {
        box.start.push_back(pick(0, extent - 1));
        box.size.push_back(pick(0, extent - box.start.back()));
      }
    }
    // How often each element is held, counted, and as the coverage says.
    std::map<Shape, std::size_t> counted, said;
    const auto each = [](const Box& box, const auto& visit) {
      for (std::int64_t i = 0; i < box.size[0]; ++i) {
        for (std::int64_t j = 0; j < box.size[1]; ++j) {
          for (std::int64_t k = 0; k < box.size[2]; ++k) visit({box.start[0] + i, box.start[1] + j, box.start[2] + k});
        }
      }
    };
    each({{0, 0, 0}, shape}, [&](const Shape& at) { counted[at] = 0, said[at] = 1; });
    for (const Box& box : boxes) each(box, [&](const Shape& at) { ++counted[at]; });
    const Coverage coverage = cover(shape, boxes);
    for (const Region& gap : coverage.gaps) each(gap.box, [&](const Shape& at) { said[at] -= 1; });
    for (const Region& overlap : coverage.overlaps) {
      each(overlap.box, [&](const Shape& at) { said[at] += overlap.holders.size() - 1; });
    }
    REQUIRE(said == counted);
  }
}

TEST_SUITE_END();
