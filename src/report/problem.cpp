#include "report/problem.h"

#include <utility>

#include "report/render.h"

namespace ttrace {
namespace {

Problem problem_of(const Report& report, const RootCause& root) {
  const Finding& finding = report.findings[root.finding];
  Problem problem;
  problem.rule = root.diagnosis ? name_of(*root.diagnosis) : "no-diagnosis";
  problem.who = report.runs.candidate;
  problem.text = printable(root.sentence) + "\n" + printable(finding.message);
  problem.module = root.module;
  if (const CodeLine* line = best_line(root.source)) problem.line = *line;
  return problem;
}

Problem problem_of_verdict(const Report& report, const std::string& text) {
  return {std::string(name_of(report.verdict())), report.runs.candidate, printable(text), "", std::nullopt};
}

}  // namespace

std::vector<Problem> problems_of(const Report& report) {
  if (report.same()) return {};
  if (report.advice.instead) return {problem_of_verdict(report, *report.advice.instead)};
  std::vector<Problem> problems;
  for (const RootCause& root : report.explanation.roots) {
    if (root.examined) problems.push_back(problem_of(report, root));
  }
  // A rank that is missing is no tensor, and no root.
  const Finding* first = report.first_wrong();
  if (problems.empty() || (first != nullptr && first->id.name.empty())) {
    problems.insert(problems.begin(), problem_of_verdict(report, sentence_of(report)));
  }
  return problems;
}

std::vector<Problem> problems_of(const RunReport& report) {
  std::vector<Problem> problems;
  if (!report.problem.empty()) {
    problems.push_back({std::string(name_of(RunVerdict::kCouldNotLook)), "", printable(report.problem), "", {}});
  }
  for (const CandidateReport& candidate : report.candidates) {
    if (!candidate.problem.empty()) {
      problems.push_back(
          {std::string(name_of(RunVerdict::kCouldNotLook)), candidate.name, printable(candidate.problem), "", {}});
      continue;
    }
    for (Problem& problem : problems_of(candidate.report)) {
      problem.who = candidate.name;
      problems.push_back(std::move(problem));
    }
  }
  return problems;
}

}  // namespace ttrace
