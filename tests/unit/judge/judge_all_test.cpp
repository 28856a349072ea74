#include <doctest/doctest.h>

#include "judge/judge.h"
#include "support/aligned.h"
#include "support/mesh_trace.h"

namespace {

using namespace ttrace;
using test::recomputed;

void add_tensor(Alignment& alignment, const TensorId& id) {
  LogicalTensor tensor;
  tensor.id = id;
  tensor.shape = {4};
  tensor.order = alignment.tensors.size();
  alignment.tensors.emplace(id, std::move(tensor));
}

Difference moved_by(double rel_err) {
  Difference difference;
  difference.elements = 4;
  difference.differing = rel_err > 0 ? 1 : 0;
  difference.reference_square = difference.candidate_square = 1;
  difference.difference_square = rel_err * rel_err;
  return difference;
}

TensorId output(const std::string& name, std::int32_t microbatch = 0, std::int32_t iteration = 0) {
  TensorId id = test::tensor_id(Kind::kOutput, name, microbatch);
  id.iteration = iteration;
  return id;
}

Report judge_responses(const Alignment& reference, const Alignment& candidate, const std::vector<double>& responses,
                       const ToleranceFile* tolerance = nullptr) {
  const Matching matching = match(reference, candidate);
  std::vector<Difference> differences;
  for (const double response : responses) differences.push_back(moved_by(response));
  return judge_all(reference, matching, differences, tolerance);
}

std::vector<std::string> names_of(const Report& report) {
  std::vector<std::string> names;
  for (const Finding& finding : report.findings) names.push_back(finding.id.name);
  return names;
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a report counts every tensor once and lists all but what passed, in order of execution") {
  Alignment reference, candidate;
  for (const char* name : {"d", "c", "b", "a"}) add_tensor(reference, output(name));
  add_tensor(reference, test::tensor_id(Kind::kGradInput, "a", 0));
  for (const char* name : {"a", "b", "d", "d#1"}) add_tensor(candidate, output(name));
  add_tensor(candidate, test::tensor_id(Kind::kGradInput, "a", 0));
  Finding rank;
  rank.verdict = Verdict::kMissing;
  rank.reason = Reason::kMissingRank;
  rank.ranks = {1};
  candidate.findings = {rank};
  ToleranceFile tolerance;
  tolerance.tensors[{Kind::kOutput, "a"}].allowed = 0.1;
  tolerance.tensors[{Kind::kOutput, "b"}].allowed = 2;
  tolerance.tensors[{Kind::kGradInput, "a"}].allowed = 0.1;

  // Pairs come by identity: the outputs a, b and d, then the gradient.
  const Report report = judge_responses(reference, candidate, {0.5, 0.5, 0, 0.9}, &tolerance);
  CHECK(report.totals.counts.pass == 1);
  CHECK(report.totals.counts.fail == 2);
  CHECK(report.totals.counts.untrusted == 1);
  CHECK(report.totals.counts.missing == 3);
  CHECK(report.totals.counts.compared == 4);
  CHECK(names_of(report) == std::vector<std::string>{"", "c", "b", "a", "d#1", "a"});
  CHECK(report.findings[4].only_in_candidate);
  CHECK(report.findings[5].id.kind == Kind::kGradInput);
  REQUIRE(report.first_wrong() != nullptr);
  CHECK(report.first_wrong()->reason == Reason::kMissingRank);
  CHECK_FALSE(report.same());
}

TEST_CASE("what a backward precedes comes after it, where the reference is one rank's") {
  Alignment reference, candidate;
  const auto id = [](Kind kind, std::int32_t microbatch) { return test::tensor_id(kind, "mlp", microbatch); };
  const std::vector<TensorId> in_turn = {id(Kind::kOutput, 0), id(Kind::kGradOutput, 0), id(Kind::kOutput, 1),
                                         id(Kind::kGradOutput, 1)};
  for (const TensorId& tensor : in_turn) {
    add_tensor(reference, tensor);
    add_tensor(candidate, tensor);
  }
  const auto order = [&] {
    const Report report = judge_responses(reference, candidate, {0.5, 0.5, 0.5, 0.5});
    std::vector<TensorId> ids;
    for (const Finding& finding : report.findings) ids.push_back(finding.id);
    return ids;
  };
  reference.of_one_rank = true;
  CHECK(order() == in_turn);
  // The orders of several ranks are of several clocks.
  reference.of_one_rank = false;
  CHECK(order() == std::vector<TensorId>{in_turn[0], in_turn[2], in_turn[1], in_turn[3]});
}

TEST_CASE("a loss behind a step comes after it, where no forward was recorded, as in a light iteration") {
  Alignment reference, candidate;
  reference.of_one_rank = true;
  const std::vector<TensorId> in_turn = {
      test::tensor_id(Kind::kScalar, "loss", 0),         test::tensor_id(Kind::kScalar, "loss", 1),
      test::tensor_id(Kind::kMainGrad, "discriminator"), test::tensor_id(Kind::kParamDelta, "discriminator"),
      test::tensor_id(Kind::kScalar, "loss", 2),         test::tensor_id(Kind::kMainGrad, "generator")};
  for (const TensorId& tensor : in_turn) {
    add_tensor(reference, tensor);
    add_tensor(candidate, tensor);
  }
  std::vector<TensorId> ids;
  const Report report = judge_responses(reference, candidate, std::vector<double>(in_turn.size(), 0.5));
  for (const Finding& finding : report.findings) ids.push_back(finding.id);
  CHECK(ids == in_turn);
}

TEST_CASE("two findings about one tensor count once, by the worse") {
  Alignment reference, candidate;
  add_tensor(reference, output("mlp"));
  add_tensor(candidate, output("mlp"));
  add_tensor(candidate, recomputed(output("mlp")));
  ToleranceFile tolerance;
  tolerance.tensors[{Kind::kOutput, "mlp"}].allowed = 0.1;
  // The forward and the recomputation both pass against the reference's forward, but differ from each other.
  const Report report = judge_responses(reference, candidate, {0.09, 0.09, 0.15}, &tolerance);
  CHECK(report.totals.counts.compared == 2);
  CHECK(report.totals.counts.pass == 1);
  CHECK(report.totals.counts.fail == 1);
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].reason == Reason::kRecomputeDiffers);
  const Counts& counts = report.totals.by_name.at({"mlp", Kind::kOutput});
  CHECK(counts.pass == 1);
  CHECK(counts.fail == 1);
}

