#include "step/judge_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/count_of.h"
#include "base/describe.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "compare/compare.h"
#include "step/judge_regression.h"
#include "step/jumps.h"
#include "step/options.h"
#include "step/other_names.h"
#include "step/step.h"

namespace ttrace {
namespace {

// Limits how far the clip factors of two runs may be apart: the factor follows the norm.
constexpr double kClipMargin = 3;
// The rounding of the norm itself, which both runs sum up in an order of their own.
constexpr double kNormRounding = 1e-5;

// Tells how far apart the gradients of each iteration are, and which parameters have some.
class GradientDifferences {
 public:
  explicit GradientDifferences(const Compared& compared) : tolerance_(compared.tolerance) {
    const std::vector<TensorPair>& pairs = compared.matching.pairs;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const TensorId& id = pairs[i].candidate->id;
      const Difference& difference = compared.differences[i];
      if (is_gradient_norm({id.kind, id.name})) add_norm(id, difference);
      if (id.kind != Kind::kMainGrad) continue;
      Sums& sums = sums_[id.iteration];
      sums.difference += difference.difference_square;
      sums.reference += difference.reference_square;
      for (const LogicalTensor* side : {pairs[i].reference, pairs[i].candidate}) {
        const double epsilon = epsilon_of(side->dtype);
        if (epsilon > epsilon_of(Dtype::kFloat32)) sums.rounding = std::max(sums.rounding, epsilon);
      }
      if (difference.reference_square > 0 && difference.candidate_square > 0)
        has_gradient_.emplace(id.iteration, id.name);
    }
  }

  // Returns how far the clip factors may be apart, relatively; below 0 where nothing can be said.
  double allowed_clip(std::int32_t iteration, const std::string& parameter) const {
    if (!has_gradient_.contains({iteration, parameter})) return -1;
    const auto norm = norms_.find(iteration);
    if (norm != norms_.end() && norm->second.allowed) {
      return std::max(kClipMargin * *norm->second.allowed, norm->second.measured * 1.5) + kNormRounding;
    }
    const Sums& sums = sums_.at(iteration);
    const double allowed = 1.01 * std::sqrt(sums.difference / sums.reference) + kNormRounding + sums.rounding;
    return std::isfinite(allowed) ? allowed : -1;
  }

 private:
  struct Sums {
    double difference = 0, reference = 0, rounding = 0;
  };
  struct Norm {
    std::optional<double> allowed;
    double measured = 0;
  };

  void add_norm(const TensorId& id, const Difference& difference) {
    Norm& norm = norms_[id.iteration];
    norm.measured = std::max(norm.measured, difference.rel_err());
    if (tolerance_ == nullptr) return;
    const std::optional<double> allowed = allowed_for(*tolerance_, id);
    if (allowed && *allowed > 0) norm.allowed = std::max(norm.allowed.value_or(0), *allowed);
  }

