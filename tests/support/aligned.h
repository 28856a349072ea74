// Short words for tests that align traces in memory and look at what comes out.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "align/shard_mapping.h"
#include "base/error.h"
#include "base/outcome.h"
#include "compare/compare.h"
#include "files/annotation_file.h"
#include "judge/judge.h"
#include "judge/match.h"
#include "support/mesh_trace.h"

namespace ttrace::test {

inline Annotations annotations(const std::string& text) { return parse_annotations(text, "gpt.yaml"); }

inline std::string error_of(const Trace& trace, const std::string& text, const ModelLayout& layout = {}) {
  try {
    align(trace, annotations(text), layout);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

inline const LogicalTensor& only_tensor(const Alignment& alignment) {
  REQUIRE(alignment.findings.empty());
  REQUIRE(alignment.tensors.size() == 1);
  return alignment.tensors.begin()->second;
}

inline const Finding& only_finding(const Alignment& alignment) {
  REQUIRE(alignment.findings.size() == 1);
  return alignment.findings[0];
}

inline std::vector<std::string> names_in(const Alignment& alignment) {
  std::vector<std::string> names;
  for (const auto& [id, tensor] : alignment.tensors) names.push_back(id.name);
  return names;
}

// Does what `ttrace check` does with two traces, without tolerances.
inline Report checked(const Trace& reference, const Trace& candidate, const std::string& text) {
  const Alignment reference_tensors = align(reference, annotations(text), {});
  REQUIRE(reference_tensors.findings.empty());
  const Alignment candidate_tensors = align(candidate, annotations(text), layout_of(reference_tensors));
  const Matching matching = match(reference_tensors, candidate_tensors);
  return judge_all(reference_tensors, matching, compare(matching.pairs, {1, {}, false}), nullptr);
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// `decoder.layers.2 output: missing-in-candidate`, for each finding of the report.
inline std::vector<std::string> findings_in(const Report& report) {
  std::vector<std::string> lines;
  for (const Finding& finding : report.findings) {
    lines.push_back(finding.id.name.get() + " " + std::string(name_of(finding.id.kind)) + ": " +
                    std::string(name_of(finding.reason)));
  }
  return lines;
}

}  // namespace ttrace::test
