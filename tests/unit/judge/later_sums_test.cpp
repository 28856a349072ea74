// Terms of a loss, or of a micro-batch's gradient, that the program sums later are no difference where training is right.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "judge/judge.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// The loss and the gradients of a weight, as one process or each of several ranks has them.
struct Terms {
  float loss, gradient, main_gradient = 8;
};

Report checked_terms(const char* mesh, const std::vector<Terms>& ranks) {
  const auto trace_of = [](const char* axes, const std::vector<Terms>& processes) {
    Trace trace = mesh_trace(axes, static_cast<std::int32_t>(processes.size()));
    for (std::size_t rank = 0; rank < processes.size(); ++rank) {
      const Terms& terms = processes[rank];
      test::add_tensor(trace, rank, tensor_id(Kind::kScalar, "loss", 0), {}, {terms.loss});
      const std::vector<float> gradient = {terms.gradient, 2 * terms.gradient};
      test::add_tensor(trace, rank, tensor_id(Kind::kParamGrad, "norm.weight", 0), {2}, gradient);
      test::add_tensor(trace, rank, tensor_id(Kind::kMainGrad, "norm.weight"), {2}, {terms.main_gradient, 2});
    }
    return trace;
  };
  return checked(trace_of("", {{4, 8}}), trace_of(mesh, ranks), "");
}

// The gradient that a step takes and the update that it makes, of two weights.
struct Step {
  float gradient, update = 1, second_update = 1;
};

Trace trace_of_steps(const char* axes, const std::vector<Step>& processes) {
  Trace trace = mesh_trace(axes, static_cast<std::int32_t>(processes.size()));
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const Step& step = processes[rank];
    for (const auto& [name, update] : {std::pair("a", step.update), {"b", step.second_update}}) {
      test::add_tensor(trace, rank, tensor_id(Kind::kMainGrad, name), {2}, {step.gradient, step.gradient});
      test::add_tensor(trace, rank, tensor_id(Kind::kParamDelta, name), {2}, {update, update});
    }
  }
  return trace;
}

Report checked_steps(const std::vector<Step>& ranks) {
  return checked(trace_of_steps("", {{4}}), trace_of_steps("tp=2", ranks), "");
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("gradients that the optimizer reduces in its step are right where most updates are") {
  CHECK(checked_steps({{-1}, {9}}).same());
  CHECK(findings_in(checked_steps({{-1, 1, 2}, {9, 1, 2}})) ==
        std::vector<std::string>{"b param_delta: exceeds-tolerance"});
  CHECK(findings_in(checked_steps({{-1, 2, 2}, {9, 2, 2}})).size() == 4);
  CHECK(findings_in(checked_steps({{-1}, {10}})).size() == 2);
  CHECK(findings_in(checked_steps({{-1, 0, 0}, {9, 0, 0}})).size() == 4);
}

TEST_CASE(
    "beside these, a gradient that is rounding alone is each rank's own as well, and larger than noise it is not") {
  for (const auto& [own, is_noise] : {std::pair(2.4e-9F, true), {1e-6F, false}}) {
    const auto with_noise = [](Trace trace, const std::vector<float>& ranks) {
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        test::add_tensor(trace, rank, tensor_id(Kind::kMainGrad, "scale"), {2}, {ranks[rank], -ranks[rank]});
      }
      return trace;
    };
    const Trace one = with_noise(trace_of_steps("", {{4}}), {1e-9F});
    const Trace two = with_noise(trace_of_steps("tp=2", {{-1}, {9}}), {-1e-9F, own});
    const Alignment reference = align(one, annotations(""), {});
    const Alignment candidate = align(two, annotations(""), layout_of(reference));
    const Matching matching = match(reference, candidate);
    ToleranceFile tolerance;
    for (const char* name : {"a", "b"}) {
      for (const Kind kind : {Kind::kMainGrad, Kind::kParamDelta}) tolerance.tensors[{kind, name}].allowed = 1e-6;
    }
    tolerance.tensors[{Kind::kMainGrad, "scale"}].allowed = 4;
    const Report report = judge_all(reference, matching, compare(matching.pairs, {1, {}, false}), &tolerance);
    CHECK(findings_in(report) ==
          std::vector<std::string>{is_noise ? "scale main_grad: noise" : "scale main_grad: replicas-disagree"});
  }
}

TEST_CASE("they are not where each rank's own has the signs of all: so has the first update of Adam") {
  CHECK(findings_in(checked_steps({{3}, {5}})) ==
        std::vector<std::string>{"a main_grad: replicas-disagree", "b main_grad: replicas-disagree"});
}