  const ToleranceFile* tolerance_;
  std::map<std::int32_t, Sums> sums_;
  std::map<std::int32_t, Norm> norms_;
  std::set<std::pair<std::int32_t, std::string>> has_gradient_;
};

// The update's identity where it was recorded, and that of the reference's where only that one has it.
const LogicalTensor* find_update(const AlignedTrace& reference, const AlignedTrace& candidate, std::int32_t iteration,
                                 const std::string& name) {
  for (const Kind kind : {Kind::kParamDelta, Kind::kParam}) {
    TensorId id;
    id.iteration = iteration;
    id.kind = kind;
    id.name = name;
    for (const AlignedTrace* side : {&candidate, &reference}) {
      const auto found = side->alignment.tensors.find(id);
      if (found != side->alignment.tensors.end()) return &found->second;
    }
  }
  return nullptr;
}

Difference difference_of(const LogicalTensor& one, const LogicalTensor& other) {
  const TensorPair pair{&one, &other};
  CompareOptions options;
  options.checksums = false;  // they are verified where the tensors of both runs are compared
  return compare(std::span(&pair, 1), options).at(0);
}

// Returns the sum of the squares of what the parameter of the update has changed by since `before`, its value in the
// first iteration that was recorded; 0: not, or unknown.
double square_of_change(const Alignment& alignment, const TensorId& before, const TensorId& update) {
  const LogicalTensor* first = find_tensor(alignment, before);
  const LogicalTensor* after = find_tensor(alignment, update.with_kind(Kind::kParamAfter));
  if (first == nullptr || after == nullptr || first->shape != after->shape) return 0;
  return difference_of(*first, *after).difference_square;
}

// Returns the sum of the squares of the reference's update; 0 where it has none.
double square_of_update(const Alignment& reference, const TensorId& update) {
  const LogicalTensor* tensor = find_tensor(reference, update);
  return tensor == nullptr ? 0 : difference_of(*tensor, *tensor).reference_square;
}

bool is_stepped(const StatedSteps& stated, const StatedSteps::key_type& key) {
  const auto found = stated.find(key);
  return found != stated.end() && std::any_of(found->second.begin(), found->second.end(),
                                              [](const StatedStep& one) { return !one.step->optimizer.empty(); });
}

// Returns the updates of parameters that no optimizer of the candidate's has and that change all the same, with the sum
// of the squares of what they have changed by: by masters that the program keeps, or by updates that it writes itself.
// Where some do, so may those that the reference's optimizers step and that change in neither run, as a step that
// rounding swallows. Where neither run says of optimizers, a gradient tells what is trained.
std::map<TensorId, double> find_steps_elsewhere(const AlignedTrace& reference, const AlignedTrace& candidate,
                                                const StatedSteps& of_reference, const StatedSteps& of_candidate) {
  std::map<std::string, TensorId> first;  // the parameters as they were when recording began, by name
  std::set<StatedSteps::key_type> with_gradients;
  for (const auto& [id, tensor] : candidate.alignment.tensors) {
    const StatedSteps::key_type key(id.iteration, id.name);
    if (id.kind == Kind::kParamGrad || id.kind == Kind::kMainGrad) with_gradients.insert(key);
    if (id.kind != Kind::kParam) continue;
    const auto [found, is_new] = first.emplace(id.name, id);
    if (id.iteration < found->second.iteration) found->second = id;
  }
  std::map<TensorId, double> changes;
  bool is_any_changed = false;
  for (const auto& [id, tensor] : candidate.alignment.tensors) {
    if (id.kind != Kind::kParamAfter || find_tensor(reference.alignment, id) == nullptr) continue;
    const StatedSteps::key_type key(id.iteration, id.name);
    const TensorId update = id.with_kind(Kind::kParamDelta);
    const auto before = first.find(id.name);
    if (is_stepped(of_candidate, key)) continue;
    // Of a model that was made behind the iterations recorded whole, the reference tells how far a step goes.
    const bool is_known = before != first.end();
    const bool is_reference_stepped = is_stepped(of_reference, key);
    const bool has_update = find_tensor(candidate.alignment, update) || find_tensor(reference.alignment, update);
    const bool has_gradient_alone = with_gradients.contains(key) && !has_update && !is_reference_stepped;
    if (!of_candidate.contains(key) && !has_gradient_alone) continue;
    const double change = is_known ? square_of_change(candidate.alignment, before->second, update)
                                   : square_of_update(reference.alignment, update);
    is_any_changed |= is_known && change > 0;
    const bool stands_in_reference = !is_known || square_of_change(reference.alignment, before->second, update) == 0;
    if (change > 0 || (is_reference_stepped && stands_in_reference)) {
      changes.emplace(update, change);
    }
  }
  return is_any_changed ? changes : std::map<TensorId, double>();
}

std::string describe_steps_elsewhere(const std::map<TensorId, double>& elsewhere, const Trace& candidate) {
  std::set<std::string> names;
  for (const auto& [update, change] : elsewhere) names.insert(update.name);
  const bool has_optimizer = std::ranges::any_of(candidate.ranks, [](const RankTrace& rank) {
    return std::ranges::any_of(rank.optimizer_steps, [](const OptimizerStep& step) { return !step.optimizer.empty(); });
  });
  return fmt::format(
      "candidate: {}, the first {}, changed, and in no optimizer: the program steps {}; the parameters "
      "after it are compared",
      count_of(names.size(), "parameter"), printable(elsewhere.begin()->first.name.get()),
      has_optimizer ? "with other tensors than the model's" : "them by itself");
}

// What the runs of the reference's program step with that is not the same in all; null: nothing, or nothing is known.
const OptionSamples* samples_of(const ToleranceFile* tolerance, const std::string& optimizer, std::int32_t iteration) {
  if (tolerance == nullptr) return nullptr;
  const auto found = tolerance->options.find({optimizer, iteration});
  return found == tolerance->options.end() ? nullptr : &found->second;
}

// Compares what becomes of the options of optimizers that step in the place of the model's parameters, which change
// elsewhere.
void compare_options_of_masters(const AlignedTrace& reference, const AlignedTrace& candidate, const Compared& compared,
                                const StatedSteps& of_reference, JudgedSteps& judged) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<const OptimizerStep*>> masters;  // by iteration and rank
  for (const RankTrace& rank : candidate.trace->ranks) {
    for (const OptimizerStep& step : rank.optimizer_steps) {
      if (are_masters(step)) masters[{step.iteration, rank.rank}].push_back(&step);
    }
  }
  for (const auto& [id, change] : judged.verdicts.elsewhere) {
    const auto wanted = of_reference.find({id.iteration, id.name});
    const LogicalTensor* update = find_update(reference, candidate, id.iteration, id.name);
    if (wanted == of_reference.end() || update == nullptr) continue;
    const StatedStep& stated = wanted->second.front();
    const AllowedOptions allowed{-1, samples_of(compared.tolerance, stated.step->optimizer, id.iteration)};
    std::string words;
    std::vector<std::int32_t> ranks;
    for (auto of = masters.lower_bound({id.iteration, 0}); of != masters.end() && of->first.first == id.iteration;
         ++of) {
      const std::string differs = describe_other_development(stated, of->second, allowed);
      if (differs.empty()) continue;
      if (words.empty()) words = differs;
      ranks.push_back(of->first.second);
    }
    if (words.empty()) continue;
    Finding& finding = judged.verdicts.findings.emplace_back();
    finding = finding_about(*update, Verdict::kFail, Reason::kOptionsDiffer, "");
    finding.id = id;
    finding.message = fmt::format("{}: {}", to_string(id), words);
    finding.ranks = std::move(ranks);
  }
}

