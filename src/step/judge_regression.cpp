#include "step/judge_regression.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "judge/judge.h"
#include "step/options.h"
#include "step/slopes.h"

namespace ttrace {
namespace {

// A number near 1, with enough digits to show two of what it is away from that.
std::string describe_times(double error) {
  const double size = std::abs(error);
  const int digits = size > 0 && size < 1 ? static_cast<int>(std::ceil(-std::log10(size))) + 1 : 2;
  return fmt::format("{:.{}f}", 1 + error, std::clamp(digits, 4, 12));
}

// Judges the updates of one class of optimizers in one iteration.
class UpdateGroup {
 public:
  struct Member {
    const RegressedUpdate* update;
    const TensorPair* pair;
    const Difference* difference;
    std::optional<double> lr;  // the reference's
  };

  explicit UpdateGroup(const UpdateTolerance& tolerance) : tolerance_(tolerance) {}

  void add(const Member& member) { members_.push_back(member); }

  void judge(const std::string& optimizer, JudgedRegression& result) {
    std::vector<const Member*> judged;
    for (const Member& member : members_) {
      std::string reason = why_not(member);
      if (reason.empty()) {
        result.judged[member.update->id] = optimizer;
        judged.push_back(&member);
      } else {
        result.not_judged[member.update->id] = std::move(reason);
      }
    }
    std::map<const Member*, std::string> wrong;
    for (const Member* member : judged) {
      std::string words = objection_to(*member, result);
      if (!words.empty()) wrong[member] = std::move(words);
    }
    judge_together(judged, wrong, result);
    for (const auto& [member, words] : wrong) {
      Finding finding = finding_about(*member->pair->candidate, Verdict::kFail, Reason::kStepDiffers, words);
      finding.ranks = ranks_holding(*member->difference);
      result.findings.push_back(std::move(finding));
    }
  }

 private:
  double allowed(UpdateMeasure measure) const { return allowed_for(tolerance_, measure); }
  double allowed(UpdateMeasure measure, double rounding) const { return std::max(allowed(measure), rounding); }
  double allowed_slope(const UpdateSums& sums) const { return allowed(UpdateMeasure::kTensor, slope_rounding(sums)); }
  double allowed_norm(const UpdateSums& sums) const { return allowed(UpdateMeasure::kNorm, norm_rounding(sums)); }

  // Says why nothing that an update could do would be seen.
  std::string why_not(const Member& member) const {
    const UpdateSums& sums = member.update->sums;
    if (!member.update->reason.empty()) return member.update->reason;
    if (sums.moved == 0) return "the reference does not move it";
    if (has_slope(sums)) {
      return allowed_slope(sums) < 1 ? "" : "rounding moves such updates as far as any fault would";
    }
    return allowed_norm(sums) < 1
               ? ""
               : fmt::format("fewer than {} of its elements have a gradient above rounding", kLeastAbove);
  }

  // True where `value` is more than correct runs explain.
  static bool exceeds(double value, double most, double& worst) {
    if (most >= 1) return false;
    if (!(value <= most)) return true;
    worst = std::max(worst, value / most);
    return false;
  }

