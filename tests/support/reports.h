// Small reports for tests of their renderings.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/outcome.h"
#include "support/mesh_trace.h"

namespace ttrace::test {

inline Finding finding(TensorId id, Verdict verdict, Reason reason, const std::string& what) {
  Finding finding;
  finding.message = id.name.empty() ? what : to_string(id) + ": " + what;
  finding.id = std::move(id);
  finding.verdict = verdict;
  finding.reason = reason;
  return finding;
}

// The second of two elements of rank 3 is 4.5 instead of 4.
inline Finding wrong(const std::string& name) {
  Finding wrong = finding(tensor_id(Kind::kOutput, name, 1), Verdict::kFail, Reason::kExceedsTolerance,
                          "rel_err 0.1, allowed 0.05");
  wrong.ranks = {0, 1, 3};
  wrong.allowed = 0.05;
  Difference& difference = wrong.difference.emplace();
  difference.elements = 2;
  difference.differing = 1;
  difference.reference_square = 25;
  difference.candidate_square = 29.25;
  difference.difference_square = 0.25;
  difference.max_abs = 0.5;
  difference.worst_index = {1};
  difference.worst_rank = 3;
  difference.worst_local_index = {0};
  difference.worst_reference = 4;
  difference.worst_candidate = 4.5;
  return wrong;
}

inline Finding missing(const std::string& name) {
  return finding(tensor_id(Kind::kOutput, name, 1), Verdict::kMissing, Reason::kMissingInCandidate,
                 "not in the candidate; the reference has float32 [2]");
}

inline Finding untrusted(const std::string& name) {
  return finding(tensor_id(Kind::kParamGrad, name, 0), Verdict::kUntrusted, Reason::kAllZero, "zero on both sides");
}

inline Finding missing_rank() {
  Finding rank = finding({}, Verdict::kMissing, Reason::kMissingRank, "rank 2 has no file");
  rank.ranks = {2};
  return rank;
}

// Makes a report with the findings and `passed` tensors of the name `same`.
inline Report report_of(std::vector<Finding> findings, std::int64_t passed) {
  Report report;
  report.runs.reference = "runs/reference";
  report.runs.candidate = "runs/candidate";
  report.advice.all_findings = "ttrace check --all";
  const auto count = [&](const TensorId& id, Verdict verdict) {
    report.totals.counts.add(verdict);
    if (!id.name.empty()) report.totals.by_name[{id.name, id.kind}].add(verdict);
  };
  for (std::int64_t i = 0; i < passed; ++i) count(tensor_id(Kind::kOutput, "same", 0), Verdict::kPass);
  for (const Finding& one : findings) count(one.id, one.verdict);
  report.findings = std::move(findings);
  return report;
}

}  // namespace ttrace::test