// Compares the options of all steps; returns the updates whose options are the reference's.
std::set<TensorId> compare_options(const AlignedTrace& reference, const AlignedTrace& candidate,
                                   const Compared& compared, const ParameterCounterparts* counterparts,
                                   JudgedSteps& judged) {
  const GradientDifferences gradients(compared);
  const StatedSteps of_reference = stated_steps(reference);
  StatedSteps of_candidate = stated_steps(candidate);
  if (counterparts != nullptr) of_candidate = in_names_of_reference(of_candidate, *counterparts);
  judged.verdicts.elsewhere = find_steps_elsewhere(reference, candidate, of_reference, of_candidate);
  const auto uneven = other_microbatch_counts(reference.alignment, candidate.alignment);
  std::set<TensorId> equal;
  std::set<std::pair<std::string, std::string>> not_comparable;
  for (const auto& [key, steps] : of_candidate) {
    const auto& [iteration, name] = key;
    const auto other = of_reference.find(key);
    const LogicalTensor* update = find_update(reference, candidate, iteration, name);
    if (other == of_reference.end() || update == nullptr) continue;
    const StatedStep& wanted = other->second.front();
    const TensorId id = update->id.with_kind(Kind::kParamDelta);
    if (judged.verdicts.elsewhere.contains(id)) continue;
    std::string words;
    std::vector<std::int32_t> ranks;
    bool comparable = true, is_counted_otherwise = false;
    for (const StatedStep& stated : steps) {
      if (!are_comparable(*wanted.step, *stated.step)) {
        not_comparable.emplace(stated.step->optimizer, wanted.step->optimizer);
        comparable = false;
        continue;
      }
      const AllowedOptions allowed{gradients.allowed_clip(iteration, name),
                                   samples_of(compared.tolerance, wanted.step->optimizer, iteration)};
      const std::string differs = describe_other_options(wanted, stated, allowed);
      if (differs.empty()) continue;
      if (words.empty()) words = differs;
      ranks.push_back(stated.rank);
      is_counted_otherwise = is_counted_otherwise || stated.step->calls != wanted.step->calls;
    }
    if (words.empty()) {
      if (comparable) equal.insert(id);
      continue;
    }
    Finding& finding = judged.verdicts.findings.emplace_back();
    if (ranks.size() < steps.size()) words += ", on " + describe_ranks(ranks);
    const bool is_other_iteration = is_counted_otherwise && uneven.contains(iteration);
    const Reason reason = is_other_iteration ? Reason::kStepCountDiffers : Reason::kOptionsDiffer;
    finding = finding_about(*update, Verdict::kFail, reason, "");
    finding.id = id;
    finding.message = fmt::format("{}: {}", to_string(id), words);
    finding.ranks = std::move(ranks);
  }
  compare_options_of_masters(reference, candidate, compared, of_reference, judged);
  for (const auto& [mine, wanted] : not_comparable) {
    judged.notes.push_back(fmt::format("optimizer {}, reference {}: their options could not be compared",
                                       printable(mine), printable(wanted)));
  }
  return equal;
}

