#include "report/run_report.h"

#include <doctest/doctest.h>

#include "report/junit.h"
#include "support/reports.h"

namespace {

using namespace ttrace;

CandidateReport candidate(const std::string& name, Report report) {
  return {name, "train " + name, "", std::move(report)};
}

CandidateReport same(const std::string& name) { return candidate(name, test::report_of({}, 3)); }
CandidateReport different(const std::string& name) { return candidate(name, test::report_of({test::wrong("mlp")}, 3)); }
CandidateReport unseen(const std::string& name) { return {name, "train", "the command failed", {}}; }

RunReport run(std::vector<CandidateReport> candidates) { return {"", std::move(candidates), {}}; }

bool holds(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_SUITE_BEGIN("report");

TEST_CASE("a run is the same only where every candidate is, and a difference is worse than what nobody saw") {
  CHECK(run({same("a"), same("b")}).verdict() == RunVerdict::kSame);
  CHECK(run({same("a"), unseen("b"), different("c")}).verdict() == RunVerdict::kDifferent);
  CHECK(run({same("a"), unseen("b")}).verdict() == RunVerdict::kCouldNotLook);
  CHECK(run({}).verdict() == RunVerdict::kCouldNotLook);
  RunReport broken = run({same("a")});
  broken.problem = "stale";
  CHECK(broken.verdict() == RunVerdict::kCouldNotLook);
}

TEST_CASE("the last line says what is wrong first, and that others are wrong too") {
  CHECK(sentence_of(run({same("a")})) == "1 candidate computes what the reference computes.");
  CHECK(sentence_of(run({same("a"), unseen("b")})) == "b: could-not-look: the command failed");
  const std::string first = "b: mlp output, iteration 0, micro-batch 1: rel_err 0.1, allowed 0.05";
  CHECK(sentence_of(run({same("a"), different("b")})) == first);
  CHECK(sentence_of(run({different("b"), unseen("c"), different("d")})) == first + " (1 more candidate: different)");
  // The sentence of its root, where somebody looked for one.
  RunReport explained = run({different("b")});
  explained.candidates[0].report.explanation.roots.emplace_back().sentence = "the sum was never made.";
  CHECK(sentence_of(explained) == "b: the sum was never made.");
  CHECK(to_text(explained, {}).ends_with("\n\nb: the sum was never made.\n"));
}

TEST_CASE("what a candidate leaves open is asked where its answer is") {
  CandidateReport asked = different("b");
  asked.report.explanation.questions.push_back({0, 2, "mlp output: write a line"});
  CHECK(holds(to_text(run({same("a"), asked}), {}), "b: question about 2 tensors: mlp output: write a line\n"));
}

TEST_CASE("what a candidate that differs is configured otherwise by is said, its command is not") {
  CandidateReport other = different("b");
  other.report.explanation.configured = {{"layers.2", 1, "window", "3", "None", {}}};
  other.report.runs.surroundings = {{"command", "", "--tp 2"}, {"seed of torch", "43", "42"}};
  const std::string text = to_text(run({same("a"), other}), {});
  CHECK(holds(text, "b: configured otherwise: layers.2: window None, reference 3\n"));
  CHECK(holds(text, "b: configured otherwise: seed of torch 42, reference 43\n"));
  CHECK(!holds(text, "--tp 2"));
}

TEST_CASE("names from traces stay text in Markdown") {
  const RunReport report = run({candidate("a", test::report_of({test::wrong("<b>|x`*_[y](z)")}, 1))});
  const std::string markdown = to_markdown(report);
  CHECK(holds(markdown, "\\<b\\>\\|x\\`\\*\\_\\[y\\]\\(z\\)"));
  CHECK(!holds(markdown, "<b>"));
}

TEST_CASE("a candidate that nobody saw is an error of JUnit and has no report in JSON") {
  const RunReport report = run({unseen("b")});
  CHECK(holds(to_junit(report, {}), "<testsuite name=\"b\" tests=\"1\" errors=\"1\">"));
  CHECK(holds(to_json(report), "\"verdict\": \"could-not-look\",\n      \"problem\": \"the command failed\","));
}

TEST_SUITE_END();
