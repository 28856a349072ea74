// What nothing averages over ranks has no factor of the loss.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "judge/judge.h"
#include "merge/values.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// A parameter of which each of two ranks has half, or one process all: the gradient that was recorded of it in the
// micro-batch, times `factor`, and what its step takes, times `taken`.
Trace with_gradients(const char* mesh, float factor, float taken) {
  const std::size_t ranks = std::string(mesh).empty() ? 1 : 2;
  Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(ranks));
  const std::vector<float> whole = {3, 5, 7, 11};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto add = [&](Kind kind, std::int32_t microbatch, float times) {
      std::vector<float> part(whole.begin() + static_cast<std::ptrdiff_t>(rank * whole.size() / ranks),
                              whole.begin() + static_cast<std::ptrdiff_t>((rank + 1) * whole.size() / ranks));
      for (float& value : part) value *= times;
      test::add_tensor(trace, rank, tensor_id(kind, "head.weight", microbatch), {std::ssize(part)}, part);
      trace.ranks[rank].entries.back().checksum = static_cast<std::uint64_t>(part[0] * 8);
    };
    add(Kind::kParamGrad, 0, factor);
    add(Kind::kMainGrad, kNoMicrobatch, taken);
  }
  return trace;
}

Report checked_half(float factor, float taken) {
  return checked(with_gradients("", 1, 1), with_gradients("dp=2", factor, taken),
                 "{\"**\": {dp_dim: 0}, parallelism: {loss_scale: dp}}");
}

// The mean loss of each rank's tokens, which the program weighs by how many there are, and the gradient of it.
Report checked_means(const std::vector<std::pair<float, float>>& ranks, const std::string& said = "") {
  const auto trace_of = [](const char* mesh, const std::vector<std::pair<float, float>>& numbers) {
    Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(numbers.size()));
    for (std::size_t rank = 0; rank < numbers.size(); ++rank) {
      test::add_tensor(trace, rank, tensor_id(Kind::kOutput, "criterion", 0), {}, {numbers[rank].first});
      test::add_tensor(trace, rank, tensor_id(Kind::kGradOutput, "criterion", 0), {}, {numbers[rank].second});
    }
    return trace;
  };
  const Trace one = trace_of("", {{5, 1}}), two = trace_of("tp=2", ranks);
  const Alignment reference = align(one, annotations(""), {});
  const Alignment candidate = align(two, annotations(said), layout_of(reference));
  const Matching matching = match(reference, candidate);
  ToleranceFile tolerance;
  for (const Kind kind : {Kind::kOutput, Kind::kGradOutput}) tolerance.tensors[{kind, "criterion"}].allowed = 1e-5;
  return judge_all(reference, matching, compare(matching.pairs, {1, {}, false}), &tolerance);
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a gradient that the step takes as it was recorded has no factor of the loss, where the step is right") {
  const Report report = checked_half(1, 1);
  CHECK(report.same());
  CHECK(has(report.notes.back(), "as the step takes them"));
}

TEST_CASE("it has where something divides it before the step, and where the step takes something wrong") {
  CHECK(checked_half(2, 1).same());
  CHECK(findings_in(checked_half(2, 2)) == std::vector<std::string>{"head.weight main_grad: exceeds-tolerance"});
  CHECK(findings_in(checked_half(0.5F, 1)) == std::vector<std::string>{"head.weight param_grad: exceeds-tolerance"});
}

TEST_CASE(
    "numbers of each rank's own are right where their mean is, weighted by the gradients that come back to them") {
  const Report report = checked_means({{4, 0.5F}, {5.3333335F, 1.5F}});
  CHECK(report.same());
  CHECK(std::ranges::any_of(report.notes,
                            [](const std::string& note) { return has(note, "weighted by the gradients"); }));
  CHECK(checked_means({{4, 0.25F}, {5.3333335F, 0.75F}}).same());
  CHECK(findings_in(checked_means({{4, 1}, {5.3333335F, 1}})).size() == 1);
  CHECK(checked_means({{5, 1}, {5, 1}}, "criterion: {output: {tp: partial}}").same());
  CHECK(findings_in(checked_means({{4, 0.5F}, {5.4F, 1.5F}})).size() == 2);
  CHECK(findings_in(checked_means({{4, 0.55F}, {5.3333335F, 1.5F}})).size() == 2);
}

TEST_CASE("a rank whose part of a number is empty has recorded none") {
  Trace one = mesh_trace("", 1), two = mesh_trace("tp=2", 2);
  test::add_tensor(one, 0, tensor_id(Kind::kOutput, "scale", 0), {1}, {5});
  test::add_tensor(two, 0, tensor_id(Kind::kOutput, "scale", 0), {1}, {7});
  test::add_tensor(two, 1, tensor_id(Kind::kOutput, "scale", 0), {0}, {});
  const Alignment reference = align(one, annotations(""), {});
  const Alignment candidate = align(two, annotations("scale: {output: {tp_dim: 0}}"), layout_of(reference));
  REQUIRE(candidate.tensors.size() == 1);
  CHECK(recorded_numbers(candidate.tensors.begin()->second) == std::map<std::int32_t, double>{{0, 7}});
}

TEST_SUITE_END();
