#include "judge/later_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "base/count_of.h"
#include "base/describe.h"
#include "base/tensor_name.h"
#include "merge/values.h"

namespace ttrace {
namespace {

// Of a parameter in an iteration.
using Step = std::tuple<std::int32_t, std::int32_t, std::string>;

Step step_of(const TensorId& id) { return {id.iteration, id.chunk, id.name.get()}; }

// True for what `backward()` was called on, and for no number that the program records itself.
bool is_loss_of_backward(const TensorId& id) {
  return id.kind == Kind::kScalar && id.microbatch != kNoMicrobatch && TensorName(id.name).path == "loss";
}

// Copies of a gradient that is rounding alone need not disagree by what is allowed of that.
bool may_be_terms(const Finding& finding) {
  if (!finding.guessed || finding.verdict != Verdict::kFail || !finding.allowed) return false;
  const bool is_gradient = finding.id.kind == Kind::kParamGrad;
  return (finding.reason == Reason::kReplicasDisagree && (is_gradient || is_loss_of_backward(finding.id))) ||
         (finding.reason == Reason::kExceedsTolerance && is_gradient);
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
  std::map<Step, Verdict> main_gradients;  // that are right, or rounding alone
  for (const Finding& finding : findings) {
    const bool is_right = finding.verdict == Verdict::kPass || finding.reason == Reason::kNoise;
    if (finding.id.kind != Kind::kMainGrad || !is_right) continue;
    main_gradients.try_emplace(step_of(finding.id), finding.verdict);
  }
  if (main_gradients.empty()) return;
  std::map<TensorId, const TensorPair*> pairs_by_id;
  for (const TensorPair& pair : pairs) pairs_by_id[pair.candidate->id] = &pair;
  std::int64_t count = 0;
  std::string first;
  for (Finding& finding : findings) {
    const auto main_gradient = main_gradients.find(step_of(finding.id));
    const bool is_stepped = is_loss_of_backward(finding.id) || main_gradient != main_gradients.end();
    const auto pair = pairs_by_id.find(finding.id);
    if (!may_be_terms(finding) || !is_stepped || pair == pairs_by_id.end()) continue;
    const bool is_whole = !pair->second->candidate->rows && !pair->second->candidate->sketched;
    if (!is_whole || !add_up(*pair->second, *finding.allowed)) continue;
    if (count++ == 0) first = to_string(finding.id);
    const bool is_proved = is_loss_of_backward(finding.id) || main_gradient->second == Verdict::kPass;
    finding.verdict = is_proved ? Verdict::kPass : Verdict::kUntrusted;
    finding.reason = is_proved ? Reason::kNone : Reason::kNoise;
    finding.message = is_proved ? "" : "rounding alone, as the gradient that the step takes is";
  }
  if (count == 0) return;
  notes.push_back(fmt::format(
      "{} of losses and gradients of micro-batches, the first {}: each rank has a term of its own, and these add up to "
      "the reference's; what steps take and make is right, so they are summed later, or for nobody, and were compared "
      "as sums",
      count_of(count, "tensor"), first));
}

}  // namespace ttrace