struct RightAndWrong {
  std::int64_t right = 0, wrong = 0;
};
// Counts right and wrong by class of optimizer, and the kind that was checked.
using StepTally = std::map<std::pair<std::string, Kind>, RightAndWrong>;

std::pair<std::string, Kind> class_of(const StepCheck& check, const Finding& finding) {
  const auto found = check.optimizers.find(finding.id.with_kind(Kind::kParamDelta));
  return {found == check.optimizers.end() ? "" : found->second, finding.id.kind};
}

StepTally tally_of(const StepCheck& check) {
  StepTally tally;
  for (const Finding& finding : check.findings) {
    RightAndWrong& one = tally[class_of(check, finding)];
    one.right += finding.verdict == Verdict::kPass;
    one.wrong += finding.verdict == Verdict::kFail;
  }
  return tally;
}

// The classes that follow, in both runs, another rule than is known of them.
std::set<std::pair<std::string, Kind>> not_understood(const StepTally& reference, const StepTally& candidate) {
  std::set<std::pair<std::string, Kind>> classes;
  for (const auto& [one, count] : reference) {
    const auto other = candidate.find(one);
    const bool none_right = count.right == 0 && (other == candidate.end() || other->second.right == 0);
    if (count.wrong > 0 && none_right) classes.insert(one);
  }
  return classes;
}

std::string describe_unknown(const std::string& optimizer, Kind kind) {
  if (kind == Kind::kParamDelta) {
    return fmt::format(
        "no step of {} is what its gradient, options and state give, in either run: it follows another rule, and its "
        "steps were not checked",
        optimizer);
  }
  return fmt::format(
      "no parameter of {} is what its step made, in either run: something else changes them, and they were not checked",
      optimizer);
}

// True for the default tolerances, which hold no update against the reference's.
bool is_unmeasured(const ToleranceFile* tolerance) { return tolerance != nullptr && !tolerance->unmeasured.empty(); }

