#include "judge/later_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/count_of.h"
#include "base/describe.h"
#include "merge/values.h"

namespace ttrace {
namespace {

// Of a parameter in an iteration.
using Step = std::tuple<std::int32_t, std::int32_t, std::string>;

Step step_of(const TensorId& id) { return {id.iteration, id.chunk, id.name.get()}; }

bool may_be_terms(const Finding& finding) {
  return finding.guessed && finding.verdict == Verdict::kFail && finding.reason == Reason::kReplicasDisagree &&
         finding.allowed && (is_loss(finding.id) || finding.id.kind == Kind::kParamGrad);
}

// True where the copies add up to the reference, or to a multiple of it, as where several ranks have each term, or where
// it is their mean. Copies that are near it by themselves are no terms, and copies with errors of their own have a mean
// that is nearer by the square root of their number.
bool add_up(const TensorPair& pair, double allowed) {
  std::set<std::int32_t> replicas;
  for (const Piece& piece : pair.candidate->pieces()) replicas.insert(piece.replica);
  const Values reference = values_of(*pair.reference);
  Values sum(reference.size());
  double nearest = INFINITY;
  for (const std::int32_t replica : replicas) {
    const Values copy = values_of(*pair.candidate, replica);
    nearest = std::min(nearest, relative_distance(copy, reference));
    std::transform(sum.begin(), sum.end(), copy.begin(), sum.begin(), std::plus());
  }
  constexpr double kLargestShare = 0.25;  // of the nearest copy's distance that is left
  const double most = nearest * kLargestShare / std::sqrt(static_cast<double>(replicas.size()));
  for (std::size_t copies = 1; copies <= replicas.size(); ++copies) {
    if (replicas.size() % copies != 0) continue;
    Values of_one = sum;
    for (double& value : of_one) value /= static_cast<double>(copies);
    if (relative_distance(of_one, reference) <= std::min(allowed, most)) return true;
  }
  return false;
}

}  // namespace

bool is_training_right(std::span<const Finding> findings, std::span<const Finding> passed) {
  const auto has_main_gradients = [](std::span<const Finding> some) {
    return std::any_of(some.begin(), some.end(), [](const Finding& each) { return each.id.kind == Kind::kMainGrad; });
  };
  const bool has_main = has_main_gradients(findings) || has_main_gradients(passed);
  const auto is_of_training = [&](const Finding& finding) {
    const Kind kind = finding.id.kind;
    return kind == (has_main ? Kind::kMainGrad : Kind::kParamGrad) || kind == Kind::kParamDelta ||
           kind == Kind::kParamAfter;
  };
  return std::any_of(passed.begin(), passed.end(), is_of_training) &&
         std::none_of(findings.begin(), findings.end(),
                      [&](const Finding& finding) { return is_wrong(finding) && is_of_training(finding); });
}

void pass_later_sums(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                     std::vector<std::string>& notes) {
  if (std::none_of(findings.begin(), findings.end(), may_be_terms)) return;
  std::vector<Finding> passed;
  std::copy_if(findings.begin(), findings.end(), std::back_inserter(passed),
               [](const Finding& finding) { return finding.verdict == Verdict::kPass; });
  if (!is_training_right(findings, passed)) return;
  std::set<Step> with_main_gradient;
  for (const Finding& finding : passed) {
    if (finding.id.kind == Kind::kMainGrad) with_main_gradient.insert(step_of(finding.id));
  }
  if (with_main_gradient.empty()) return;
  std::map<TensorId, const TensorPair*> pairs_by_id;
  for (const TensorPair& pair : pairs) pairs_by_id[pair.candidate->id] = &pair;
  std::int64_t count = 0;
  std::string first;
  for (Finding& finding : findings) {
    const bool is_stepped = is_loss(finding.id) || with_main_gradient.contains(step_of(finding.id));
    const auto pair = pairs_by_id.find(finding.id);
    if (!may_be_terms(finding) || !is_stepped || pair == pairs_by_id.end()) continue;
    const bool is_whole = !pair->second->candidate->rows && !pair->second->candidate->sketched;
    if (!is_whole || !add_up(*pair->second, *finding.allowed)) continue;
    if (count++ == 0) first = to_string(finding.id);
    finding.verdict = Verdict::kPass;
    finding.reason = Reason::kNone;
    finding.message.clear();
  }
  if (count == 0) return;
  notes.push_back(fmt::format(
      "{} of losses and gradients of micro-batches, the first {}: each rank has a term of its own, and these add up to "
      "the reference's; what steps take and make is right, so they are summed later, or for nobody, and were compared "
      "as sums",
      count_of(count, "tensor"), first));
}

}  // namespace ttrace
