#include "judge/equal_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/count_of.h"
#include "base/describe.h"
#include "judge/later_sums.h"
#include "merge/values.h"

namespace ttrace {
namespace {

bool is_wrong_gradient(const Finding& finding) {
  const bool is_of_activation = finding.id.kind == Kind::kGradOutput || finding.id.kind == Kind::kGradInput;
  return is_of_activation && finding.verdict == Verdict::kFail && finding.reason == Reason::kExceedsTolerance &&
         !finding.light;
}

// True, by the place in a row, where all rows have one value.
std::vector<bool> equal_places(const Values& values, std::size_t rows) {
  const std::size_t width = values.size() / rows;
  std::vector<bool> equal(width, true);
  for (std::size_t i = width; i < values.size(); ++i) {
    if (values[i] != values[i % width]) equal[i % width] = false;
  }
  return equal;
}

// The first row with the sums of all at these places, and zeros there in the others.
void add_up_rows(Values& values, const std::vector<bool>& places) {
  for (std::size_t i = places.size(); i < values.size(); ++i) {
    if (!places[i % places.size()]) continue;
    values[i % places.size()] += values[i];
    values[i] = 0;
  }
}

bool is_right_in_sum(const Finding& finding, const PairsById& pairs) {
  const Kind kind = finding.id.kind == Kind::kGradOutput ? Kind::kOutput : Kind::kInput;
  const auto gradient = pairs.find(finding.id), value = pairs.find(finding.id.with_kind(kind));
  if (gradient == pairs.end() || value == pairs.end()) return false;
  const LogicalTensor &reference = *gradient->second->reference, &candidate = *gradient->second->candidate;
  const LogicalTensor& values = *value->second->reference;
  for (const LogicalTensor* tensor : {&reference, &candidate, &values}) {
    if (tensor->rows || tensor->sketched) return false;
  }
  if (reference.shape != values.shape || reference.shape.size() < 2) return false;
  const auto rows = static_cast<std::size_t>(reference.shape[0]);
  if (rows < 2 || element_count(reference.shape) == 0) return false;
  const std::vector<bool> places = equal_places(values_of(values), rows);
  if (std::find(places.begin(), places.end(), true) == places.end()) return false;
  Values wanted = values_of(reference), own = values_of(candidate);
  if (own.size() != wanted.size()) return false;
  add_up_rows(wanted, places);
  add_up_rows(own, places);
  return relative_distance(own, wanted) <= finding.allowed.value_or(0);
}

}  // namespace

void pass_gradients_of_equal_rows(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                                  std::vector<std::string>& notes) {
  if (std::none_of(findings.begin(), findings.end(), is_wrong_gradient)) return;
  const std::int32_t end = end_of_right_training(findings);
  const PairsById pairs_by_id = index_pairs(pairs);
  std::int64_t count = 0;
  std::string first;
  for (Finding& finding : findings) {
    if (!is_wrong_gradient(finding) || finding.id.iteration >= end || !is_right_in_sum(finding, pairs_by_id)) continue;
    if (count++ == 0) first = to_string(finding.id);
    let_pass(finding);
  }
  if (count == 0) return;
  notes.push_back(
      fmt::format("{}, the first {}: the gradient of values that are the same in all samples came back to others of "
                  "them; the sums over samples are right, and what steps take and make, and were compared",
                  count_of(count, "tensor"), first));
}

}  // namespace ttrace
