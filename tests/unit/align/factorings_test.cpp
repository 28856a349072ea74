// Several factorings of one world, experts, and sums over micro-batches.
#include <doctest/doctest.h>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const std::string kExpertWeight = "mlp.experts.local_experts.*.fc1.weight";

TensorId expert_id(Kind kind, const std::string& layer, std::int64_t expert, std::int32_t microbatch = kNoMicrobatch) {
  return tensor_id(kind, layer + ".mlp.experts.local_experts." + std::to_string(expert) + ".fc1.weight", microbatch);
}

const TensorId kGrad = tensor_id(Kind::kParamGrad, "fc.weight");

// `terms[rank][m]` is what the rank's m-th micro-batch adds.
Trace summed(const std::string& mesh, const std::vector<std::vector<float>>& terms) {
  Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(terms.size()));
  for (std::size_t rank = 0; rank < terms.size(); ++rank) {
    for (std::size_t m = 0; m < terms[rank].size(); ++m) {
      TensorId id = kGrad;
      id.microbatch = static_cast<std::int32_t>(m);
      add_tensor(trace, rank, id, {1}, {terms[rank][m]});
    }
  }
  return trace;
}

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("a tensor lies on the factoring that its rule names") {
  // Rank = tp + 2 * dp = ep + 2 * edp: tp splits the one, ep the other.
  Trace trace = mesh_trace("tp=2,dp=2/ep=2,edp=2", 4);
  Trace reference = mesh_trace("", 1);
  for (const std::string name : {"dense.weight", "experts.weight"}) {
    const TensorId id = tensor_id(Kind::kParam, name);
    for (const std::size_t rank : {0, 1, 2, 3}) {
      add_tensor(trace, rank, id, {1}, {static_cast<float>(rank % 2)});
    }
    add_tensor(reference, 0, id, {2}, {0, 1});
  }
  const std::string text = "dense.weight: {tp_dim: 0}\nexperts.weight: {ep_dim: 0}";
  CHECK(checked(reference, trace, text).same());
  trace.ranks[3].entries.pop_back();
  CHECK(only_finding(align(trace, annotations(text), {})).message ==
        "experts.weight param, iteration 0: not there: [1:2] of rank 3 (ep=1, edp=1)");
}

TEST_CASE("axes of two factorings in one rule are refused, with the line") {
  const Trace trace = mesh_trace("tp=2,dp=2,pp=2/ep=2,edp=2,pp=2", 8);
  CHECK(error_of(trace, "x:\n  tp_dim: 0\n  ep_dim: 1") ==
        "gpt.yaml:3: 'x': 'tp' and 'ep' are axes of two factorings of the ranks, tp=2,dp=2,pp=2/ep=2,edp=2,pp=2; "
        "expected those of one");
  CHECK(error_of(trace, "x: {pp_dim: 0, ep_dim: 1, edp: partial}") == "");
  CHECK(error_of(mesh_trace("tp=2,pp=2/ep=2,edp=2", 4), "parallelism: {pipeline: {layers: layers}}") ==
        "gpt.yaml:1: 'parallelism': pipeline: axis 'pp' is not in all factorings of the ranks, tp=2,pp=2/ep=2,edp=2; "
        "expected it in each");
}

TEST_CASE("two ranks at one place of a further factoring are refused") {
  Trace trace = mesh_trace("tp=2,dp=2/ep=2,edp=2", 4);
  trace.ranks[3].coordinates["ep"] = 0;
  CHECK(error_of(trace, "") == "trace: ranks 2 and 3 have the same coordinates [0, 1]; expected each place once");
}

TEST_CASE("local experts become global ones, within layers that do") {
  // Two stages of a layer each; on each stage ranks (ep 0, ep 1), two experts a rank.
  Trace trace = mesh_trace("dp=2,pp=2/etp=1,ep=2,edp=1,pp=2", 4);
  Trace reference = mesh_trace("", 1);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (std::int64_t expert = 0; expert < 4; ++expert) {
      const std::vector<float> value = {static_cast<float>(layer * 4 + expert + 1)};
      const auto rank = static_cast<std::size_t>(layer * 2 + expert / 2);
      add_tensor(trace, rank, expert_id(Kind::kParam, "layers.0", expert % 2), {1}, value);
      add_tensor(reference, 0, expert_id(Kind::kParam, "layers." + std::to_string(layer), expert), {1}, value);
    }
  }
  const std::string text = kExpertWeight +
                           ": {etp_dim: 0}\nparallelism:\n  pipeline: {layers: layers}\n"
                           "  experts: {layers: mlp.experts.local_experts}";
  CHECK(checked(reference, trace, text).same());

  // Three experts where the reference has two for this rank: the third is the other rank's first.
  add_tensor(trace, 0, expert_id(Kind::kParam, "layers.0", 2), {1}, {9});
  const Report report = checked(reference, trace, text);
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].message ==
        "layers.0.mlp.experts.local_experts.2.fc1.weight param, iteration 0: an expert belongs to one part of the "
        "ranks, this one is on ep=0 (rank 0) and ep=1 (rank 1)");

  // An expert that no rank has.
  trace.ranks[0].entries.pop_back();
  trace.ranks[3].entries.pop_back();
  CHECK(findings_in(checked(reference, trace, text)) ==
        std::vector<std::string>{"layers.1.mlp.experts.local_experts.3.fc1.weight param: missing-in-candidate"});
}

