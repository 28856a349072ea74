#include "report/problem.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "report/render.h"
#include "support/reports.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

Report with_root(ModuleSource source) {
  Report report = report_of({wrong("mlp"), wrong("norm")}, 1);
  RootCause& root = report.explanation.roots.emplace_back();
  root.module = "mlp";
  root.sentence = "mlp, output: 100% wrong, twice: so it is.";
  root.diagnosis = Cause::kUniformFactor;
  root.examined = true;
  root.source = std::move(source);
  return report;
}

const CodeLine kOwn{"src/a,b.py", 106}, kLibrary{"/usr/lib/x.py", 17};

}  // namespace

TEST_SUITE_BEGIN("report");

TEST_CASE("GitHub is told the line of the repository, and nothing that ends the text of an annotation") {
  CHECK(to_github(with_root({kOwn, kLibrary})) ==
        "::error file=src/a%2Cb.py,line=106,title=ttrace%3A runs/candidate::mlp, output: 100%25 wrong, twice: so it "
        "is.%0Amlp output, iteration 0, micro-batch 1: rel_err 0.1, allowed 0.05\n");
}

TEST_CASE("a line of the repository goes before one of a library, and a library's is no place of an annotation") {
  CHECK(to_github(with_root({kLibrary, kOwn})).starts_with("::error file=src/a%2Cb.py,line=106,title="));
  CHECK(to_github(with_root({kLibrary, {}})).starts_with("::error title="));
  CHECK(to_github(with_root({})).starts_with("::error title="));
}

TEST_CASE("the same has no annotation, and what has no root cause has one") {
  CHECK(to_github(report_of({}, 3)).empty());
  CHECK(to_github(report_of({missing_rank()}, 1)) == "::error title=ttrace%3A runs/candidate::rank 2 has no file\n");
  CHECK(to_github(report_of({untrusted("w")}, 0)) ==
        "::error title=ttrace%3A runs/candidate::could-not-look: nothing trusted was compared\n");
}

TEST_CASE("a missing rank stands beside the root causes") {
  Report report = with_root({});
  report.findings.insert(report.findings.begin(), missing_rank());
  report.explanation.roots[0].finding = 1;
  CHECK(problems_of(report).size() == 2);
  CHECK(problems_of(report)[0].text == "rank 2 has no file");
}

TEST_CASE("names from traces are one line of an annotation") {
  Report report = with_root({CodeLine{"a\n::error::b", 1}, {}});
  report.runs.candidate = "c\n::error::d";
  report.explanation.roots[0].sentence = "e\n::error::f";
  report.findings[0].message = "\x1b[2J";
  const std::string text = to_github(report);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK(text.find('\x1b') == text.npos);
}

TEST_CASE("each candidate of a run has its annotations, and one that could not be checked has its reason") {
  RunReport run;
  run.candidates = {{"tp2", "", "", with_root({})}, {"dp2", "", "the command failed", {}}};
  const std::vector<Problem> problems = problems_of(run);
  REQUIRE(problems.size() == 2);
  CHECK((problems[0].who == "tp2" && problems[0].rule == "uniform-factor"));
  CHECK((problems[1].who == "dp2" && problems[1].text == "the command failed"));
}

TEST_CASE("SARIF calls an execution that could not look no success") {
  const auto run_of = [](const Report& report) { return nlohmann::json::parse(to_sarif(report)).at("runs").at(0); };
  const nlohmann::json unclear = run_of(report_of({untrusted("w")}, 0));
  CHECK(unclear.at("results").empty());
  CHECK(unclear.at("invocations").at(0).at("executionSuccessful") == false);
  CHECK(unclear.at("invocations").at(0).at("toolExecutionNotifications").size() == 1);
  const nlohmann::json different = run_of(with_root({kOwn, {}}));
  CHECK(different.at("results").at(0).at("ruleId") == "uniform-factor");
  CHECK(different.at("invocations").at(0).at("executionSuccessful") == true);
}
