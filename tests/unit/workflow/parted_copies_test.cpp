#include "workflow/parted_copies.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace ttrace;

// What each rank holds of the parameter before the step and behind it, as checksums.
using Bits = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

Trace iteration_with(const Bits& of_ranks, const Shape& shape = {4, 8}) {
  Trace trace;
  for (const auto& [before, after] : of_ranks) {
    RankTrace rank;
    rank.rank = static_cast<std::int32_t>(trace.ranks.size());
    for (const auto& [kind, checksum] : {std::pair(Kind::kParam, before), std::pair(Kind::kParamAfter, after)}) {
      Entry entry;
      entry.id.kind = kind;
      entry.id.name = std::string("norm.weight");
      entry.shape = shape;
      entry.checksum = checksum;
      rank.entries.push_back(entry);
    }
    trace.ranks.push_back(std::move(rank));
  }
  return trace;
}

}  // namespace

TEST_SUITE_BEGIN("workflow");

TEST_CASE("copies that two iterations have shown are to stay equal") {
  CopyWatch watch;
  CHECK(watch.look_at(iteration_with({{1, 2}, {1, 2}, {1, 2}})).empty());
  CHECK(watch.look_at(iteration_with({{3, 4}, {3, 4}, {3, 4}})).empty());
  const std::vector<PartedCopies> found = watch.look_at(iteration_with({{5, 6}, {7, 8}, {5, 6}}));
  REQUIRE(found.size() == 1);
  CHECK(found[0].tensor == "norm.weight");
  CHECK(found[0].kind == Kind::kParam);
  CHECK(found[0].parted == std::vector<std::int32_t>{1});
  CHECK(found[0].others == std::vector<std::int32_t>{0, 2});
  const std::vector<PartedCopies> behind = watch.look_at(iteration_with({{5, 6}, {5, 9}, {5, 6}}));
  REQUIRE(behind.size() == 1);
  CHECK(behind[0].kind == Kind::kParamAfter);
}

TEST_CASE("what is equal by chance, or now and then, is no copy") {
  CopyWatch watch;
  SUBCASE("parts that begin alike") {
    watch.look_at(iteration_with({{1, 2}, {1, 3}}));
    watch.look_at(iteration_with({{1, 4}, {1, 5}}));
  }
  SUBCASE("what no step has changed") {
    watch.look_at(iteration_with({{1, 1}, {1, 1}}));
    watch.look_at(iteration_with({{1, 1}, {1, 1}}));
  }
  SUBCASE("parameters that ranks average every few steps") {
    watch.look_at(iteration_with({{1, 2}, {1, 3}}));
    watch.look_at(iteration_with({{4, 6}, {5, 6}}));
  }
  SUBCASE("so few elements that a gradient's sign alone may move alike") {
    watch.look_at(iteration_with({{1, 2}, {1, 2}}, {2}));
    watch.look_at(iteration_with({{3, 4}, {3, 4}}, {2}));
    CHECK(watch.look_at(iteration_with({{5, 6}, {7, 8}}, {2})).empty());
    return;
  }
  SUBCASE("one iteration") { watch.look_at(iteration_with({{1, 2}, {1, 2}})); }
  CHECK(watch.look_at(iteration_with({{5, 6}, {7, 8}})).empty());
}

TEST_SUITE_END();
