#include "base/outcome.h"

#include <doctest/doctest.h>

#include "support/reports.h"

using namespace ttrace;
using test::finding;
using test::report_of;
using test::tensor_id;

namespace {

Finding not_seen(Kind kind, const std::string& name) {
  return finding(tensor_id(kind, name, 0), Verdict::kNotSeen, Reason::kNotSeenInCandidate, "compiled");
}

}  // namespace

TEST_SUITE_BEGIN("base");

TEST_CASE("a run of which something was not seen is the same if others of that kind passed") {
  Report report = report_of({not_seen(Kind::kOutput, "mlp")}, 1);
  CHECK(report.verdict() == RunVerdict::kSame);
  CHECK(report.totals.counts.not_seen == 1);
  CHECK(report.totals.counts.compared == 1);
  CHECK(report.totals.counts.missing == 0);
  report.strict = true;
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
}

TEST_CASE("nobody can hide all of a kind behind what was not seen") {
  const Report report = report_of({not_seen(Kind::kParamGrad, "mlp.weight")}, 5);
  CHECK(report.unseen_kinds() == std::set{Kind::kParamGrad});
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  CHECK(report_of({not_seen(Kind::kOutput, "mlp")}, 0).verdict() == RunVerdict::kCouldNotLook);
}

TEST_CASE("a kind that a side does not hold by design is not asked for") {
  Finding lack = not_seen(Kind::kParamGrad, "mlp.weight");
  lack.reason = Reason::kNotRecordedInCandidate;
  Report report = report_of({lack}, 5);
  CHECK(report.unseen_kinds().empty());
  CHECK(report.verdict() == RunVerdict::kSame);
  CHECK(report_of({lack}, 0).verdict() == RunVerdict::kCouldNotLook);
  CHECK(report_of({lack, not_seen(Kind::kMainGrad, "norm")}, 5).verdict() == RunVerdict::kCouldNotLook);
  report.strict = true;
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
}

TEST_CASE("what is wrong makes a run different, whatever else was not seen") {
  Report report = report_of({not_seen(Kind::kParamGrad, "mlp.weight"), test::missing("norm")}, 5);
  CHECK(report.verdict() == RunVerdict::kDifferent);
  CHECK(report.first_wrong() == &report.findings[1]);
  report = report_of({not_seen(Kind::kParamGrad, "mlp.weight"), test::wrong("norm")}, 5);
  CHECK(report.verdict() == RunVerdict::kDifferent);
}
