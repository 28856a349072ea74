// A tensor that goes from stage to stage has the gradient of the later stages alone there.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "judge/judge.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

void add_input(Trace& trace, std::size_t rank, const std::string& name, float value) {
  test::add_tensor(trace, rank, tensor_id(Kind::kInput, name, 0), {1}, {value});
  trace.ranks[rank].entries.back().checksum = static_cast<std::uint64_t>(value);
}

// Two layers that are given these numbers, on the ranks; gradients of the numbers, and of the layers' weights.
Report checked_layers(std::vector<float> given, std::vector<float> gradients, const std::vector<float>& weights) {
  const auto trace_of = [&](const char* mesh, std::vector<std::size_t> ranks, const std::vector<float>& of_inputs,
                            const std::vector<float>& of_weights) {
    Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(ranks[1]) + 1);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const std::string name = layer == 0 ? "a" : "b";
      const std::size_t rank = ranks[layer];
      add_input(trace, rank, name, given[layer]);
      test::add_tensor(trace, rank, tensor_id(Kind::kGradInput, name, 0), {1}, {of_inputs[layer]});
      test::add_tensor(trace, rank, tensor_id(Kind::kMainGrad, name + ".weight"), {1}, {of_weights[layer]});
    }
    return trace;
  };
  return checked(trace_of("", {0, 0}, {7, 7}, {1, 2}), trace_of("pp=2", {0, 1}, gradients, weights), "");
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("gradients of a tensor that stages have a copy of are not compared where training is right") {
  const Report report = checked_layers({5, 5}, {7, 4}, {1, 2});
  CHECK(report.same());
  CHECK(report.totals.counts.untrusted == 1);
}

TEST_CASE("they are where the layers were given other numbers, and where a step takes something wrong") {
  CHECK(findings_in(checked_layers({5, 6}, {7, 4}, {1, 2})) ==
        std::vector<std::string>{"b grad_input: exceeds-tolerance"});
  CHECK(findings_in(checked_layers({5, 5}, {7, 4}, {1, 3})).size() == 2);
}

TEST_SUITE_END();
