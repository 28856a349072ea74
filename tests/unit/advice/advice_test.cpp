#include "advice/advice.h"

#include <doctest/doctest.h>

#include <memory>
#include <utility>

#include "support/reports.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

AlignedTrace run_of(std::vector<std::string> command) {
  Trace trace;
  trace.world_size = 2;
  trace.provenance.command = std::move(command);
  return {std::make_unique<const Trace>(std::move(trace)), {}};
}

// Returns what a check of two recorded runs advises that has all it needs, or lacks what `change` takes away.
template <typename Change>
Report advised(Report report, Change change) {
  const AlignedTrace reference = run_of({"train"}), candidate = run_of({"train", "--tp", "2"});
  Situation situation{reference, candidate, true, true, "", "", "ttrace check", "ttrace localize"};
  change(situation);
  add_advice(situation, report);
  return report;
}

Report with_root(std::vector<Finding> findings) {
  Report report = report_of(std::move(findings), 1);
  report.explanation.roots.emplace_back();
  return report;
}

}  // namespace

TEST_SUITE_BEGIN("advice");

TEST_CASE("a check that lacks nothing is followed by a second run, or else by its page") {
  const auto as_it_is = [](Situation&) {};
  const Report report = advised(with_root({wrong("mlp")}), as_it_is);
  CHECK(report.advice.instead == std::nullopt);
  CHECK(report.advice.next == "ttrace localize -- train --tp 2");
  CHECK(report.advice.all_findings == "ttrace check --all");
  CHECK(advised(report_of({wrong("mlp")}, 1), as_it_is).advice.next == "ttrace check --html report.html");
  const auto in_part = [](Situation& situation) { situation.localize.reset(); };
  CHECK(advised(with_root({wrong("mlp")}), in_part).advice.next == "ttrace check --html report.html");
}

TEST_CASE("what was recorded lightly, and is wrong first without a cause, is to be recorded whole") {
  Finding light = wrong("mlp");
  light.id.iteration = 1;
  light.light = true;
  const auto as_it_is = [](Situation&) {};
  Report report = advised(with_root({light}), as_it_is);
  CHECK(report.advice.next.value().find("--iterations 0-1 -- train && ttrace collect") != std::string::npos);
  CHECK(report.notes.at(0).find("of iteration 1 only parameters") == 0);
  CHECK(report.advice.lacks_activations == 0);
  Report known = with_root({light});
  known.explanation.roots[0].diagnosis = Cause::kOptimizerStep;
  CHECK(advised(std::move(known), as_it_is).advice.next == "ttrace localize -- train --tp 2");
}

TEST_CASE("a command that a trace names is shown, and stays one command where the line is typed") {
  Report report = with_root({wrong("mlp")});
  const AlignedTrace run = run_of({"/bin/sh", "-c", "true; touch PWNED"});
  add_advice({run, run, true, true, "", "", "ttrace check", "ttrace localize"}, report);
  CHECK(report.advice.next == "ttrace localize -- /bin/sh -c 'true; touch PWNED'");
  Report lacking = with_root({wrong("mlp")});
  add_advice({run, run, true, false, "", "", "ttrace check", "ttrace localize"}, lacking);
  CHECK(lacking.advice.next.value().ends_with("--reference runs/reference -- /bin/sh -c 'true; touch PWNED'"));
}

TEST_CASE("of what another program saved no perturbed runs are asked for, and rounding is allowed for first") {
  const auto is_saved = [](Situation& situation) {
    situation.has_tolerances = false;
    situation.is_saved = true;
    situation.localize.reset();
  };
  const Report saved = advised(report_of({wrong("mlp")}, 1), is_saved);
  CHECK(saved.advice.instead == std::nullopt);
  CHECK(saved.advice.next == "ttrace check --html report.html");
  const auto is_rounded = [&](Situation& situation) {
    is_saved(situation);
    situation.rounded_check = "ttrace check --rounded-to bfloat16";
  };
  CHECK(advised(report_of({wrong("mlp")}, 1), is_rounded).advice.next == "ttrace check --rounded-to bfloat16");
}

TEST_CASE("annotations are asked for before tolerances, and tolerances before a second run") {
  const auto lacks_both = [](Situation& situation) { situation.is_mapping_known = situation.has_tolerances = false; };
  Finding guessed = wrong("mlp");
  guessed.guessed = true;
  const Report first = advised(with_root({guessed}), lacks_both);
  CHECK(first.advice.instead.value().starts_with("no annotations (-a), and neither the program"));
  CHECK(first.advice.next == "ttrace annotate runs/candidate --reference runs/reference -o annotations.yaml");
  const Report second =
      advised(with_root({wrong("mlp")}), [](Situation& situation) { situation.has_tolerances = false; });
  CHECK(second.advice.instead.value().starts_with("no tolerances (-t), and 1 of 2 tensors are not equal"));
  CHECK(second.advice.next == "ttrace estimate-tolerance -o tolerance.yaml --reference runs/reference -- train");
}

TEST_CASE("what is wrong in a place that is no guess is not withheld for want of annotations") {
  const Report report =
      advised(with_root({wrong("mlp")}), [](Situation& situation) { situation.is_mapping_known = false; });
  CHECK(report.advice.instead == std::nullopt);
  CHECK(report.advice.next == "ttrace annotate runs/candidate --reference runs/reference -o annotations.yaml");
  REQUIRE(report.notes.size() == 1);
  CHECK(report.notes.front().starts_with("no annotations (-a)"));
}

TEST_CASE("of two programs with few names in common, a correspondence is asked for") {
  Finding by_name = wrong("mlp");
  by_name.verdict = Verdict::kMissing;
  by_name.reason = Reason::kOtherNames;
  const std::string command = "ttrace annotate runs/candidate --reference runs/reference -o correspondence.yaml";
  for (const bool differs : {false, true}) {
    CAPTURE(differs);
    std::vector<Finding> findings = {by_name};
    if (differs) findings.push_back(wrong("loss"));
    const Report report = advised(report_of(findings, 1), [](Situation&) {});
    CHECK(report.advice.instead == std::nullopt);
    CHECK(report.advice.next == command);
    const Report told =
        advised(report_of(findings, 1), [](Situation& situation) { situation.correspondence = "c.yaml"; });
    CHECK(told.advice.next != command);
  }
}

TEST_CASE("where a rank is missing, and a tensor is wrong, what the check lacks is a note") {
  const auto lacks = [](Situation& situation) { situation.is_mapping_known = false; };
  CHECK(advised(report_of({missing_rank()}, 1), lacks).advice.next == std::nullopt);
  const Report report = advised(report_of({missing_rank(), wrong("mlp")}, 1), lacks);
  CHECK(report.advice.instead == std::nullopt);
  CHECK(report.advice.next == "ttrace check --html report.html");
  REQUIRE(report.notes.size() == 1);
  CHECK(report.notes.front().starts_with("no annotations (-a)"));
}

TEST_CASE("nothing is advised where nothing differs") {
  const Report report = advised(report_of({}, 1), [](Situation& situation) { situation.has_tolerances = false; });
  CHECK(report.advice.instead == std::nullopt);
  CHECK(report.advice.next == std::nullopt);
}

TEST_SUITE_END();
