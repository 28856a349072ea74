#include "judge/group_choice.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

using namespace ttrace;

namespace {

using Experts = std::set<std::int64_t>;

// The router itself: `top_k` experts of the groups whose highest `counted` scores add up to the most.
Experts choose(const std::vector<double>& scores, const ExpertGroups& groups, std::int64_t top_k) {
  const std::int64_t size = std::ssize(scores) / groups.count;
  std::vector<std::pair<double, std::int64_t>> by_sum;
  for (std::int64_t g = 0; g < groups.count; ++g) {
    std::vector<double> own(scores.begin() + g * size, scores.begin() + (g + 1) * size);
    std::sort(own.begin(), own.end(), std::greater<>());
    by_sum.emplace_back(std::accumulate(own.begin(), own.begin() + groups.counted, 0.0), g);
  }
  std::sort(by_sum.begin(), by_sum.end(), std::greater<>());
  std::vector<std::pair<double, std::int64_t>> left;
  for (std::int64_t i = 0; i < groups.chosen; ++i) {
    for (std::int64_t e = 0; e < size; ++e) {
      const std::int64_t expert = by_sum[static_cast<std::size_t>(i)].second * size + e;
      left.emplace_back(scores[static_cast<std::size_t>(expert)], expert);
    }
  }
  std::sort(left.begin(), left.end(), std::greater<>());
  Experts experts;
  for (std::int64_t i = 0; i < top_k; ++i) experts.insert(left[static_cast<std::size_t>(i)].second);
  return experts;
}

// Two groups of two experts, which nearly tie: 3.0 and 2.98.
const std::vector<double> kNearTie = {2, 1, 2.9, 0.08};
constexpr ExpertGroups kOneOfTwo{2, 1, 2};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("the choice of the router itself needs no move, and that of the group it nearly ties with a small one") {
  CHECK(move_to_choose(kNearTie, kOneOfTwo, {0, 1}) == 0);
  CHECK(move_to_choose(kNearTie, kOneOfTwo, {2, 3}) == doctest::Approx(0.005));  // 0.02 over twice two scores
}

TEST_CASE("a choice by another rule than the reference's is no near tie") {
  CHECK(move_to_choose(kNearTie, kOneOfTwo, {0, 2}) == kInfinity);              // the highest scores of all experts
  CHECK(move_to_choose(kNearTie, {2, 1, 1}, {0, 1}) == doctest::Approx(0.45));  // groups by their highest score
  const std::vector<double> scores = {9, 8, 7, 6, 5, 4, 3, 2};
  CHECK(move_to_choose(scores, {4, 2, 1}, {0, 1}) == 0);
  CHECK(move_to_choose(scores, {4, 2, 1}, {0, 2}) == doctest::Approx(0.5));  // not the highest of its groups
  CHECK(move_to_choose(scores, {4, 2, 2}, {0, 4}) == doctest::Approx(1.5));  // expert 1 is left for expert 4
  CHECK(move_to_choose(scores, {4, 1, 2}, {0, 1, 2}) == kInfinity);          // from more groups
  CHECK(move_to_choose({scores.data(), 4}, {2, 2, 1}, {2, 3}) == doctest::Approx(1.5));  // of one group, not of two
  CHECK(move_to_choose(scores, {4, 2, 1}, {0, 8}) == kInfinity);
}

TEST_CASE("a group that gave no expert may have been chosen all the same") {
  // Group 0 gives both experts. Beside it the groups 1 and 2 nearly tie, and expert 2 of group 1 would have come before.
  const std::vector<double> scores = {9, 5, 8, 0, 4.01, 4};
  constexpr ExpertGroups kTwoOfThree{3, 2, 2};
  CHECK(move_to_choose(scores, kTwoOfThree, {0, 1}) == 0);
  const std::vector<double> other = {9, 5, 8, 0.02, 4.01, 4};
  CHECK(move_to_choose(other, kTwoOfThree, {0, 2}) == 0);
  CHECK(move_to_choose(other, kTwoOfThree, {0, 1}) == doctest::Approx(0.0025));
}

TEST_CASE("what moves of a size bring about needs no more than that size") {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> score(-1, 1), size(0, 0.5);
  constexpr std::int64_t kTopK = 4;
  for (int i = 0; i < 20000; ++i) {
    const ExpertGroups groups{4, 1 + i % 4, 1 + i / 4 % 4};
    std::vector<double> scores(16), moved;
    for (double& each : scores) each = score(random);
    const double move = size(random);
    for (const double each : scores) moved.push_back(each + move * score(random));
    REQUIRE(move_to_choose(scores, groups, choose(scores, groups, kTopK)) == 0);
    REQUIRE(move_to_choose(scores, groups, choose(moved, groups, kTopK)) <= move + 1e-12);
  }
}