  // Says what is wrong with an update by itself; empty where it is right.
  std::string objection_to(const Member& member, JudgedRegression& result) const {
    const UpdateSums& sums = member.update->sums;
    double worst = 0;
    std::string words;
    if (sums.candidate_square == 0) return "not updated; the reference updates it";
    const double still_above = allowed(UpdateMeasure::kStillAbove, still_rounding(sums));
    if (exceeds(share_still_above(sums), still_above, worst)) {
      words = fmt::format(
          "{} of {} elements that the reference updates are not updated, where gradients are above "
          "rounding; correct runs: at most {:.2g} of them",
          sums.still_above, sums.moved_above, still_above);
    } else if (exceeds(share_still(sums), allowed(UpdateMeasure::kStill), worst)) {
      words = fmt::format(
          "{} of {} elements that the reference updates are not updated; correct runs: at most {:.2g} "
          "of them",
          sums.still, sums.moved, allowed(UpdateMeasure::kStill));
    } else if (has_slope(sums) && exceeds(std::abs(sums.slope_error()), allowed_slope(sums), worst)) {
      words = fmt::format(
          "the update is {} times the reference's, over {} elements with a gradient above rounding; "
          "correct runs: within {:.1g}",
          describe_times(sums.slope_error()), sums.above, allowed_slope(sums));
      if (sums.across() > 0.1 * std::abs(sums.slope_error())) {
        words = fmt::format(
            "the update is no multiple of the reference's: {} times as much along it, and {:.2g} times its size "
            "across, over {} elements with a gradient above rounding; correct runs: within {:.1g} along it",
            describe_times(sums.slope_error()), sums.across(), sums.above, allowed_slope(sums));
      }
      if (sums.reversed > 0 && 10 * sums.reversed <= sums.above &&
          std::abs(sums.slope_error_of_others()) <= allowed_slope(sums)) {
        words = fmt::format(
            "{} of {} elements with a gradient above rounding {} the other way, and the others as the reference's; "
            "where an optimizer steps by the sign of a sum, as Lion does, a correct run may turn over what is near "
            "zero, and what comes after follows from that: compare its first step",
            sums.reversed, sums.above, sums.reversed == 1 ? "goes" : "go");
      }
    } else if (!has_slope(sums) && exceeds(std::abs(norm_error(sums)), allowed_norm(sums), worst)) {
      words = fmt::format("the update is {} times as large as the reference's; correct runs: within {:.1g}",
                          describe_times(norm_error(sums)), allowed_norm(sums));
    }
    if (words.empty()) result.worst = std::max(result.worst, worst);
    return words;
  }

  // Judges all updates together, and gives those that follow from what is wrong of all the words that say so.
  void judge_together(const std::vector<const Member*>& judged, std::map<const Member*, std::string>& wrong,
                      JudgedRegression& result) const {
    std::vector<const Member*> sloped;
    for (const Member* member : judged) {
      if (has_slope(member->update->sums)) sloped.push_back(member);
    }
    const auto is_wrong_alone = [&](const Member* member) { return wrong.contains(member); };
    const auto count = std::count_if(sloped.begin(), sloped.end(), is_wrong_alone);
    if (2 * count <= static_cast<std::ptrdiff_t>(sloped.size())) std::erase_if(sloped, is_wrong_alone);
    std::vector<const UpdateSums*> sums;
    for (const Member* member : sloped) sums.push_back(&member->update->sums);
    const PooledSlope pooled = pool(sums);
    if (pooled.tensors == 0) return;
    double worst = 0;
    const double slope = allowed(UpdateMeasure::kPool, slope_rounding(pooled.total));
    const double decay = allowed(UpdateMeasure::kDecay, decay_rounding(pooled.total));
    const bool other_slope = exceeds(std::abs(pooled.slope_error), slope, worst);
    const bool other_decay = exceeds(pooled.decay_share, decay, worst);
    if (!other_slope && !other_decay) {
      result.worst = std::max(result.worst, worst);
      return;
    }
    // Where both are more than they may be, the larger part is named.
    const bool decays = other_decay && (!other_slope || pooled.decay_share > std::abs(pooled.beside_decay));
    const std::string words = decays ? describe_decay(pooled, *sloped.front(), decay) : describe_slope(pooled, slope);
    bool named = false;
    const Member* largest = sloped.front();
    for (const Member* member : sloped) {
      const UpdateSums& own = member->update->sums;
      if (own.dd > largest->update->sums.dd) largest = member;
      const double expected = decays ? pooled.decay * own.dp / own.dd : pooled.slope_error;
      const double left = std::abs(own.slope_error() - expected);
      const bool follows = left <= allowed_slope(own) || left <= 0.05 * std::abs(expected);
      const bool stands_out = std::abs(own.slope_error()) > slope;
      if (is_wrong_alone(member) ? !follows : !stands_out) continue;
      wrong[member] = words;
      named = true;
    }
    if (!named) wrong[largest] = words;
  }

