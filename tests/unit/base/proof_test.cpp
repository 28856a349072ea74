#include "report/proof.h"

#include <doctest/doctest.h>

#include "base/outcome.h"
#include "support/reports.h"

using namespace ttrace;

namespace {

KindProof proof(std::int64_t proved, std::int64_t compared, Reason reason = Reason::kNoise) {
  KindProof proof{compared, proved, {}};
  if (proved < compared) proof.others[std::string(name_of(reason))] = compared - proved;
  return proof;
}

}  // namespace

TEST_SUITE_BEGIN("base");

TEST_CASE("half of what was compared of a kind must prove something") {
  CHECK(unproved_kinds({{Kind::kOutput, proof(2, 4)}}).empty());
  CHECK(unproved_kinds({{Kind::kOutput, proof(2, 5)}}) == std::set{Kind::kOutput});
  CHECK(unproved_kinds({{Kind::kOutput, proof(9, 9)}, {Kind::kMainGrad, proof(0, 1)}}) == std::set{Kind::kMainGrad});
  CHECK(unproved_kinds({{Kind::kOutput, proof(0, 0)}}).empty());
}

TEST_CASE("a loss may be noise where the gradients are proved, and is no other kind") {
  const KindProof noise = proof(0, 1), most = proof(4, 5);
  CHECK(unproved_kinds({{Kind::kMainGrad, most}, {Kind::kScalar, noise}}).empty());
  CHECK(unproved_kinds({{Kind::kMainGrad, most}, {Kind::kScalar, proof(0, 1, Reason::kAllZero)}}) ==
        std::set{Kind::kScalar});
  CHECK(unproved_kinds({{Kind::kMainGrad, most}, {Kind::kGradOutput, noise}}) == std::set{Kind::kGradOutput});
  CHECK(unproved_kinds({{Kind::kOutput, most}, {Kind::kScalar, noise}}) == std::set{Kind::kScalar});
}

TEST_CASE("an optimizer's step may be noise where gradient and parameter around it are proved") {
  const KindProof most = proof(4, 5), none = proof(0, 5);
  const auto unproved = [&](const KindProof& gradient, const KindProof& after) {
    return unproved_kinds({{Kind::kMainGrad, gradient}, {Kind::kParamDelta, none}, {Kind::kParamAfter, after}});
  };
  CHECK(unproved(most, most).empty());
  CHECK(unproved(none, most) == std::set{Kind::kMainGrad, Kind::kParamDelta});
  CHECK(unproved(most, none) == std::set{Kind::kParamDelta, Kind::kParamAfter});
  CHECK(unproved_kinds({{Kind::kParamDelta, none}}) == std::set{Kind::kParamDelta});
}

TEST_CASE("initial parameters that are zero do not count, unless there are no others") {
  CHECK(unproved_kinds({{Kind::kParam, proof(1, 9, Reason::kAllZero)}}).empty());
  CHECK(unproved_kinds({{Kind::kParam, proof(1, 9, Reason::kNoise)}}) == std::set{Kind::kParam});
  CHECK(unproved_kinds({{Kind::kParam, proof(0, 9, Reason::kAllZero)}}) == std::set{Kind::kParam});
  CHECK(unproved_kinds({{Kind::kMainGrad, proof(1, 9, Reason::kAllZero)}}) == std::set{Kind::kMainGrad});
}

TEST_CASE("a run is not the same where a family has gradients of zero, or an optimizer took no step") {
  Report report = test::report_of({}, 3);
  report.proof.by_kind = Proofs{{Kind::kOutput, proof(3, 3)}};
  Report idle = report;
  idle.proof.zero_gradients = ZeroGradients{{"layers.#.lora_A.weight"}, 0, 1};
  CHECK(idle.verdict() == RunVerdict::kCouldNotLook);
  CHECK(describe_lack_of_proof(idle) ==
        "nothing is proved of layers.#.lora_A.weight, whose gradients are zero on both sides in all that was recorded; "
        "expected iterations in which they are not: --iterations 0-2");
  report.proof.unstepped = "the reference's SGD of 6 parameters";
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  CHECK(
      describe_lack_of_proof(report) ==
      "nothing is proved of what these optimizers train, which took no step in all that was recorded: the reference's "
      "SGD of 6 parameters; expected iterations in which each steps (--iterations)");
}

TEST_CASE("what an optimizer holds may be zero, all of it") {
  CHECK(unproved_kinds({{Kind::kMaster, proof(1, 9, Reason::kAllZero)}}).empty());
  CHECK(unproved_kinds({{Kind::kExpAvg, proof(0, 9, Reason::kAllZero)}}).empty());
  CHECK(unproved_kinds({{Kind::kExpAvg, proof(0, 9, Reason::kNoise)}}) == std::set{Kind::kExpAvg});
}

TEST_CASE("a run of which nothing was proved could not be judged, and one with something wrong is different") {
  Report report = test::report_of({}, 3);
  report.proof.by_kind = Proofs{{Kind::kOutput, proof(3, 3)}};
  CHECK(report.verdict() == RunVerdict::kSame);
  report.proof.by_kind = Proofs{};
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  report.findings = {test::wrong("mlp")};
  CHECK(report.verdict() == RunVerdict::kDifferent);
}

TEST_CASE("a loss that is finite on neither side leaves a run without proof; another scalar does not") {
  for (const auto& [name, verdict] : {std::pair("loss", RunVerdict::kCouldNotLook), {"grad_norm", RunVerdict::kSame}}) {
    Finding empty = test::finding(test::tensor_id(Kind::kScalar, name), Verdict::kUntrusted, Reason::kEmpty, "NaN");
    empty.floating = true;
    Report report = test::report_of({empty}, 3);
    report.proof.by_kind = Proofs{{Kind::kScalar, proof(1, 2)}};
    CHECK(report.verdict() == verdict);
  }
}
