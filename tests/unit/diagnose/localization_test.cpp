#include "diagnose/localization.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "judge/judge.h"
#include "support/reports.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("diagnose");

namespace {

// Reports wrong outputs of the modules `names`, in order of execution; those in `roots` are root causes.
Report report_with(const std::vector<std::string>& names, const std::vector<std::string>& roots) {
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < names.size(); ++i) {
    findings.push_back(wrong(names[i]));
    findings.back().order = i;
  }
  Report report = report_of(std::move(findings), 1);
  for (const std::string& root : roots) {
    const auto at = std::find(names.begin(), names.end(), root);
    RootCause& cause = report.explanation.roots.emplace_back();
    cause.finding = static_cast<std::size_t>(at - names.begin());
    cause.module = root;
  }
  return report;
}

std::vector<std::string> standings_after(Report first, const Report& second) {
  add_second_run(first, second);
  CHECK(first.explanation.wrong_in_second_run == second.totals.counts.fail);
  std::vector<std::string> texts;
  for (const RootCause& root : first.explanation.roots) {
    CHECK(first.findings[root.finding].id.name == root.module);
    texts.push_back((root.standing ? std::string(name_of(*root.standing)) : "") + " " + root.module);
  }
  return texts;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a root that is still wrong by itself is confirmed, one that is not has got its error from elsewhere") {
  const Report first = report_with({"a", "b", "c"}, {"a", "b"});
  CHECK(standings_after(first, report_with({"a"}, {"a"})) == Texts{"confirmed a", "moved b"});
  CHECK(standings_after(first, report_with({"a", "b"}, {"a", "b"})) == Texts{"confirmed a", "confirmed b"});
}

TEST_CASE("what was wrong in the wake of a root is found, in its place in the order of execution") {
  const Report first = report_with({"a", "b", "c"}, {"b"});
  CHECK(standings_after(first, report_with({"a", "b", "c"}, {"a", "b", "c"})) ==
        Texts{"found a", "confirmed b", "found c"});
}

TEST_CASE("what the program gives its model stays a root where right values after it make it a question") {
  const Report first = report_with({"(model)", "b", "loss"}, {"(model)"});
  Report second = report_with({"(model)", "loss"}, {"loss"});
  second.findings[0].verdict = Verdict::kUntrusted;
  second.findings[0].reason = Reason::kGuessedPlacement;
  recount(second);
  CHECK(standings_after(first, second) == Texts{"confirmed (model)", "found loss"});
}

TEST_CASE("what a run begins with is a root, though the second run begins with the reference's") {
  Report first = report_with({"norm.scale", "b"}, {"norm.scale"});
  first.findings[0].id.kind = Kind::kParam;
  CHECK(standings_after(first, report_with({"b"}, {"b"})) == Texts{"confirmed norm.scale", "found b"});
}

TEST_CASE("where nothing is wrong by itself all roots have moved") {
  CHECK(standings_after(report_with({"a", "b"}, {"a"}), report_with({}, {})) == Texts{"moved a"});
}

TEST_CASE("a diagnosis that only the error by itself allows is taken over") {
  Report first = report_with({"a", "b"}, {"a"}), second = report_with({"a"}, {"a"});
  second.explanation.roots[0].diagnosis = Cause::kZero;
  second.explanation.roots[0].sentence = "all zero";
  add_second_run(first, second);
  CHECK(first.explanation.roots[0].diagnosis == Cause::kZero);
  CHECK(first.explanation.roots[0].sentence == "all zero");
}

TEST_CASE("a second run is planned where modules or parameters are wrong, and not for what is missing") {
  CHECK(plan_second_run(report_with({"a"}, {"a"})).modules);
  CHECK_FALSE(plan_second_run(report_with({"a"}, {"a"})).parameters);
  Finding parameter = wrong("a.weight");
  parameter.id.kind = Kind::kParam;
  CHECK(plan_second_run(report_of({parameter}, 1)).parameters);
  CHECK(plan_second_run(report_of({parameter}, 1)).modules);
  const SecondRunPlan none = plan_second_run(report_of({missing("a"), missing_rank()}, 1));
  CHECK_FALSE(none.modules);
  CHECK(none.reason == "what differs is no module's input, output or gradient");
  parameter.id.kind = Kind::kParamAfter;
  CHECK_FALSE(plan_second_run(report_of({parameter}, 1)).modules);
  CHECK(plan_second_run(report_of({}, 1)).reason == "nothing differs");
  Report cut = report_with({"a"}, {"a"});
  cut.runs.cut_otherwise = true;
  CHECK_FALSE(plan_second_run(cut).modules);
}

TEST_SUITE_END();
