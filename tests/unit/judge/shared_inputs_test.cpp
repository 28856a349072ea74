// A tensor that goes from stage to stage has the gradient of the later stages alone there.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "judge/judge.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

void add_handed(Trace& trace, std::size_t rank, Kind kind, const std::string& name, float value) {
  test::add_tensor(trace, rank, tensor_id(kind, name, 0), {1}, {value});
  trace.ranks[rank].entries.back().checksum = static_cast<std::uint64_t>(value);
}

// Two layers that are given these numbers, on the ranks; gradients of the numbers, and of the layers' weights. What made
// the first number, where that is recorded, has the gradient 7 in the reference.
Report checked_layers(std::vector<float> given, std::vector<float> gradients, const std::vector<float>& weights,
                      std::optional<float> of_made = {}) {
  const auto trace_of = [&](const char* mesh, std::vector<std::size_t> ranks, const std::vector<float>& of_inputs,
                            const std::vector<float>& of_weights, std::optional<float> of_output) {
    Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(ranks[1]) + 1);
    if (of_output) {
      add_handed(trace, 0, Kind::kOutput, "made", given[0]);
      test::add_tensor(trace, 0, tensor_id(Kind::kGradOutput, "made", 0), {1}, {*of_output});
    }
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const std::string name = layer == 0 ? "a" : "b";
      const std::size_t rank = ranks[layer];
      add_handed(trace, rank, Kind::kInput, name, given[layer]);
      test::add_tensor(trace, rank, tensor_id(Kind::kGradInput, name, 0), {1}, {of_inputs[layer]});
      test::add_tensor(trace, rank, tensor_id(Kind::kMainGrad, name + ".weight"), {1}, {of_weights[layer]});
    }
    return trace;
  };
  const std::optional<float> in_reference = of_made ? std::optional(7.0F) : std::nullopt;
  return checked(trace_of("", {0, 0}, {7, 7}, {1, 2}, in_reference),
                 trace_of("pp=2", {0, 1}, gradients, weights, of_made), "");
}

// Two layers that are given one tensor, or a copy each, in two micro-batches; the gradients that come back to the second.
Trace of_copies(const char* mesh, std::vector<std::size_t> ranks, const std::vector<float>& of_second,
                const std::vector<float>& next, float of_weights = 3) {
  Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(ranks[1]) + 1);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    const std::string name = layer == 0 ? "a" : "b";
    const std::size_t rank = ranks[layer];
    for (std::int32_t microbatch = 0; microbatch < 2; ++microbatch) {
      test::add_tensor(trace, rank, tensor_id(Kind::kInput, name, microbatch), {2}, {5, 6});
      trace.ranks[rank].entries.back().checksum = 5 + static_cast<std::uint64_t>(microbatch);
      const std::vector<float> whole = {7, 8};
      const std::vector<float>& second = microbatch == 0 ? of_second : next;
      test::add_tensor(trace, rank, tensor_id(Kind::kGradInput, name, microbatch), {2}, layer == 0 ? whole : second);
    }
    test::add_tensor(trace, rank, tensor_id(Kind::kMainGrad, name + ".weight"), {1}, {of_weights});
  }
  return trace;
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("gradients of a tensor that stages have a copy of are not compared where training is right") {
  const Report report = checked_layers({5, 5}, {7, 4}, {1, 2});
  CHECK(report.same());
  CHECK(report.totals.counts.untrusted == 1);
}

TEST_CASE("they are where such a gradient is right in another micro-batch") {
  const Trace one = of_copies("", {0, 0}, {7, 8}, {7, 8});
  CHECK(checked(one, of_copies("pp=2", {0, 1}, {1, 0}, {0, 1}), "").same());
  CHECK(findings_in(checked(one, of_copies("pp=2", {0, 1}, {1, 0}, {7, 8}), "")) ==
        std::vector<std::string>{"b grad_input: exceeds-tolerance"});
}

TEST_CASE(
    "they are not where a step takes something wrong, but all of the gradient is right where another module got it") {
  const Trace one = of_copies("", {0, 0}, {7, 8}, {7, 8});
  const Report report = checked(one, of_copies("pp=2", {0, 1}, {1, 0}, {0, 1}, 5), "");
  CHECK(report.totals.counts.untrusted == 2);
  REQUIRE(report.first_wrong() != nullptr);
  CHECK(report.first_wrong()->id == tensor_id(Kind::kMainGrad, "a.weight"));
}

TEST_CASE(
    "what comes back to a copy on the same rank may be next to nothing, but nothing that is a multiple of the whole") {
  const Trace one = of_copies("", {0, 0}, {7, 8}, {7, 8});
  const auto copied = [&](const std::vector<float>& part) {
    return checked(one, of_copies("", {0, 0}, part, part), "");
  };
  CHECK(copied({0.002F, -0.001F}).same());
  CHECK(!copied({3.5F, 4}).same());
  CHECK(!copied({0, 0}).same());
}

TEST_CASE("they are where the layers were given other numbers, and where a step takes something wrong") {
  CHECK(findings_in(checked_layers({5, 6}, {7, 4}, {1, 2})) ==
        std::vector<std::string>{"b grad_input: exceeds-tolerance"});
  CHECK(findings_in(checked_layers({5, 5}, {7, 4}, {1, 3})).size() == 2);
}

TEST_CASE("they are not where a step takes something wrong, but the gradient of what made the tensor is right") {
  CHECK(findings_in(checked_layers({5, 5}, {7, 4}, {1, 3}, 7)) ==
        std::vector<std::string>{"b grad_input: not-checkable", "b.weight main_grad: exceeds-tolerance"});
  CHECK(findings_in(checked_layers({5, 5}, {7, 4}, {1, 3}, 8)).size() == 3);
}

TEST_CASE(
    "what is sent to another stage has the gradient of that stage's use alone there, and all of it where it is made") {
  // The stage that makes it uses it as well, in no module.
  const auto trace_of = [](const char* mesh, std::size_t receiver, float of_made, float of_given) {
    Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(receiver) + 1);
    add_handed(trace, 0, Kind::kOutput, "made", 5);
    test::add_tensor(trace, 0, tensor_id(Kind::kGradOutput, "made", 0), {1}, {of_made});
    add_handed(trace, receiver, Kind::kInput, "given", 5);
    test::add_tensor(trace, receiver, tensor_id(Kind::kGradInput, "given", 0), {1}, {of_given});
    return trace;
  };
  const Trace one = trace_of("", 0, 7, 7);
  CHECK(findings_in(checked(one, trace_of("pp=2", 1, 7, 4), "")) ==
        std::vector<std::string>{"given grad_input: not-checkable"});
  CHECK(findings_in(checked(one, trace_of("pp=2", 1, 6, 4), "")) ==
        std::vector<std::string>{"made grad_output: exceeds-tolerance", "given grad_input: exceeds-tolerance"});
}

TEST_SUITE_END();
