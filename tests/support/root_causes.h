// The root causes of what differs between two traces in memory.
#pragma once

#include <string>
#include <vector>

#include "diagnose/root_causes.h"
#include "support/aligned.h"

namespace ttrace::test {

// Allows every tensor to differ by this.
inline ToleranceFile allowing(double rel_err) {
  ToleranceFile tolerance;
  tolerance.overrides.push_back({"**", {}, rel_err, "test", 0});
  return tolerance;
}

// `text` is the annotations of both.
inline std::vector<RootCause> roots_between(const Trace& reference, const Trace& candidate, const std::string& text,
                                            const ToleranceFile& tolerance, bool rewritten = false) {
  const Annotations said = text.empty() ? Annotations() : annotations(text);
  const Alignment right = align(reference, said, {}), wrong = align(candidate, said, layout_of(right));
  REQUIRE(wrong.findings.empty());
  const Matching matching = match(right, wrong);
  Report report = judge_all(right, matching, compare(matching.pairs, {1, {}, false}), &tolerance);
  add_root_causes(report, {right, wrong, candidate.mesh, {}, rewritten});
  return report.explanation.roots;
}

}  // namespace ttrace::test
