#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "base/finding.h"
#include "support/mesh_trace.h"

namespace {

using namespace ttrace;

Finding at(TensorId id, std::uint64_t order) {
  Finding finding;
  finding.id = std::move(id);
  finding.verdict = Verdict::kFail;
  finding.reason = Reason::kExceedsTolerance;
  finding.order = order;
  return finding;
}

Finding at(Kind kind, const std::string& name, std::uint64_t order) {
  return at(test::tensor_id(kind, name, 0), order);
}

Finding of_rank(Reason reason, std::vector<std::int32_t> ranks) {
  Finding finding;
  finding.verdict = Verdict::kMissing;
  finding.reason = reason;
  finding.ranks = std::move(ranks);
  return finding;
}

// Strictly: each before all that follow it, and none before one that it follows.
void check_order(const std::vector<Finding>& findings) {
  for (std::size_t i = 0; i < findings.size(); ++i) {
    CHECK_FALSE(executes_before(findings[i], findings[i]));
    for (std::size_t j = i + 1; j < findings.size(); ++j) {
      CAPTURE(i);
      CAPTURE(j);
      CHECK(executes_before(findings[i], findings[j]));
      CHECK_FALSE(executes_before(findings[j], findings[i]));
    }
  }
}

Finding measured(Finding finding, double square) {
  finding.difference.emplace();
  finding.difference->reference_square = 1;
  finding.difference->difference_square = square;
  return finding;
}

}  // namespace

TEST_SUITE_BEGIN("base");

TEST_CASE("a small error early in backward comes before a larger one later in backward") {
  check_order({measured(at(Kind::kGradInput, "decoder.layers.1.mlp", 50), 1e-4),
               measured(at(Kind::kGradInput, "decoder.layers.0.mlp", 60), 1e4)});
}

TEST_CASE("the phases of an iteration come in the order in which they feed each other") {
  TensorId recomputed = test::tensor_id(Kind::kOutput, "mlp", 0);
  recomputed.pass = Pass::kRecompute;
  // Each is recorded before those it precedes here, so that only the phase can tell.
  check_order({at(Kind::kParam, "w", 20), at(Kind::kOutput, "mlp", 19), at(Kind::kScalar, "lm_loss", 18),
               at(recomputed, 17), at(Kind::kGradOutput, "mlp", 16), at(Kind::kParamGrad, "w", 15),
               at(Kind::kMainGrad, "w", 14), at(test::tensor_id(Kind::kScalar, "grad_norm"), 13),
               at(Kind::kParamDelta, "w", 12), at(Kind::kParamAfter, "w", 11)});
}

TEST_CASE("inputs and outputs, and the gradients of both, come in recorded order") {
  check_order({at(Kind::kInput, "b", 1), at(Kind::kOutput, "b", 2), at(Kind::kInput, "a", 3), at(Kind::kOutput, "a", 4),
               at(Kind::kGradOutput, "z", 5), at(Kind::kGradInput, "z", 6), at(Kind::kGradOutput, "y", 7)});
}

TEST_CASE("a scalar of a micro-batch and one that ends in loss come before backward, others after it") {
  const TensorId loss = test::tensor_id(Kind::kScalar, "loss"), norm = test::tensor_id(Kind::kScalar, "loss_scale");
  check_order({at(Kind::kScalar, "tokens", 4), at(loss, 5), at(Kind::kGradOutput, "mlp", 1), at(norm, 0)});
}

TEST_CASE("an earlier iteration comes first, whatever its phase") {
  TensorId next = test::tensor_id(Kind::kParam, "w");
  next.iteration = 1;
  check_order({at(Kind::kParamAfter, "w", 90), at(next, 0)});
}

TEST_CASE("a step that makes its iteration another one comes before all that is of that iteration") {
  Finding step = at(Kind::kParamDelta, "w", 90);
  step.reason = Reason::kStepCountDiffers;
  step.id.iteration = 1;
  TensorId next = test::tensor_id(Kind::kInput, "b", 0);
  next.iteration = 1;
  check_order({at(Kind::kParamAfter, "w", 91), step, at(next, 0)});
}

TEST_CASE("a missing layer comes before the errors that follow from it") {
  Finding missing = at(Kind::kOutput, "decoder.layers.1", 4);
  missing.verdict = Verdict::kMissing;
  missing.reason = Reason::kMissingInCandidate;
  check_order({at(Kind::kOutput, "decoder.layers.0", 3), missing, at(Kind::kOutput, "decoder.layers.2", 5)});
}

TEST_CASE("what only the candidate holds comes last within its phase") {
  Finding extra = at(Kind::kOutput, "extra", 0);
  extra.only_in_candidate = true;
  check_order({at(Kind::kOutput, "mlp", 9), extra, at(Kind::kGradOutput, "mlp", 1)});
}

TEST_CASE("findings about ranks come before all tensors, by reason and rank") {
  check_order({of_rank(Reason::kDuplicateRank, {3}), of_rank(Reason::kMissingRank, {0}),
               of_rank(Reason::kMissingRank, {1}), of_rank(Reason::kIncompleteRank, {0}), at(Kind::kParam, "w", 0)});
}

TEST_CASE("equal orders are told apart by identity and then by reason, so that the report is deterministic") {
  Finding twice = at(Kind::kOutput, "b", 3);
  twice.reason = Reason::kRecomputeDiffers;
  check_order({at(Kind::kOutput, "a", 3), at(Kind::kOutput, "b", 3), twice});
}

TEST_CASE("each verdict and each reason has a word of its own") {
  std::set<std::string_view> words;
  for (int i = 0; i <= static_cast<int>(Reason::kOtherMicrobatches); ++i) words.insert(name_of(static_cast<Reason>(i)));
  CHECK(words.size() == 44);
  CHECK(name_of(Reason::kExceedsTolerance) == "exceeds-tolerance");
  CHECK(name_of(Reason::kOmission) == "omission");
  CHECK(name_of(Reason::kEmpty) == "empty");
  CHECK(name_of(Verdict::kPass) == "pass");
  CHECK(name_of(Verdict::kFail) == "fail");
  CHECK(name_of(Verdict::kUntrusted) == "untrusted");
  CHECK(name_of(Verdict::kMissing) == "missing");
}