// Finds what is wrong in a run and deviates in the reference as well, of classes that follow their rule elsewhere: there
// the replay proves nothing. Of values that are put back to a few units in the last place, which element is off is a
// matter of chance: there the reference's other parameters of the class speak for this one, too.
class Deviations {
 public:
  Deviations(const StepCheck& reference, const ToleranceFile* tolerance) : tolerance_(tolerance) {
    for (const Finding& finding : reference.findings) {
      if (finding.verdict != Verdict::kFail) continue;
      const auto beside = reference.changed_beside.find(finding.id);
      if (finding.id.kind == Kind::kParamDelta || beside != reference.changed_beside.end()) ids_.insert(finding.id);
      if (beside != reference.changed_beside.end() && beside->second) {
        put_back_.emplace(finding.id.iteration, class_of(reference, finding).first);
      }
    }
  }

  // True for a wrong step of `check`, the candidate's.
  bool explain(const StepCheck& check, const Finding& finding) const {
    const std::pair key(finding.id.iteration, class_of(check, finding).first);
    const bool is_judged = ids_.contains(finding.id) && (is_held(key) || is_unmeasured(tolerance_));
    if (finding.id.kind == Kind::kParamDelta) return is_judged;
    const auto beside = check.changed_beside.find(finding.id);
    if (beside == check.changed_beside.end()) return false;
    return is_judged || (beside->second && put_back_.contains(key));
  }

  bool are_in_reference(const TensorId& id) const { return ids_.contains(id); }

  // True where measured tolerances hold updates of the class, in the iteration, against the reference's. Nothing else
  // holds a deviation that is no rounding.
  bool is_held(const std::pair<std::int32_t, std::string>& key) const {
    return tolerance_ != nullptr && tolerance_->updates.contains({key.second, key.first});
  }

 private:
  const ToleranceFile* tolerance_;
  std::set<TensorId> ids_;
  std::set<std::pair<std::int32_t, std::string>> put_back_;  // iterations and classes
};

// Returns the wrong steps of both runs that prove nothing: the deviation is the reference's own.
std::set<TensorId> deviating_in_both(const StepCheck& reference, const StepCheck& candidate,
                                     const Deviations& deviations) {
  std::set<TensorId> wrong, ids;
  for (const Finding& finding : candidate.findings) {
    if (finding.verdict != Verdict::kFail) continue;
    wrong.insert(finding.id);
    if (deviations.explain(candidate, finding)) ids.insert(finding.id);
  }
  for (const Finding& finding : reference.findings) {
    const auto beside = reference.changed_beside.find(finding.id);
    // One that the reference has put back, and the candidate's is to the bit.
    if (beside != reference.changed_beside.end() && beside->second && !wrong.contains(finding.id)) {
      ids.insert(finding.id);
    }
  }
  return ids;
}

// Returns the updates behind wrong steps of the candidate that are not reported, because the reference's are wrong as
// well, and that nothing else judges.
std::set<TensorId> find_unheld(const StepCheck& candidate, const std::set<std::pair<std::string, Kind>>& unknown,
                               const std::set<TensorId>& deviating, const Deviations& deviations) {
  std::set<TensorId> unheld;
  for (const Finding& finding : candidate.findings) {
    const auto one = class_of(candidate, finding);
    const bool is_left_out = unknown.contains(one) || deviating.contains(finding.id);
    if (finding.verdict != Verdict::kFail || !is_left_out || deviations.is_held({finding.id.iteration, one.first})) {
      continue;
    }
    const auto beside = candidate.changed_beside.find(finding.id);
    const bool is_put_back = beside != candidate.changed_beside.end() && beside->second;
    if (!is_put_back) unheld.insert(finding.id.with_kind(Kind::kParamDelta));
  }
  return unheld;
}