TEST_CASE("a name's counts add up over micro-batches and iterations") {
  Alignment reference, candidate;
  for (const auto& id : {output("mlp", 0), output("mlp", 1), output("mlp", 0, 1), output("norm")}) {
    add_tensor(reference, id);
    add_tensor(candidate, id);
  }
  const Report report = judge_responses(reference, candidate, {0, 0, 0.5, 0});
  CHECK(report.totals.by_name.size() == 2);
  CHECK(report.totals.by_name.at({"mlp", Kind::kOutput}).compared == 3);
  CHECK(report.totals.by_name.at({"mlp", Kind::kOutput}).pass +
            report.totals.by_name.at({"norm", Kind::kOutput}).pass ==
        3);
  CHECK(report.totals.counts.fail == 1);
}

TEST_CASE("a micro-batch or an iteration of which a side has nothing is one group") {
  Alignment reference, candidate;
  for (const char* name : {"mlp", "norm"}) {
    add_tensor(reference, output(name, 0));
    add_tensor(candidate, output(name, 0));
    add_tensor(reference, output(name, 1));
    add_tensor(reference, output(name, 0, 1));
    add_tensor(reference, output(name, 1, 1));
    add_tensor(candidate, output(name, 0, 2));
  }
  const Report report = judge_responses(reference, candidate, {0, 0});
  REQUIRE(report.totals.missing_groups.size() == 3);
  CHECK(report.totals.missing_groups[0].iteration == 1);
  CHECK_FALSE(report.totals.missing_groups[0].microbatch.has_value());
  CHECK(report.totals.missing_groups[0].reason == Reason::kMissingInCandidate);
  CHECK(report.totals.missing_groups[0].tensors == 4);
  CHECK(report.totals.missing_groups[1].iteration == 2);
  CHECK(report.totals.missing_groups[1].reason == Reason::kMissingInReference);
  CHECK(report.totals.missing_groups[2].iteration == 0);
  CHECK(report.totals.missing_groups[2].microbatch == 1);
  CHECK(report.totals.missing_groups[2].tensors == 2);
  CHECK(report.findings.size() == 8);  // all of them, for programs
}