TEST_CASE("what the ranks have in a later iteration does not make an update tell of an earlier gradient") {
  // In the first iteration each rank's own has the signs of all, so that the update of Adam is right all the same.
  const auto trace_of = [](const char* axes, const std::vector<std::pair<float, Step>>& ranks) {
    Trace trace = mesh_trace(axes, static_cast<std::int32_t>(ranks.size()));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto& [first, later] = ranks[rank];
      const std::vector<std::pair<float, float>> steps = {{first, 1.0F}, {later.gradient, later.update}};
      for (std::size_t iteration = 0; iteration < steps.size(); ++iteration) {
        for (const Kind kind : {Kind::kMainGrad, Kind::kParamDelta}) {
          TensorId id = tensor_id(kind, "bias");
          id.iteration = static_cast<std::int32_t>(iteration);
          const float value = kind == Kind::kMainGrad ? steps[iteration].first : steps[iteration].second;
          test::add_tensor(trace, rank, id, {2}, {value, value});
        }
      }
    }
    return trace;
  };
  const Trace one = trace_of("", {{8, {4}}});
  CHECK(findings_in(checked(one, trace_of("tp=2", {{3, {-1, 1}}, {5, {5, 2}}}), "")).size() == 3);
  CHECK(checked(one, trace_of("tp=2", {{3, {-1}}, {5, {5}}}), "").same());
}

TEST_CASE("what either side has recorded as a sketch is not added up") {
  const Trace one = trace_of_steps("", {{4}}), two = trace_of_steps("tp=2", {{-1}, {9}});
  Alignment reference = align(one, annotations(""), {});
  const Alignment candidate = align(two, annotations(""), layout_of(reference));
  const Matching matching = match(reference, candidate);
  const std::vector<Difference> differences = compare(matching.pairs, {1, {}, false});
  for (auto& [id, tensor] : reference.tensors) tensor.sketched = true;
  CHECK(findings_in(judge_all(reference, matching, differences, nullptr)).size() == 2);
}

TEST_CASE("terms that add up to the reference's are summed later where what steps take is right") {
  const Report report = checked_terms("tp=2", {{1, 5}, {3, 3}});
  CHECK(report.same());
  CHECK(std::any_of(report.notes.begin(), report.notes.end(),
                    [](const std::string& note) { return has(note, "2 tensors, the first "); }));
}

TEST_CASE("so are those of two axes, of which one has copies, and terms of a mean") {
  CHECK(checked_terms("tp=2,cp=2", {{1, 5}, {3, 3}, {1, 5}, {3, 3}}).same());
  CHECK(checked_terms("tp=2", {{2, 10}, {6, 6}}).same());
}

TEST_CASE("so are those of the gradient of a module's output, where the gradient of its parameter is right") {
  const auto trace_of = [](const char* axes, const std::vector<float>& terms, float gradient) {
    Trace trace = mesh_trace(axes, static_cast<std::int32_t>(terms.size()));
    for (std::size_t rank = 0; rank < terms.size(); ++rank) {
      test::add_tensor(trace, rank, tensor_id(Kind::kGradOutput, "norm", 0), {2}, {terms[rank], 2 * terms[rank]});
      test::add_tensor(trace, rank, tensor_id(Kind::kMainGrad, "norm.weight"), {2}, {gradient, 2});
    }
    return trace;
  };
  const Trace one = trace_of("", {9}, 4);
  CHECK(checked(one, trace_of("tp=2", {2, 7}, 4), "").same());
  CHECK(findings_in(checked(one, trace_of("tp=2", {2, 6}, 4), "")) ==
        std::vector<std::string>{"norm grad_output: replicas-disagree"});
  CHECK(findings_in(checked(one, trace_of("tp=2", {2, 7}, 5), "")).size() == 2);
}

TEST_CASE("terms of another sum are wrong, and so are those of a gradient that a step takes unsummed") {
  CHECK(findings_in(checked_terms("tp=2", {{1, 5}, {2, 3}})) ==
        std::vector<std::string>{"loss scalar: replicas-disagree"});
  CHECK(findings_in(checked_terms("tp=2", {{1, 5}, {3, 4}})) ==
        std::vector<std::string>{"norm.weight param_grad: replicas-disagree"});
  CHECK(findings_in(checked_terms("tp=2", {{1, 5, 5}, {3, 3, 3}})).size() == 3);
}

TEST_CASE("a loss that is a sum of terms may be off by what these round, however they cancel") {
  const auto reason_of = [](float first, float second) {
    Trace one = mesh_trace("", 1), two = mesh_trace("dp=2", 2);
    test::add_tensor(one, 0, tensor_id(Kind::kScalar, "loss", 0), {}, {-0.001F});
    for (std::size_t rank = 0; rank < 2; ++rank) {
      test::add_tensor(two, rank, tensor_id(Kind::kScalar, "loss", 0), {}, {rank == 0 ? first : second});
    }
    const Alignment reference = align(one, annotations(""), {});
    const Alignment candidate = align(two, annotations("loss: {scalar: {dp: partial}}"), layout_of(reference));
    const Matching matching = match(reference, candidate);
    ToleranceFile tolerance;
    tolerance.tensors[{Kind::kScalar, "loss"}].allowed = 4e-6;
    const Report report = judge_all(reference, matching, compare(matching.pairs, {1, {}, false}), &tolerance);
    return findings_in(report);
  };
  CHECK(reason_of(0.239F, -0.24000002F).empty());
  CHECK(reason_of(0.239F, -0.2400002F) == std::vector<std::string>{"loss scalar: exceeds-tolerance"});
  CHECK(reason_of(-0.00051F, -0.00049002F) == std::vector<std::string>{"loss scalar: exceeds-tolerance"});
}

TEST_SUITE_END();