TEST_CASE("experts of a second model that no pipeline rule speaks of are numbered, too") {
  Trace trace = mesh_trace("ep=2", 2);
  for (const std::size_t rank : {0, 1}) {
    TensorId id = expert_id(Kind::kParam, "layers.0", 0);
    id.chunk = 1;
    add_tensor(trace, rank, id, {1});
  }
  CHECK(names_in(align(trace, annotations("parallelism: {experts: {layers: mlp.experts.local_experts}}"), {})) ==
        std::vector<std::string>{"model1.layers.0.mlp.experts.local_experts.0.fc1.weight",
                                 "model1.layers.0.mlp.experts.local_experts.1.fc1.weight"});
}

TEST_CASE("rules that cannot be an expert's are refused, with the line") {
  Trace trace = mesh_trace("tp=2/ep=2", 2);
  for (const std::size_t rank : {0, 1}) add_tensor(trace, rank, expert_id(Kind::kParam, "layers.0", 0), {1});
  const std::string experts = "\nparallelism: {experts: {layers: mlp.experts.local_experts}}";
  CHECK(error_of(trace, kExpertWeight + ": {ep: replicate}" + experts) ==
        "gpt.yaml:1: '" + kExpertWeight +
            "': layers.0.mlp.experts.local_experts.0.fc1.weight is an expert, on one rank of 'ep'; expected no 'ep' in "
            "its rule");
  CHECK(error_of(trace, "fc1.weight: {tp_dim: 0}" + experts) ==
        "gpt.yaml:1: 'fc1.weight': 'ep' and 'tp' are axes of two factorings of the ranks, tp=2/ep=2; expected those of "
        "one");
  CHECK(
      error_of(trace, "x: {output: {}}" + experts, {{{"layers.0.mlp.experts.local_experts", 3}}}) ==
      "gpt.yaml:2: 'parallelism': experts: 3 experts of layers.0.mlp.experts.local_experts do not divide into 2 parts "
      "along ep; expected a multiple of 2");
}

TEST_CASE("a gradient summed over micro-batches is the same however they are dealt out") {
  const std::string text = "fc.weight: {param_grad: {microbatch: partial}}";
  const Trace reference = summed("", {{1, 2, 3, 4}});
  CHECK(checked(reference, summed("dp=2", {{1, 3}, {2, 4}}), text).same());
  CHECK(checked(reference, summed("dp=4", {{5}, {5}, {0}, {0}}), text).same());
  // A micro-batch that was run twice, in place of another.
  const Report report = checked(reference, summed("dp=2", {{1, 3}, {1, 4}}), text);
  CHECK(findings_in(report) == std::vector<std::string>{"fc.weight param_grad: exceeds-tolerance"});
  CHECK(report.findings[0].id.microbatch == kNoMicrobatch);
  // Where the rule names the axis, its ranks are as it says.
  CHECK(checked(reference, summed("dp=2", {{4, 6}, {4, 6}}),
                "fc.weight: {param_grad: {dp: replicate, microbatch: partial}}")
            .same());
}

TEST_CASE("a sum runs over the axes of the tensor's own factoring") {
  const std::string text = "fc.weight: {param_grad: {edp: partial, ep: replicate, microbatch: partial}}";
  const Trace reference = summed("", {{4, 6}});
  // Ranks 0 and 1, and 2 and 3, are copies; 0 and 2 add up.
  CHECK(checked(reference, summed("tp=2,dp=2/ep=2,edp=2", {{1, 2}, {1, 2}, {3, 4}, {3, 4}}), text).same());
  CHECK(findings_in(checked(reference, summed("tp=2,dp=2/ep=2,edp=2", {{1, 2}, {1, 2}, {3, 4}, {4, 3}}), text)) ==
        std::vector<std::string>{});
  CHECK(findings_in(checked(reference, summed("tp=2,dp=2/ep=2,edp=2", {{1, 2}, {1, 2}, {3, 4}, {4, 4}}), text)) ==
        std::vector<std::string>{"fc.weight param_grad: replicas-disagree"});
}

TEST_CASE("a micro-batch in which a rank recorded none adds nothing, a rank without any is missing") {
  const std::string text = "fc.weight: {param_grad: {edp: partial, microbatch: partial}}";
  Trace trace = summed("dp=2/edp=2", {{1, 2}, {3}});
  CHECK(only_tensor(align(trace, annotations(text), {})).pieces().size() == 3);
  trace = summed("dp=2/edp=2", {{1}, {}});
  CHECK(only_finding(align(trace, annotations(text), {})).message ==
        "fc.weight param_grad, iteration 0: not there: [0:1] of rank 1 (edp=1)");
}

TEST_CASE("micro-batches that no rank ran are reported of sums, too") {
  const Annotations rules = annotations("fc.weight: {param_grad: {microbatch: partial}}");
  CHECK(align(summed("dp=2", {{1, 2}, {3}}), rules, {}).findings.empty());  // three of them
  const Alignment holes = align(summed("dp=2", {{1}, {2, 3, 4}}), rules, {});
  CHECK(only_finding(holes).message ==
        "iteration 0: 2 of 6 micro-batches (2, 4) were run by no rank: along dp the ranks ran 1, 3 of them");
}

TEST_CASE("on a factoring without the micro-batch axis, a micro-batch keeps its local number") {
  const Trace trace = summed("dp=2/edp=2", {{1}, {1}});
  const LogicalTensor tensor = only_tensor(align(trace, annotations("fc.weight: {edp: replicate}"), {}));
  CHECK(tensor.id.microbatch == 0);
  CHECK(tensor.pieces()[1].replica == 1);
}

TEST_SUITE_END();