TEST_CASE("what is waived is counted, so that the tensors add up") {
  Alignment reference, candidate;
  add_tensor(reference, output("mlp"));
  add_tensor(reference, recomputed(output("mlp")));
  add_tensor(candidate, output("mlp"));
  const Report report = judge_responses(reference, candidate, {0});
  CHECK(report.totals.waived == 1);
  CHECK(report.totals.counts.compared + report.totals.counts.missing + report.totals.waived == 2);
  CHECK(report.same());
}

TEST_CASE("passing tensors with NaN at the same places, or with copies that differ, are mentioned") {
  Alignment reference, candidate;
  for (const char* name : {"mlp", "norm"}) {
    add_tensor(reference, output(name));
    add_tensor(candidate, output(name));
  }
  const Matching matching = match(reference, candidate);
  std::vector<Difference> differences = {moved_by(0), moved_by(0.01)};
  differences[0].reference_nan = differences[0].candidate_nan = 1;
  differences[1].replica_ranks = {1};
  differences[1].replica_square = 1e-6;
  ToleranceFile tolerance;
  tolerance.tensors[{Kind::kOutput, "norm"}].allowed = 0.1;
  const Report report = judge_all(reference, matching, differences, &tolerance);
  CHECK(report.same());
  CHECK(report.notes ==
        std::vector<std::string>{
            "1 tensor with NaN or Inf at the same places on both sides, judged by the other elements, such "
            "as mlp output, iteration 0, micro-batch 0",
            "1 tensor with copies on several ranks that differ, within what is allowed, such as norm output, "
            "iteration 0, micro-batch 0"});
}

TEST_CASE("the module that made a wrong gradient comes before the one whose output it belongs to") {
  const auto trace_with = [](float gradient) {
    Trace trace = test::mesh_trace("", 1);
    const auto add = [&](Kind kind, const std::string& name, float value) {
      test::add_tensor(trace, 0, test::tensor_id(kind, name, 0), {2}, {value, 1});
    };
    add(Kind::kOutput, "first", 3);
    add(Kind::kInput, "second", 3);  // the same tensor
    add(Kind::kOutput, "second", 4);
    add(Kind::kGradOutput, "second", 5);
    add(Kind::kGradOutput, "first", gradient);  // its hook was registered first
    add(Kind::kGradInput, "second", gradient);
    return trace;
  };
  const Report report = test::checked(trace_with(6), trace_with(7), "");
  CHECK(test::findings_in(report) ==
        std::vector<std::string>{"second grad_input: exceeds-tolerance", "first grad_output: exceeds-tolerance"});
}

TEST_CASE("a tensor that is zero in one iteration is no gap in the proof where a later one proves it") {
  for (const std::int32_t proved_in : {0, 1}) {
    Alignment reference, candidate;
    std::vector<Difference> differences;
    for (const std::int32_t iteration : {0, 1}) {
      for (Alignment* const side : {&reference, &candidate}) add_tensor(*side, output("zero", 0, iteration));
      differences.push_back(moved_by(0));
      if (iteration != proved_in) differences.back().reference_square = differences.back().candidate_square = 0;
    }
    ToleranceFile tolerance;
    tolerance.tensors[{Kind::kOutput, "zero"}].allowed = 0.1;
    const Report report = judge_all(reference, match(reference, candidate), differences, &tolerance);
    const KindProof& proof = report.proof.by_kind->at(Kind::kOutput);
    CHECK(proof.proved == 1);
    CHECK(proof.compared == (proved_in == 1 ? 1 : 2));
  }
}

TEST_CASE("a light iteration of which more than half proves nothing is noted") {
  const auto notes_with = [](double allowed) {
    Alignment reference, candidate;
    ToleranceFile tolerance;
    for (const char* name : {"a", "b", "c"}) {
      TensorId id = test::tensor_id(Kind::kMainGrad, name);
      id.iteration = 1;
      for (Alignment* const side : {&reference, &candidate}) {
        add_tensor(*side, id);
        side->tensors.at(id).light = true;
      }
      tolerance.tensors[{Kind::kMainGrad, name}].allowed = name[0] == 'a' ? 0.01 : allowed;
    }
    return judge_responses(reference, candidate, {0.001, 0.001, 0.001}, &tolerance).notes;
  };
  CHECK(notes_with(0.01).empty());
  const std::vector<std::string> notes = notes_with(2);
  REQUIRE(notes.size() == 1);
  CHECK(
      notes[0] ==
      "light iteration 1: 2 of 3 floating-point tensors prove nothing (2 noise): a mistake that shows there alone may "
      "not be seen");
}
