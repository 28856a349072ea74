#include "judge/later_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "base/count_of.h"
#include "base/describe.h"
#include "base/tensor_name.h"
#include "judge/right_elsewhere.h"
#include "judge/right_totals.h"
#include "merge/values.h"

namespace ttrace {
namespace {

// Of a parameter in an iteration.
using Step = std::tuple<std::int32_t, std::int32_t, std::string>;

Step step_of(const TensorId& id) { return {id.iteration, id.chunk, id.name.get()}; }

// Copies of a gradient that is rounding alone need not disagree by what is allowed of that.
bool may_be_terms(const Finding& finding) {
  if (!finding.guessed || finding.verdict != Verdict::kFail || !finding.allowed) return false;
  const Kind kind = finding.id.kind;
  if (kind == Kind::kParamGrad && finding.reason == Reason::kExceedsTolerance) return true;
  const bool has_kind = kind == Kind::kParamGrad || kind == Kind::kOutput || kind == Kind::kGradInput ||
                        kind == Kind::kGradOutput || is_loss_of_backward(finding.id);
  return has_kind && finding.reason == Reason::kReplicasDisagree;
}

// The gradients that steps take, which are right, or rounding alone.
class MainGradients {
 public:
  explicit MainGradients(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      const bool comes_back = finding.id.kind == Kind::kGradOutput && finding.verdict == Verdict::kPass;
      if (comes_back) trained_.insert(finding.id.with_kind(Kind::kOutput));
      const bool is_right = finding.verdict == Verdict::kPass || finding.reason == Reason::kNoise;
      if (finding.id.kind == Kind::kMainGrad && !is_right) wrong_.insert(module_of(finding.id));
      if (finding.id.kind != Kind::kMainGrad || !is_right) continue;
      verdicts_.try_emplace(step_of(finding.id), finding.verdict);
      if (finding.verdict != Verdict::kPass) continue;
      modules_.insert(std::string(owner_of(finding.id.name)));
      right_.insert(module_of(finding.id));
    }
  }

  // What is said of the gradient that a tensor's sum goes into; nothing where none is known of. An activation's goes
  // into that of a parameter of the module, or the loss depends on it, and its gradient is right: what has neither may be
  // a metric, which nothing computes with.
  std::optional<Verdict> verdict_behind(const TensorId& id) const {
    if (verdicts_.empty()) return std::nullopt;
    if (is_loss_of_backward(id)) return Verdict::kPass;
    if (id.kind != Kind::kParamGrad) {
      const bool is_known = modules_.contains(std::string(TensorName(id.name).path)) || trained_.contains(id);
      return is_known ? std::optional(Verdict::kPass) : std::nullopt;
    }
    const auto found = verdicts_.find(step_of(id));
    return found == verdicts_.end() ? std::nullopt : std::optional(found->second);
  }

  // The same by the module of the gradient alone, of which steps take nothing that is wrong in the iteration.
  std::optional<Verdict> verdict_of_module(const TensorId& id) const {
    const Step module = module_of(id);
    return right_.contains(module) && !wrong_.contains(module) ? std::optional(Verdict::kPass) : std::nullopt;
  }

 private:
  static Step module_of(const TensorId& id) {
    const std::string_view path = TensorName(id.name).path;
    return {id.iteration, id.chunk, std::string(is_parameter_kind(id.kind) ? owner_of(path) : path)};
  }