// Says of which parameters nothing was proved by computing their steps again.
void note_deviations(const StepCheck& check, const std::set<TensorId>& ids, std::vector<std::string>& notes) {
  std::map<std::pair<std::string, Kind>, std::vector<TensorId>> classes;
  for (const Finding& finding : check.findings) {
    if (ids.contains(finding.id)) classes[class_of(check, finding)].push_back(finding.id);
  }
  for (const auto& [one, deviating] : classes) {
    const std::string_view what =
        one.second == Kind::kParamDelta
            ? "not what gradient, options and state give, in either run; something else changes the parameters, and "
              "these updates are held against the reference's by regression"
            : "not to the last bit what the step made, in either run; something else moves the parameters, and these "
              "values are held against the reference's by their tolerances";
    notes.push_back(fmt::format("{} {} of {}, the first {}: {}", deviating.size(), name_of(one.second),
                                printable(last_component(one.first)), to_string(deviating.front()), what));
  }
}

// Counts an update whose rule is not known, and what `deviating` has, as not checked.
void leave_out_unknown_rules(StepCheck& check, const std::set<std::pair<std::string, Kind>>& classes,
                             const std::set<TensorId>& deviating, StepCoverage& coverage) {
  std::set<std::string> parameters;  // that were not checked in every iteration
  for (const Finding& finding : check.findings) {
    if (finding.reason == Reason::kNotCheckable) parameters.insert(finding.id.name);
    const bool is_unknown = classes.contains(class_of(check, finding));
    if (finding.verdict != Verdict::kFail || !(is_unknown || deviating.contains(finding.id))) continue;
    if (finding.id.kind == Kind::kParamAfter) {
      --coverage.copies_checked;
      continue;
    }
    --coverage.updates_checked;
    std::string& reason = check.unchecked[finding.id];
    reason = is_unknown ? fmt::format("{} follows another rule in both runs", class_of(check, finding).first)
                        : "something else than its optimizer changes it in both runs";
    ++coverage.not_checkable[reason];
    parameters.insert(finding.id.name);
    if (is_unknown) coverage.optimizers.erase(class_of(check, finding).first);
  }
  coverage.parameters_checked = coverage.parameters - static_cast<std::int64_t>(parameters.size());
}

// Takes an update out of those that were not checked for `reason`.
void uncount_not_checkable(const std::string& reason, StepCoverage& coverage) {
  if (--coverage.not_checkable.at(reason) == 0) coverage.not_checkable.erase(reason);
}

// Without what says of optimizers, every update is one that was not checked.
StepCoverage cover_unstated(const Matching& matching, std::map<TensorId, std::string>& unchecked) {
  StepCoverage coverage;
  std::set<std::string> parameters;
  for (const TensorPair& pair : matching.pairs) {
    const TensorId& id = pair.candidate->id;
    if (id.kind != Kind::kParamDelta || !is_floating(pair.reference->dtype) || !is_floating(pair.candidate->dtype)) {
      continue;
    }
    unchecked[id] = "its optimizer was not recorded";
    parameters.insert(id.name);
    ++coverage.updates;
  }
  coverage.parameters = static_cast<std::int64_t>(parameters.size());
  if (coverage.updates > 0) coverage.not_checkable["its optimizer was not recorded"] = coverage.updates;
  return coverage;
}

// Judges the updates that were not checked by regression, and counts them.
void judge_unchecked(const AlignedTrace& reference, const Compared& compared,
                     const std::map<TensorId, std::string>& unchecked, JudgedSteps& judged) {
  std::set<TensorId> wanted;
  for (const auto& [id, reason] : unchecked) wanted.insert(id);
  for (const Finding& finding : judged.verdicts.findings) wanted.erase(finding.id);  // other options: other updates
  JudgedRegression regression = judge_by_regression(reference, compared, wanted);
  std::move(regression.findings.begin(), regression.findings.end(), std::back_inserter(judged.verdicts.findings));
  StepCoverage& coverage = *judged.coverage;
  coverage.worst_regressed = regression.worst;
  coverage.updates_regressed = static_cast<std::int64_t>(regression.judged.size());
  for (const auto& [id, optimizer] : regression.judged) {
    coverage.iterations.insert(id.iteration);
    if (!optimizer.empty()) coverage.regressed_optimizers.insert(optimizer);
    uncount_not_checkable(unchecked.at(id), coverage);
  }
  for (const auto& [id, why] : regression.not_judged) {
    const std::string& reason = unchecked.at(id);
    uncount_not_checkable(reason, coverage);
    ++coverage.not_checkable[fmt::format("{}, and by regression: {}", reason, why)];
  }
}

}  // namespace

