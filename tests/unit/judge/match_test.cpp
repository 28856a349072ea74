#include "judge/match.h"

#include <doctest/doctest.h>

#include <set>

#include "base/error.h"
#include "support/mesh_trace.h"

namespace {

using namespace ttrace;
using test::recomputed;
using Ranks = std::vector<std::int32_t>;
using Notes = std::vector<std::string>;

const TensorId kMlp = test::tensor_id(Kind::kOutput, "mlp", 0);
const TensorId kNorm = test::tensor_id(Kind::kOutput, "norm", 0);
const TensorId kWeight = test::tensor_id(Kind::kParam, "mlp.weight");

struct Held {
  TensorId id;
  Shape shape = {2};
  Dtype dtype = Dtype::kFloat32;
  Ranks ranks = {0};
};

Alignment holding(const std::vector<Held>& all) {
  Alignment alignment;
  for (const Held& held : all) {
    LogicalTensor tensor;
    tensor.id = held.id;
    tensor.shape = held.shape;
    tensor.dtype = held.dtype;
    tensor.order = alignment.tensors.size();
    std::vector<Piece> pieces;
    for (const std::int32_t rank : held.ranks) pieces.emplace_back().rank = rank;
    tensor.pieces = [pieces] { return pieces; };
    alignment.tensors.emplace(held.id, std::move(tensor));
  }
  return alignment;
}

Finding omission_of(const TensorId& id) {
  Finding finding;
  finding.id = id;
  finding.verdict = Verdict::kMissing;
  finding.reason = Reason::kOmission;
  finding.message = to_string(id) + ": elements [0:1] are on no rank";
  return finding;
}

Finding missing_rank() {
  Finding finding;
  finding.verdict = Verdict::kMissing;
  finding.reason = Reason::kMissingRank;
  finding.message = "rank 1 has no file";
  finding.ranks = {1};
  return finding;
}

void check_only_finding(const Matching& matching, Verdict verdict, Reason reason, const std::string& message,
                        const Ranks& ranks) {
  REQUIRE(matching.findings.size() == 1);
  const Finding& finding = matching.findings[0];
  CHECK(name_of(finding.verdict) == name_of(verdict));
  CHECK(name_of(finding.reason) == name_of(reason));
  CHECK(finding.message == message);
  CHECK(finding.ranks == ranks);
}

template <class Function>
std::string refusal_of(Function function) {
  try {
    function();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("tensors of one identity are paired, in order of it") {
  const Alignment reference = holding({{kNorm}, {kMlp}}), candidate = holding({{kMlp}, {kNorm}});
  const Matching matching = match(reference, candidate);
  REQUIRE(matching.pairs.size() == 2);
  CHECK(matching.pairs[0].reference == &reference.tensors.at(kMlp));
  CHECK(matching.pairs[0].candidate == &candidate.tensors.at(kMlp));
  CHECK(matching.pairs[1].reference == &reference.tensors.at(kNorm));
  CHECK(matching.findings.empty());
  CHECK(matching.notes.empty());
}

TEST_CASE("a tensor that the candidate lacks is missing") {
  const Alignment reference = holding({{kMlp}, {kNorm, {4, 2}, Dtype::kBFloat16}}), candidate = holding({{kMlp}});
  check_only_finding(match(reference, candidate), Verdict::kMissing, Reason::kMissingInCandidate,
                     "norm output, iteration 0, micro-batch 0: not in the candidate; the reference has bfloat16 [4, 2]",
                     {});
}

TEST_CASE("what is missing in a later micro-batch or iteration alone is reported") {
  for (const auto& [iteration, microbatch] : {std::pair{0, 1}, {0, 2}, {0, 7}, {3, 0}, {3, 5}}) {
    TensorId later = kNorm;
    later.iteration = iteration;
    later.microbatch = microbatch;
    const Alignment with = holding({{kMlp}, {kNorm}, {later}}), without = holding({{kMlp}, {kNorm}});
    CAPTURE(to_string(later));
    REQUIRE(match(with, without).findings.size() == 1);
    CHECK(match(with, without).findings[0].id == later);
    CHECK(match(with, without).findings[0].reason == Reason::kMissingInCandidate);
    CHECK(match(without, with).findings.at(0).reason == Reason::kMissingInReference);
  }
}

TEST_CASE("a tensor that the reference lacks is missing, and names the ranks that have it") {
  const Alignment reference = holding({{kMlp}});
  const TensorId again = test::tensor_id(Kind::kOutput, "mlp#1", 0);
  const Alignment candidate = holding({{kMlp}, {again, {2}, Dtype::kFloat32, {3, 1, 3}}});
  check_only_finding(match(reference, candidate), Verdict::kMissing, Reason::kMissingInReference,
                     "mlp#1 output, iteration 0, micro-batch 0: not in the reference; the candidate has float32 [2]",
                     {1, 3});
}

TEST_CASE("another shape fails and is not compared") {
  const Alignment reference = holding({{kMlp, {4, 2}}}), candidate = holding({{kMlp, {2, 4}, Dtype::kFloat32, {0, 1}}});
  const Matching matching = match(reference, candidate);
  check_only_finding(matching, Verdict::kFail, Reason::kShapeMismatch,
                     "mlp output, iteration 0, micro-batch 0: the reference has float32 [4, 2], the candidate "
                     "float32 [2, 4]",
                     {0, 1});
  CHECK(matching.pairs.empty());
}

TEST_CASE("another dtype is compared and mentioned, but for a parameter that is integer on one side alone") {
  const Alignment reference = holding({{kMlp}, {kNorm}, {kWeight}});
  const Alignment integer = holding({{kMlp}, {kNorm}, {kWeight, {2}, Dtype::kInt64}});
  check_only_finding(match(reference, integer), Verdict::kFail, Reason::kDtypeMismatch,
                     "mlp.weight param, iteration 0: the reference has float32 [2], the candidate int64 [2]", {0});
  const Matching counted = match(reference, holding({{kMlp, {2}, Dtype::kInt64}, {kNorm}, {kWeight}}));
  CHECK(counted.findings.empty());
  CHECK(counted.pairs.size() == 3);
  CHECK(counted.notes == Notes{"float32 in the reference is int64 in the candidate: 1 tensor, such as mlp output, "
                               "iteration 0, micro-batch 0"});
  const Alignment half = holding({{kMlp, {2}, Dtype::kBFloat16}, {kNorm, {2}, Dtype::kBFloat16}, {kWeight}});
  const Matching matching = match(reference, half);
  CHECK(matching.findings.empty());
  CHECK(matching.pairs.size() == 3);
  CHECK(matching.notes == Notes{"float32 in the reference is bfloat16 in the candidate: 2 tensors, such as mlp output, "
                                "iteration 0, micro-batch 0"});
}

TEST_CASE("a value that a module returns on one side alone is waived beside what both return") {
  const auto returned = [](const char* name) { return Held{test::tensor_id(Kind::kOutput, name, 0)}; };
  const auto used = [](const char* name) { return Held{test::tensor_id(Kind::kGradOutput, name, 0)}; };
  const Alignment one = holding({returned("attn:0"), used("attn:0")});
  const Alignment two = holding({returned("attn:0"), used("attn:0"), returned("attn:1"), used("attn:1")});
  for (const auto& [reference, candidate] : {std::pair(&one, &two), {&two, &one}}) {
    const Matching matching = match(*reference, *candidate);
    CHECK(matching.findings.empty());
    CHECK(matching.waived == 2);
    CHECK(matching.notes ==
          Notes{"waived: 2 values that modules return on one side alone, beside what both return: attn:1"});
  }
  const auto missing = [&](const Held& more) {
    return match(one, holding({returned("attn:0"), used("attn:0"), more})).findings.size();
  };
  CHECK(missing(returned("attn:1#1")) == 1);  // of another call
  CHECK(missing(returned("attn:mask")) == 1);
  CHECK(missing({returned("attn:1").id, {2}, Dtype::kInt64}) == 1);
  const Alignment model = holding({returned("(model):0"), used("(model):0")});
  CHECK(match(holding({returned("(model):0"), used("(model):0"), returned("(model):1")}), model).findings.size() == 1);
  CHECK(match(holding({returned("a:0"), returned("a:1")}), holding({returned("a:0")})).findings.size() == 1);
}

TEST_CASE("a number of an iteration that the candidate alone has is waived and named; one that it lacks is missing") {
  const Held norm{test::tensor_id(Kind::kScalar, "grad_norm"), {}}, output{test::tensor_id(Kind::kOutput, "mlp", 0)};
  const Matching more = match(holding({output}), holding({output, norm}));
  CHECK(more.findings.empty());
  CHECK(more.waived == 1);
  CHECK(more.notes == Notes{"waived: 1 number of an iteration that the candidate alone has: grad_norm"});
  CHECK(match(holding({output, norm}), holding({output})).findings.size() == 1);
  const Held loss{test::tensor_id(Kind::kScalar, "loss", 0), {}};
  CHECK(match(holding({output}), holding({output, loss})).findings.size() == 1);  // of a micro-batch
  Held later = norm;  // of an iteration that the reference has no norm of, while it has one of another
  later.id.iteration = 1;
  CHECK(match(holding({output, norm}), holding({output, norm, later})).findings.size() == 1);
}

TEST_CASE("a parameter's tensor that is narrower than the reference's fails, unless it is declared") {
  const TensorId gradient{.kind = Kind::kMainGrad, .name = "mlp.weight"};
  const Alignment wide = holding({{gradient}}), narrow = holding({{gradient, {2}, Dtype::kBFloat16}});
  const Matching matching = match(wide, narrow);
  CHECK(matching.pairs.size() == 1);  // its values are compared all the same
  check_only_finding(matching, Verdict::kFail, Reason::kDtypeMismatch,
                     "mlp.weight main_grad, iteration 0: the reference has float32, the candidate bfloat16, which is "
                     "narrower; where that is meant, write `parallelism: {narrower: [main_grad]}` in the annotations",
                     {0});
  CHECK(match(wide, narrow, {Kind::kMainGrad}).findings.empty());
  CHECK(match(narrow, wide).findings.empty());
}

TEST_CASE("a recomputed forward is held against the reference's forward and the candidate's own") {
  const Alignment reference = holding({{kMlp}}), candidate = holding({{kMlp}, {recomputed(kMlp)}});
  const Matching matching = match(reference, candidate);
  REQUIRE(matching.pairs.size() == 2);
  CHECK(matching.pairs[1].reference == &reference.tensors.at(kMlp));
  CHECK(matching.pairs[1].candidate == &candidate.tensors.at(recomputed(kMlp)));
  REQUIRE(matching.recomputed.size() == 1);
  CHECK(matching.recomputed[0].reference == &candidate.tensors.at(kMlp));
  CHECK(matching.recomputed[0].candidate == &candidate.tensors.at(recomputed(kMlp)));
}

TEST_CASE("a recomputed forward of the reference is preferred to its first forward") {
  const Alignment reference = holding({{kMlp}, {recomputed(kMlp)}}), candidate = holding({{kMlp}, {recomputed(kMlp)}});
  const Matching matching = match(reference, candidate);
  REQUIRE(matching.pairs.size() == 2);
  CHECK(matching.pairs[1].reference == &reference.tensors.at(recomputed(kMlp)));
}

TEST_CASE("what only the reference recomputes is waived, if the candidate has the forward") {
  const Alignment reference = holding({{kMlp}, {recomputed(kMlp)}, {kNorm}});
  const Matching waived = match(reference, holding({{kMlp}, {kNorm}}));
  CHECK(waived.findings.empty());
  CHECK(waived.waived == 1);
  CHECK(waived.notes == Notes{"waived: 1 tensor that the reference recomputed and the candidate did not; their first "
                              "forward is compared"});
  const Matching missing = match(reference, holding({{kNorm}}));
  CHECK(missing.findings.size() == 2);
  CHECK(missing.waived == 0);
}

TEST_CASE("a recomputation of another shape than the first forward fails") {
  const Alignment reference = holding({{kMlp}});
  const Alignment candidate = holding({{kMlp}, {recomputed(kMlp), {3}}});
  const Matching matching = match(reference, candidate);
  REQUIRE(matching.findings.size() == 2);
  CHECK(matching.findings[1].message ==
        "mlp output, iteration 0, micro-batch 0, recompute: the candidate's first forward has float32 [2], its "
        "recomputation float32 [3]");
  CHECK(matching.recomputed.empty());
}

TEST_CASE("a tensor that the candidate holds in part is not missing a second time") {
  const Alignment reference = holding({{kMlp}, {kNorm}});
  Alignment candidate = holding({{kMlp}});
  candidate.findings = {omission_of(kNorm)};
  check_only_finding(match(reference, candidate), Verdict::kMissing, Reason::kOmission,
                     "norm output, iteration 0, micro-batch 0: elements [0:1] are on no rank", {});
}

namespace {

void say_not_seen(Alignment& alignment, const std::string& module) {
  alignment.not_seen.add_module({"compiled", {Kind::kOutput}, {0}, 0, {}, {}}, module);
}

}  // namespace

TEST_CASE("a tensor that one side says it could not record is not seen, and not missing") {
  Alignment reference = holding({{kMlp}, {kNorm}}), candidate = holding({{kMlp}});
  say_not_seen(candidate, "norm");
  const Matching matching = match(reference, candidate);
  check_only_finding(matching, Verdict::kNotSeen, Reason::kNotSeenInCandidate,
                     "norm output, iteration 0, micro-batch 0: not seen in the candidate: compiled; the reference has "
                     "float32 [2]",
                     {});
  CHECK(matching.notes == Notes{"not seen in the candidate: compiled: 1 tensor, such as norm output, iteration 0, "
                                "micro-batch 0"});
  say_not_seen(reference, "mlp");
  CHECK(match(reference, candidate).pairs.size() == 1);  // what both hold is compared, whatever they say
}

TEST_CASE("a tensor that only the candidate holds is not seen where the reference says that it could not record it") {
  Alignment reference = holding({{kMlp}});
  const Alignment candidate = holding({{kMlp}, {kNorm}});
  say_not_seen(reference, "norm");
  check_only_finding(match(reference, candidate), Verdict::kNotSeen, Reason::kNotSeenInReference,
                     "norm output, iteration 0, micro-batch 0: not seen in the reference: compiled; the candidate has "
                     "float32 [2]",
                     {0});
}

TEST_CASE("the other side's statement does not excuse a tensor that is not there") {
  Alignment reference = holding({{kMlp}, {kNorm}});
  say_not_seen(reference, "norm");
  check_only_finding(match(reference, holding({{kMlp}})), Verdict::kMissing, Reason::kMissingInCandidate,
                     "norm output, iteration 0, micro-batch 0: not in the candidate; the reference has float32 [2]",
                     {});
}

TEST_CASE("a tensor of which some ranks could not record their part is not seen") {
  Alignment reference = holding({{kMlp}, {kNorm}}), candidate = holding({{kMlp}});
  candidate.findings = {omission_of(kNorm)};
  say_not_seen(candidate, "norm");
  check_only_finding(match(reference, candidate), Verdict::kNotSeen, Reason::kNotSeenInCandidate,
                     "norm output, iteration 0, micro-batch 0: not seen by all ranks of the candidate: compiled", {});
  reference = holding({{kMlp}});
  reference.findings = {omission_of(kNorm)};
  say_not_seen(reference, "norm");
  CHECK(match(reference, candidate).findings.size() == 1);
  check_only_finding(match(reference, holding({{kMlp}})), Verdict::kNotSeen, Reason::kNotSeenInReference,
                     "norm output, iteration 0, micro-batch 0: not seen by all ranks of the reference: compiled", {});
}

TEST_CASE("what a side does not hold by design is not recorded, what it holds in part is an omission") {
  NotSeen statement;
  statement.reason = "imported";
  statement.everything = true;
  const Alignment whole = holding({{kMlp}, {kNorm}});
  Alignment part = holding({{kMlp}});
  part.not_seen.add_everything(statement);
  const Matching matching = match(whole, part);
  check_only_finding(matching, Verdict::kNotSeen, Reason::kNotRecordedInCandidate,
                     "norm output, iteration 0, micro-batch 0: not recorded in the candidate, which holds less by "
                     "design; the reference has float32 [2]",
                     {});
  CHECK(matching.notes.empty());
  CHECK(matching.partial ==
        "the candidate holds less by design (imported): of the reference, 1 tensor not recorded in it: 1 output");
  CHECK(match(part, whole).findings.at(0).reason == Reason::kNotRecordedInReference);
  part.findings = {omission_of(kNorm)};
  CHECK(match(whole, part).findings.at(0).reason == Reason::kOmission);
  CHECK(match(whole, holding({{kMlp}})).findings.at(0).verdict == Verdict::kMissing);
}

TEST_CASE("every tensor of either side is accounted for once") {
  const TensorId only_there = test::tensor_id(Kind::kOutput, "extra", 0), lost = test::tensor_id(Kind::kOutput, "z", 0),
                 cut = test::tensor_id(Kind::kOutput, "cut", 0), wide = test::tensor_id(Kind::kOutput, "wide", 0);
  const Alignment reference = holding({{kMlp}, {kNorm}, {recomputed(kNorm)}, {lost}, {cut}, {wide, {4}}, {kWeight}});
  Alignment candidate = holding({{kMlp}, {recomputed(kMlp)}, {kNorm}, {only_there}, {wide}, {kWeight}});
  candidate.findings = {missing_rank(), omission_of(cut)};
  const Matching matching = match(reference, candidate);

  std::multiset<TensorId> accounted;
  for (const TensorPair& pair : matching.pairs) accounted.insert(pair.candidate->id);
  for (const Finding& finding : matching.findings) {
    if (!finding.id.name.empty()) accounted.insert(finding.id);
  }
  CHECK(accounted == std::multiset<TensorId>{kMlp, recomputed(kMlp), kNorm, lost, cut, wide, kWeight});
  CHECK(matching.waived == 2);  // a recomputation, and `only_there`, of a module that the reference does not have
  CHECK(matching.findings.size() == 4);  // with the one about a rank
}

TEST_CASE("a model of another size is said to be one, unless some parameter fits") {
  const TensorId bias = test::tensor_id(Kind::kParam, "mlp.bias");
  const Alignment reference = holding({{kMlp}, {kWeight, {4, 2}}, {bias, {4}}});
  CHECK(match(reference, holding({{kMlp}, {kWeight, {8, 2}}, {bias, {8}}})).notes ==
        Notes{"every parameter has another shape than in the reference (2 of them): a model of another size, or "
              "annotations that do not say how it is split"});
  CHECK(match(reference, holding({{kMlp}, {kWeight, {8, 2}}, {bias, {4}}})).notes.empty());
}

TEST_CASE("traces without a tensor in common are refused") {
  TensorId later = kNorm;
  later.iteration = 3;
  const Alignment reference = holding({{kMlp}, {kNorm}}), candidate = holding({{later}}), none;
  CHECK(refusal_of([&] { match(reference, candidate); }) ==
        "reference and candidate: no tensor in common: the reference holds 2 tensors of iteration 0, micro-batch 0, "
        "such as mlp output, iteration 0, micro-batch 0; the candidate holds 1 tensor of iteration 3, micro-batch 0, "
        "such as norm output, iteration 3, micro-batch 0; expected two runs of one model, with the same names and "
        "iterations");
  // A candidate that holds nothing lacks every tensor; that is no refusal.
  CHECK(match(reference, none).findings.size() == 2);
  CHECK(match(none, holding({{kWeight}})).findings.at(0).reason == Reason::kMissingInReference);
}

TEST_CASE("a restriction by name keeps findings about ranks, and is refused where it leaves no tensor") {
  Alignment reference = holding({{kMlp}, {kNorm}}), candidate = holding({{kMlp}});
  candidate.findings = {missing_rank(), omission_of(kNorm)};
  Alignment reference_only = reference, candidate_only = candidate;
  keep_only(reference_only, candidate_only, "mlp");
  CHECK(reference_only.tensors.size() == 1);
  CHECK(reference_only.tensors.contains(kMlp));
  REQUIRE(candidate_only.findings.size() == 1);
  CHECK(candidate_only.findings[0].reason == Reason::kMissingRank);
  CHECK(refusal_of([&] { keep_only(reference, candidate, "router"); }) ==
        "--only 'router': no tensor's name matches; expected a name, what follows one of its dots, or a glob");
}
