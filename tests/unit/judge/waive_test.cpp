#include <doctest/doctest.h>

#include "judge/judge.h"
#include "support/mesh_trace.h"
#include "support/reports.h"

namespace {

using namespace ttrace;

Waiver waiver(const std::string& pattern, std::set<Kind> kinds = {}) {
  Waiver waiver;
  waiver.pattern = pattern;
  waiver.kinds = std::move(kinds);
  waiver.reason = "known";
  return waiver;
}

Report summarize(const std::vector<Waiver>& waivers, std::vector<Finding> findings) {
  Report report;
  apply_waivers(waivers, findings, report);
  summarize_findings(std::move(findings), report);
  return report;
}

Finding passed(const std::string& name) {
  return test::finding(test::tensor_id(Kind::kOutput, name, 1), Verdict::kPass, {}, "");
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a waived tensor does not fail, is listed, and coverage still adds up") {
  const Report report = summarize({waiver("mlp")}, {passed("attn"), test::wrong("0.mlp"), test::missing("1.mlp")});
  CHECK(report.same());
  CHECK(report.totals.counts.compared == 1);
  CHECK(report.totals.counts.missing == 0);
  CHECK(report.totals.waived == 2);
  REQUIRE(report.waived_findings.size() == 2);
  CHECK(report.waived_findings[0].finding.id.name == "0.mlp");
  CHECK(report.waived_findings[0].waiver.reason == "known");
}

TEST_CASE("a waiver accepts what it names, and nothing else") {
  CHECK(!summarize({waiver("attn")}, {passed("attn"), test::wrong("mlp")}).same());
  CHECK(!summarize({waiver("mlp", {Kind::kMainGrad})}, {passed("attn"), test::wrong("mlp")}).same());
  CHECK(summarize({waiver("mlp", {Kind::kMainGrad, Kind::kOutput})}, {passed("attn"), test::wrong("mlp")}).same());
  // The finding about a missing rank names no tensor, so no waiver accepts it.
  const Report rank = summarize({waiver("**"), waiver("*")}, {passed("attn"), test::missing_rank()});
  CHECK(!rank.same());
  CHECK(rank.totals.waived == 0);
}

TEST_CASE("what passed, or proves little, needs no waiver and stays as it is") {
  const Report report = summarize({waiver("**")}, {passed("attn"), test::untrusted("bias")});
  CHECK(report.totals.counts.pass == 1);
  CHECK(report.totals.counts.untrusted == 1);
  CHECK(report.totals.waived == 0);
  CHECK(!summarize({waiver("**")}, {test::wrong("mlp"), test::wrong("attn")}).same());
}

TEST_CASE("a tensor counts once: all that is said of it is waived together") {
  Finding recomputed = test::wrong("mlp");
  recomputed.reason = Reason::kRecomputeDiffers;
  const Report report = summarize({waiver("mlp")}, {passed("attn"), passed("mlp"), recomputed});
  CHECK(report.totals.counts.compared == 1);
  CHECK(report.totals.waived == 1);
  REQUIRE(report.waived_findings.size() == 1);
  CHECK(report.waived_findings[0].finding.reason == Reason::kRecomputeDiffers);
}

TEST_SUITE_END();