  static std::string describe_slope(const PooledSlope& pooled, double allowed) {
    return fmt::format("the update is {} times the reference's over {} tensor{}; correct runs: within {:.1g}",
                       describe_times(pooled.slope_error), pooled.tensors, pooled.tensors == 1 ? "" : "s", allowed);
  }

  static std::string describe_decay(const PooledSlope& pooled, const Member& member, double allowed) {
    const std::string cause = member.lr && *member.lr > 0 && pooled.decay < 0
                                  ? fmt::format(", as weight decay that is {:.3g} larger gives at lr {:g}",
                                                -pooled.decay / *member.lr, *member.lr)
                                  : "";
    return fmt::format(
        "the update has {:+.3g} times the parameter in it beside the reference's, {:.2g} of its size over "
        "{} tensor{}{}; correct runs: within {:.1g}",
        pooled.decay, pooled.decay_share, pooled.tensors, pooled.tensors == 1 ? "" : "s", cause, allowed);
  }

  const UpdateTolerance& tolerance_;
  std::vector<Member> members_;
};

// The first iteration in which a gradient, or what it was computed from at the start, is wrong.
std::int32_t first_wrong_iteration(const Compared& compared) {
  std::int32_t first = std::numeric_limits<std::int32_t>::max();
  for (std::size_t i = 0; i < compared.matching.pairs.size(); ++i) {
    const TensorId& id = compared.matching.pairs[i].candidate->id;
    if ((id.kind != Kind::kMainGrad && id.kind != Kind::kStepGrad) || id.iteration >= first) continue;
    if (is_wrong(judge(compared.matching.pairs[i], compared.differences[i], compared.tolerance))) first = id.iteration;
  }
  for (const Finding& finding : compared.matching.findings) {
    if (finding.id.kind == Kind::kMainGrad && is_wrong(finding)) first = std::min(first, finding.id.iteration);
  }
  return first;
}

}  // namespace

JudgedRegression judge_by_regression(const AlignedTrace& reference, const Compared& compared,
                                     const std::set<TensorId>& wanted) {
  const std::vector<TensorPair>& pairs = compared.matching.pairs;
  const auto& tolerances = compared.tolerance->updates;
  JudgedRegression result;
  const std::int32_t first_wrong = first_wrong_iteration(compared);
  const StatedSteps stated = stated_steps(reference);
  std::map<TensorId, std::size_t> places;
  std::map<TensorId, UpdateTolerances::key_type> keys;
  std::set<TensorId> judgeable;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const TensorId& id = pairs[i].candidate->id;
    if (!wanted.contains(id)) continue;
    places[id] = i;
    const auto steps = stated.find({id.iteration, id.name});
    const UpdateTolerances::key_type key{steps == stated.end() ? "" : steps->second.front().step->optimizer,
                                         id.iteration};
    if (id.iteration >= first_wrong) {
      result.not_judged[id] = "its gradients are not the reference's";
    } else if (!tolerances.contains(key)) {
      result.not_judged[id] = "the tolerance file does not say how far it may be from the reference's";
    } else {
      keys[id] = key;
      judgeable.insert(id);
    }
  }
  std::vector<RegressedUpdate> updates = regress_updates(pairs, compared.differences, judgeable, compared.threads);
  std::map<UpdateTolerances::key_type, UpdateGroup> groups;
  for (RegressedUpdate& update : updates) {
    const std::size_t place = places.at(update.id);
    const auto steps = stated.find({update.id.iteration, update.id.name});
    std::optional<double> lr;
    const double epsilon = epsilon_of(steps == stated.end() ? Dtype::kFloat32 : updated_dtype(steps->second.front()));
    for (double* units : {&update.sums.d_units, &update.sums.p_units, &update.sums.all_units}) {
      *units *= epsilon;
    }
    if (steps != stated.end()) {
      const auto& options = steps->second.front().step->options;
      if (const auto found = options.find("lr"); found != options.end()) lr = found->second;
    }
    const auto& key = keys.at(update.id);
    groups.try_emplace(key, tolerances.at(key))
        .first->second.add({&update, &pairs[place], &compared.differences[place], lr});
  }
  for (auto& [key, group] : groups) group.judge(key.first, result);
  return result;
}

}  // namespace ttrace