  std::map<Step, Verdict> verdicts_;
  std::set<Step> right_, wrong_;   // of modules
  std::set<std::string> modules_;  // of whose parameters some gradient is right
  std::set<TensorId> trained_;     // outputs of which the gradient is right
};

std::set<std::int32_t> replicas_of(const LogicalTensor& tensor) {
  std::set<std::int32_t> replicas;
  for (const Piece& piece : tensor.pieces()) replicas.insert(piece.replica);
  return replicas;
}

// True where the copies add up to the reference, or to a multiple of it, as where several ranks have each term, or where
// it is their mean. Copies that are near it by themselves are no terms, and copies with errors of their own have a mean
// that is nearer by the square root of their number.
bool add_up(const TensorPair& pair, double allowed) {
  const std::set<std::int32_t> replicas = replicas_of(*pair.candidate);
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

bool has_values(const LogicalTensor& tensor) { return !tensor.rows && !tensor.sketched; }

bool are_terms(const Finding& finding, const PairsById& pairs) {
  const auto pair = pairs.find(finding.id);
  return pair != pairs.end() && has_values(*pair->second->reference) && has_values(*pair->second->candidate) &&
         add_up(*pair->second, *finding.allowed);
}

// True where some rank's term has another sign than the reference somewhere. Where none has, an update may be right that
// was made of a term: Adam's first has the gradient's sign.
bool have_other_signs(const TensorPair& pair) {
  const Values reference = values_of(*pair.reference);
  const std::set<std::int32_t> replicas = replicas_of(*pair.candidate);
  return std::any_of(replicas.begin(), replicas.end(), [&](std::int32_t replica) {
    const Values copy = values_of(*pair.candidate, replica);
    return !std::equal(copy.begin(), copy.end(), reference.begin(),
                       [](double a, double b) { return a * b > 0 || (a == 0 && b == 0); });
  });
}

bool is_unlike_copies_of_main_gradient(const Finding& finding) {
  return finding.id.kind == Kind::kMainGrad && finding.verdict == Verdict::kFail &&
         finding.reason == Reason::kReplicasDisagree && finding.allowed;
}

bool is_update(const Finding& finding) {
  return finding.id.kind == Kind::kParamDelta && finding.difference && finding.difference->reference_square > 0;
}

// True where the copies' sum is as large as rounding may be, of a gradient that is rounding alone. Each rank has its own.
bool are_terms_of_noise(const Finding& finding, const PairsById& pairs) {
  const auto found = pairs.find(finding.id);
  if (!is_unlike_copies_of_main_gradient(finding) || *finding.allowed < 1 || found == pairs.end()) return false;
  const TensorPair& pair = *found->second;
  if (pair.candidate->annotated || !has_values(*pair.reference) || !has_values(*pair.candidate)) return false;
  const Values reference = values_of(*pair.reference);
  Values sum(reference.size());
  for (const std::int32_t replica : replicas_of(*pair.candidate)) {
    const Values copy = values_of(*pair.candidate, replica);
    std::transform(sum.begin(), sum.end(), copy.begin(), sum.begin(), std::plus());
  }
  return relative_distance(sum, reference) <= kNoiseSpan * *finding.allowed;
}

// True where most of the updates that tell of their gradient are right, in the first iteration that has such. What is
// wrong in one iteration makes all gradients of the next one wrong.
bool are_updates_right(const std::set<Step>& telling, const std::vector<Finding>& findings) {
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> right_and_wrong;  // by iteration
  for (const Finding& finding : findings) {
    if (!is_update(finding) || !telling.contains(step_of(finding.id))) continue;
    auto& [right, wrong] = right_and_wrong[finding.id.iteration];
    ++(finding.verdict == Verdict::kPass ? right : wrong);
  }
  if (right_and_wrong.empty()) return false;
  const auto& [right, wrong] = right_and_wrong.begin()->second;
  return right > 0 && right >= wrong;
}

}  // namespace

void pass_reduced_in_step(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                          std::vector<std::string>& notes) {
  if (std::none_of(findings.begin(), findings.end(), is_unlike_copies_of_main_gradient)) return;
  const PairsById pairs_by_id = index_pairs(pairs);
  std::vector<Finding*> own;
  std::set<std::string> names;  // of their parameters
  std::set<Step> telling;       // whose updates tell of the gradient
  for (Finding& finding : findings) {
    const auto pair = pairs_by_id.find(finding.id);
    if (!is_unlike_copies_of_main_gradient(finding) || pair == pairs_by_id.end() || pair->second->candidate->annotated)
      continue;
    // Sketches cannot be added up by rank. What a light iteration has of a parameter is as the whole one's.
    const bool is_sketched = pair->second->reference->sketched || pair->second->candidate->sketched;
    const bool is_as_before = finding.light && is_sketched && names.contains(finding.id.name.get());
    if (!is_as_before && !are_terms(finding, pairs_by_id)) continue;
    own.push_back(&finding);
    names.insert(finding.id.name.get());
    if (!is_as_before && have_other_signs(*pair->second)) telling.insert(step_of(finding.id));
  }
  if (own.empty()) return;
  if (!are_updates_right(telling, findings)) return;
  for (Finding* finding : own) let_pass(*finding);
  for (Finding& finding : findings) {
    if (!are_terms_of_noise(finding, pairs_by_id)) continue;
    finding.verdict = Verdict::kUntrusted;
    finding.reason = Reason::kNoise;
    finding.ranks.clear();
    finding.message =
        fmt::format("{}: each rank has its own before the step, as of the other gradients, and rounding alone",
                    to_string(finding.id));
  }
  notes.push_back(fmt::format(
      "{} of gradients before the step, the first {}: each rank has its own, these add up to the reference's, "
      "and the updates are right that steps make of them: they are reduced in the step, and were compared as "
      "sums",
      count_of(own.size(), "tensor"), to_string(own.front()->id)));
}

std::int32_t end_of_right_training(std::span<const Finding> findings, std::span<const Finding> passed) {
  const auto each = [&](const auto& look) {
    for (const std::span<const Finding> of : {findings, passed}) {
      for (const Finding& finding : of) look(finding);
    }
  };
  bool has_main = false;
  each([&](const Finding& finding) { has_main = has_main || finding.id.kind == Kind::kMainGrad; });
  const auto is_of_training = [&](const Finding& finding) {
    const Kind kind = finding.id.kind;
    return kind == (has_main ? Kind::kMainGrad : Kind::kParamGrad) || kind == Kind::kParamDelta ||
           kind == Kind::kParamAfter;
  };
  std::int32_t first_wrong = kNoIteration, first_right = kNoIteration;
  each([&](const Finding& finding) {
    if (!is_of_training(finding)) return;
    if (is_wrong(finding)) first_wrong = std::min(first_wrong, finding.id.iteration);
    if (finding.verdict == Verdict::kPass) first_right = std::min(first_right, finding.id.iteration);
  });
  return first_right < first_wrong ? first_wrong : 0;
}

bool is_training_right(std::span<const Finding> findings, std::span<const Finding> passed) {
  return end_of_right_training(findings, passed) == kNoIteration;
}

void pass_averaged_after(const StepVerdicts& steps, std::vector<Finding>& findings, std::vector<std::string>& notes) {
  if (steps.changed_after.empty()) return;
  // Updates; those behind gradients of which each rank has its own; those that made something wrong.
  std::set<TensorId> right, unheld, own, wrong;
  for (const Finding& finding : findings) {
    const TensorId update = finding.id.with_kind(Kind::kParamDelta);
    if (finding.id.kind == Kind::kParamAfter && is_wrong(finding)) wrong.insert(update);
    if (is_unlike_copies_of_main_gradient(finding)) own.insert(update);
    if (finding.id.kind != Kind::kParamDelta || !finding.difference) continue;  // else about the step by itself
    if (finding.verdict == Verdict::kPass && finding.allowed.value_or(1) < 1) right.insert(update);
    if (finding.reason == Reason::kNoise) unheld.insert(update);
  }
  const auto is_of_step = [&](const Finding& finding) {
    return finding.reason == Reason::kStepDiffers && steps.changed_after.contains(finding.id) &&
           own.contains(finding.id) && !wrong.contains(finding.id);
  };
  std::vector<TensorId> averaged;
  for (Finding& finding : findings) {
    if (!is_of_step(finding)) continue;
    if (right.contains(finding.id)) averaged.push_back(finding.id);
    if (!unheld.contains(finding.id)) continue;
    finding.verdict = Verdict::kUntrusted;
    finding.reason = Reason::kNotCheckable;
  }
  std::erase_if(findings, [&](const Finding& finding) { return is_of_step(finding) && right.contains(finding.id); });
  if (averaged.empty()) return;
  notes.push_back(fmt::format(
      "{}, the first {}: not what each rank's own gradient gives, and the reference's: the parameters were changed "
      "once more behind the step, as where ranks average them",
      count_of(static_cast<std::int64_t>(averaged.size()), "update"), to_string(averaged.front())));
}

void pass_later_sums(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                     std::vector<std::string>& notes) {
  if (std::none_of(findings.begin(), findings.end(), may_be_terms)) return;
  const std::int32_t end = end_of_right_training(findings);
  const MainGradients main_gradients(findings);
  const PairsById pairs_by_id = index_pairs(pairs);
  const RightTotals totals(pairs_by_id, findings);
  // Behind a mistake elsewhere, what the gradient goes into by itself tells.
  const auto verdict_behind = [&](const TensorId& id) -> std::optional<Verdict> {
    if (id.iteration < end) return main_gradients.verdict_behind(id);
    if (id.kind == Kind::kGradInput) return totals.contains_output(id) ? std::optional(Verdict::kPass) : std::nullopt;
    if (id.kind != Kind::kGradOutput && id.kind != Kind::kParamGrad) return std::nullopt;
    return main_gradients.verdict_of_module(id);
  };
  std::vector<Finding> passed;
  std::vector<Finding*> open;
  for (Finding& finding : findings) {
    if (!may_be_terms(finding)) continue;
    const std::optional<Verdict> behind = verdict_behind(finding.id);
    if (!behind) {
      if (finding.id.kind == Kind::kGradOutput || finding.id.kind == Kind::kParamGrad) open.push_back(&finding);
      continue;
    }
    if (!are_terms(finding, pairs_by_id)) continue;
    let_pass(finding);
    if (*behind != Verdict::kPass) {
      finding.verdict = Verdict::kUntrusted;
      finding.reason = Reason::kNoise;
      finding.message = "rounding alone, as the gradient that the step takes is";
    }
    passed.push_back(finding);
  }
  // So are those of a layer whose step is wrong, where those of others are.
  const RightInLayers right_in_layers(passed);
  for (Finding* finding : open) {
    if (right_in_layers.others(finding->id).empty() || !are_terms(*finding, pairs_by_id)) continue;
    let_pass(*finding);
    passed.push_back(*finding);
  }
  if (passed.empty()) return;
  notes.push_back(
      fmt::format("{}, the first {}: each rank has a term of its own, and these add up to the reference's; what steps "
                  "take and make of them is right, so they are summed outside of the modules, or for nobody, and were "
                  "compared as sums",
                  count_of(std::ssize(passed), "tensor"), to_string(passed.front().id)));
}

}  // namespace ttrace