JudgedSteps judge_steps(const AlignedTrace& reference, const AlignedTrace& candidate, const Compared& compared,
                        const ParameterCounterparts* counterparts, const Replay* replay) {
  JudgedSteps judged;
  StepCheck of_candidate = check_steps(*candidate.trace, candidate.alignment, compared.threads, replay);
  if (counterparts != nullptr) of_candidate = in_names_of_reference(std::move(of_candidate), *counterparts);
  const StepCheck of_reference = check_steps(*reference.trace, reference.alignment, compared.threads, replay);
  const std::set<TensorId> equal = compare_options(reference, candidate, compared, counterparts, judged);
  const auto unknown = not_understood(tally_of(of_reference), tally_of(of_candidate));
  for (const auto& [optimizer, kind] : unknown) judged.notes.push_back(describe_unknown(printable(optimizer), kind));
  const Deviations deviations(of_reference, compared.tolerance);
  std::set<TensorId> deviating = deviating_in_both(of_reference, of_candidate, deviations);
  std::erase_if(deviating, [&](const TensorId& id) {  // what their class's note says already
    const auto found = of_reference.optimizers.find(id.with_kind(Kind::kParamDelta));
    return found != of_reference.optimizers.end() && unknown.contains({found->second, id.kind});
  });
  note_deviations(of_candidate, deviating, judged.notes);
  judged.verdicts.are_stated = of_candidate.coverage.parameters > 0 || !judged.verdicts.elsewhere.empty();
  judged.verdicts.changed_after = of_candidate.changed_after;
  judged.verdicts.unheld = find_unheld(of_candidate, unknown, deviating, deviations);
  if (const auto& elsewhere = judged.verdicts.elsewhere; !elsewhere.empty()) {
    judged.notes.push_back(describe_steps_elsewhere(elsewhere, *candidate.trace));
  }
  for (const auto& [check, words] :
       {std::pair(&std::as_const(of_candidate), ""), std::pair(&of_reference, "in the reference, ")}) {
    for (const Finding& finding : check->findings) {
      if (finding.verdict != Verdict::kFail || unknown.contains(class_of(*check, finding))) continue;
      if (deviating.contains(finding.id)) continue;
      Finding& kept = judged.verdicts.findings.emplace_back(finding);
      const std::string id = to_string(finding.id) + ": ";
      if (check == &of_reference) {
        kept.message = id + words + finding.message.substr(id.size());
        kept.ranks.clear();
      } else if (deviations.are_in_reference(finding.id)) {
        kept.message +=
            "; the reference's deviates as well, and tolerances of `ttrace estimate-tolerance` hold one against the "
            "other";
      }
    }
  }
  for (const auto& [id, rests_on] : of_candidate.rests_on) {
    // A copy needs no options: the update that it rests on is judged by itself.
    if (id.kind == Kind::kParamAfter || equal.contains(id)) judged.verdicts.proved.emplace(id, rests_on);
  }
  if (of_candidate.coverage.parameters > 0) {
    judged.coverage = of_candidate.coverage;
    leave_out_unknown_rules(of_candidate, unknown, deviating, *judged.coverage);
  }
  if (compared.tolerance == nullptr) return judged;
  if (!judged.coverage) judged.coverage = cover_unstated(compared.matching, of_candidate.unchecked);
  judge_unchecked(reference, compared, of_candidate.unchecked, judged);
  judged.verdicts.jumps = find_jumps(reference, compared, judged.verdicts.proved);
  // Where nothing says of optimizers, nothing is said of their steps.
  if (of_candidate.coverage.parameters == 0 && judged.coverage->updates_regressed == 0) judged.coverage.reset();
  return judged;
}

}  // namespace ttrace
