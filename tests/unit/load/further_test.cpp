#include "load/further.h"

#include <doctest/doctest.h>

#include <initializer_list>
#include <memory>

#include "base/error.h"

namespace ttrace {
namespace {

RankTrace rank_with(std::initializer_list<std::int32_t> iterations, std::set<std::int32_t> further = {}) {
  RankTrace rank;
  for (const std::int32_t iteration : iterations) {
    rank.entries.emplace_back().id.iteration = iteration;
    rank.optimizer_steps.emplace_back().iteration = iteration;
  }
  rank.further = std::move(further);
  return rank;
}

std::set<std::int32_t> iterations_in(const RankTrace& rank) {
  std::set<std::int32_t> iterations;
  for (const Entry& entry : rank.entries) iterations.insert(entry.id.iteration);
  CHECK(rank.entries.size() == rank.optimizer_steps.size());
  return iterations;
}

using Iterations = std::set<std::int32_t>;

}  // namespace

TEST_SUITE("load") {
  TEST_CASE("an iteration that the program did not finish is left out where nobody asked for it") {
    RankTrace rank = rank_with({0, 1, 2});
    leave_out_unfinished({.asked = {0}, .finished = {1}}, rank);
    CHECK(iterations_in(rank) == Iterations{0, 1});
    CHECK(rank.further == Iterations{1});
  }

  TEST_CASE("what needs elements does without light iterations that hold sketches, and refuses other ones") {
    Trace trace;
    trace.ranks.push_back(rank_with({0, 1, 2}));
    trace.ranks[0].light = {1, 2};
    trace.ranks[0].entries[2].sketch = std::make_shared<const RecordedSketch>();
    keep_elements(trace, "this");
    CHECK(iterations_in(trace.ranks[0]) == Iterations{0, 1});
    trace.ranks[0].entries[0].sketch = std::make_shared<const RecordedSketch>();
    CHECK_THROWS_AS(keep_elements(trace, "this"), InputError);
  }

  TEST_CASE("further iterations count where all ranks recorded them, asked to or not") {
    RankTrace one = rank_with({0, 1, 2}, {1, 2}), other = rank_with({0, 1, 2}, {1}), silent;
    CHECK(leave_out_uncommon({&one, &other, &silent}).empty());
    CHECK(iterations_in(one) == Iterations{0, 1, 2});
  }

  TEST_CASE("of further iterations that some rank lacks nothing is left, and what was asked for stays") {
    RankTrace one = rank_with({0, 1, 2}, {1, 2}), other = rank_with({0, 1}, {1}), none = rank_with({0, 3});
    CHECK(leave_out_uncommon({&one, &other}) == Iterations{2});
    CHECK(leave_out_uncommon({&one, &none}) == Iterations{1});
    CHECK(iterations_in(one) == Iterations{0});
    CHECK(iterations_in(none) == Iterations{0, 3});
  }

  TEST_CASE("of an iteration that some rank recorded lightly, all ranks keep what light ones have") {
    const auto kinds_of = [](const RankTrace& rank, std::int32_t iteration) {
      std::set<Kind> kinds;
      for (const Entry& entry : rank.entries) {
        if (entry.id.iteration == iteration) kinds.insert(entry.id.kind);
      }
      return kinds;
    };
    RankTrace whole, light;
    for (const std::int32_t iteration : {0, 1}) {
      for (const Kind kind : {Kind::kOutput, Kind::kMainGrad, Kind::kParamDelta}) {
        Entry entry;
        entry.id.iteration = iteration;
        entry.id.kind = kind;
        whole.entries.push_back(entry);
        if (iteration == 0 || is_light(kind)) light.entries.push_back(entry);
      }
    }
    leave_out_unfinished({.asked = {0}, .finished = {1}, .light = {1, 2}}, light);
    CHECK(light.light == Iterations{1});
    CHECK(leave_out_uncommon({&whole, &light}).empty());
    CHECK(kinds_of(whole, 0) == std::set<Kind>{Kind::kOutput, Kind::kMainGrad, Kind::kParamDelta});
    CHECK(kinds_of(whole, 1) == std::set<Kind>{Kind::kMainGrad, Kind::kParamDelta});
    CHECK(light_iterations({&whole, &light}) == Iterations{1});
    leave_out(Iterations{1}, {&whole, &light});
    CHECK(kinds_of(whole, 1).empty());
  }
}

}  // namespace ttrace
