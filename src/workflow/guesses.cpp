#include "workflow/guesses.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "align/shard_mapping.h"
#include "base/error.h"
#include "compare/compare.h"
#include "judge/judge.h"
#include "judge/match.h"
#include "workflow/annotations.h"

namespace ttrace {
namespace {

using Place = std::pair<std::string, int>;  // file and line

std::set<TensorId> wrong_tensors(const Report& report) {
  std::set<TensorId> wrong;
  for (const Finding& finding : report.findings) {
    const bool is_wrong = finding.verdict == Verdict::kFail || finding.verdict == Verdict::kMissing;
    if (is_wrong && !finding.id.name.empty()) wrong.insert(finding.id);
  }
  return wrong;
}

// Returns those of the `wrong` tensors that pass by `guessed`, an alignment in which the guesses count.
std::vector<const LogicalTensor*> tensors_that_pass(const Alignment& reference, const Alignment& guessed,
                                                    const ToleranceFile* tolerance, const std::set<TensorId>& wrong) {
  std::vector<TensorPair> pairs;
  for (const auto& [id, tensor] : guessed.tensors) {
    const LogicalTensor* same = wrong.contains(id) ? counterpart(reference, id) : nullptr;
    if (same != nullptr && same->shape == tensor.shape && same->dtype == tensor.dtype) pairs.push_back({same, &tensor});
  }
  const std::vector<Difference> differences = compare(pairs, {});
  std::vector<const LogicalTensor*> passed;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (judge(pairs[i], differences[i], tolerance).verdict == Verdict::kPass) passed.push_back(pairs[i].candidate);
  }
  return passed;
}

// The lines that place the tensor or scale it.
std::set<Place> lines_about(const LogicalTensor& tensor, const Annotations& annotations) {
  std::set<Place> lines;
  if (const AnnotationRule* rule = rule_for(annotations, tensor.id.kind, tensor.id.name)) {
    for (const AxisPlacement& axis : rule->axes) lines.emplace(rule->source.file, axis.line);
  }
  if (annotations.loss_scale && tensor.scale != 1) {
    lines.emplace(annotations.loss_scale->source.file, annotations.loss_scale->source.line);
  }
  return lines;
}

}  // namespace

std::vector<std::string> notes_of_guesses(const AnnotationSource& source, const Alignment& reference,
                                          const Trace& candidate, const ToleranceFile* tolerance,
                                          const Report& report) {
  const std::set<TensorId> wrong = wrong_tensors(report);
  AnnotationSource counting = source;
  counting.with_guesses = true;
  std::vector<std::string> notes;
  try {
    const Annotations annotations = load_annotations(counting, candidate);
    const Alignment guessed = align(candidate, annotations, layout_of(reference));
    std::map<Place, std::int64_t> right;
    for (const LogicalTensor* tensor : tensors_that_pass(reference, guessed, tolerance, wrong)) {
      for (const Place& line : lines_about(*tensor, annotations)) ++right[line];
    }
    for (const Guess& guess : annotations.guesses) {
      const auto found = right.find({guess.source.file, guess.source.line});
      if (found == right.end()) continue;
      notes.push_back(
          fmt::format("{}: '{}' is a guess that does not count; with it {} of {} wrong tensors would be "
                      "right: take its #? away only where the program means it so",
                      to_string(guess.source), guess.text, found->second, wrong.size()));
    }
  } catch (const InputError& error) {
    notes.push_back(fmt::format("the guesses in the annotations cannot be tried: {}", error.what()));
  }
  return notes;
}

}  // namespace ttrace
