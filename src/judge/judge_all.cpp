#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "base/count_of.h"
#include "base/describe.h"
#include "base/estimator.h"
#include "judge/backward_order.h"
#include "judge/bits.h"
#include "judge/coherence.h"
#include "judge/cycles.h"
#include "judge/equal_rows.h"
#include "judge/gathered.h"
#include "judge/judge.h"
#include "judge/jumps.h"
#include "judge/later_sums.h"
#include "judge/padding.h"
#include "judge/rounding_alone.h"
#include "judge/scaled_back.h"
#include "judge/shared_inputs.h"
#include "judge/stepped_parameters.h"
#include "judge/truncated_by_one.h"
#include "judge/unproved_steps.h"
#include "judge/zero_gradients.h"

namespace ttrace {
namespace {

// The worse of two verdicts on one tensor. Fail before missing: something is there, and it is wrong.
Verdict worse(Verdict a, Verdict b) {
  for (const Verdict verdict : {Verdict::kFail, Verdict::kMissing, Verdict::kNotSeen, Verdict::kUntrusted}) {
    if (a == verdict || b == verdict) return verdict;
  }
  return Verdict::kPass;
}

// Gives findings the order of the reference's tensors: they have that of the side they were made on, and the two sides
// do not execute alike.
void set_order(std::vector<Finding>& findings, const Alignment& reference) {
  const Cycles cycles(reference);
  for (Finding& finding : findings) {
    const LogicalTensor* tensor = counterpart(reference, finding.id);
    finding.only_in_candidate = tensor == nullptr;
    if (tensor != nullptr) finding.order = tensor->order;
    finding.cycle = cycles.of(finding);
  }
}

// Acts only where a gradient is wrong: it takes a look at all of the reference's.
void put_in_backward_order(std::vector<Finding>& findings, const Alignment& reference) {
  const auto is_gradient = [](const Finding& finding) {
    return finding.id.kind == Kind::kGradOutput || finding.id.kind == Kind::kGradInput;
  };
  if (std::none_of(findings.begin(), findings.end(),
                   [&](const Finding& finding) { return is_wrong(finding) && is_gradient(finding); })) {
    return;
  }
  const std::map<TensorId, std::uint64_t> order = backward_order(reference);
  for (Finding& finding : findings) {
    if (const auto found = order.find(finding.id); found != order.end()) finding.order = found->second;
  }
}

// Returns what a jump of one element does to a statistic of the tensor; `jump` is in units of the tensor.
double jump_in(Statistic statistic, const Difference& difference, double jump) {
  const double norm = std::sqrt(difference.reference_square);
  switch (statistic) {
    case Statistic::kScale:
      return jump * difference.reference_max_abs / difference.reference_square;
    case Statistic::kRow:
      return jump / norm * std::sqrt(static_cast<double>(difference.rows));
    case Statistic::kElement:
      return jump / norm * std::sqrt(static_cast<double>(difference.elements));
    default:
      return jump / norm;
  }
}

// Lets the finding pass if its statistics are within their tolerances and a jump of one element. What jumps and what
// all elements have are independent: their squares add up. What users allow is what they said; and where a jump is all
// that the tensor is, it is noise.
bool pass_with_jump(Finding& finding, double jump) {
  const Difference& difference = *finding.difference;
  const double allowed = std::hypot(*finding.allowed, jump_in(Statistic::kNorm, difference, jump));
  if (finding.by_override || allowed >= 1 || !(difference.rel_err() <= allowed)) return false;
  std::vector<JudgedStatistic> statistics = finding.statistics;
  for (JudgedStatistic& one : statistics) {
    one.allowed = std::hypot(one.allowed, jump_in(one.statistic, difference, jump));
    if (!(std::fabs(one.measured) <= one.allowed)) return false;
  }
  finding.message = fmt::format(
      "{}: rel_err {:.3g}, allowed {:.3g}, of which {:.3g} are for an element whose gradient is about as small as its "
      "error",
      to_string(finding.id), difference.rel_err(), allowed, jump_in(Statistic::kNorm, difference, jump));
  finding.allowed = allowed;
  finding.statistics = std::move(statistics);
  finding.exceeded = Statistic::kNorm;
  finding.ranks.clear();
  return true;
}

// Lets an update pass, or the parameter after it, that is right by itself, if what it was computed from is the
// reference's: where it is noise beside the reference's, or differs from it by a jump.
bool pass_by_itself(Finding& finding, const StepVerdicts& steps) {
  const auto jump = steps.jumps.find(finding.id.with_kind(Kind::kParamDelta));
  if (finding.reason == Reason::kNoise) {
    finding.message = fmt::format("{}: {}, which are the reference's", to_string(finding.id),
                                  finding.id.kind == Kind::kParamDelta ? "what its gradient, options and state give"
                                                                       : "what its value before and its update give");
  } else if (finding.reason != Reason::kExceedsTolerance || jump == steps.jumps.end() ||
             !pass_with_jump(finding, jump->second)) {
    return false;
  }
  finding.verdict = Verdict::kPass;
  finding.reason = Reason::kNone;
  return true;
}

// Lets an update pass that is `noise` beside the reference's, or differs by one element that jumps, where its step is
// proved, and what it was computed from passes; and then the parameter that it was added to.
void pass_what_is_proved(const StepVerdicts& steps, std::vector<Finding>& findings) {
  if (steps.proved.empty()) return;
  std::map<TensorId, std::int64_t> doubts;  // of each tensor, the findings that let nothing rest on it
  for (const Finding& finding : findings) {
    doubts[finding.id] += finding.verdict == Verdict::kPass || finding.reason == Reason::kAllZero ? 0 : 1;
  }
  const auto is_right = [&](const TensorId& id) {
    const auto found = doubts.find(id);
    return found != doubts.end() && found->second == 0;
  };
  for (const Kind kind : {Kind::kParamDelta, Kind::kParamAfter}) {
    for (Finding& finding : findings) {
      const auto proof = steps.proved.find(finding.id);
      if (finding.id.kind != kind || proof == steps.proved.end()) continue;
      if (!std::all_of(proof->second.begin(), proof->second.end(), is_right)) continue;
      if (!pass_by_itself(finding, steps)) continue;
      --doubts[finding.id];
    }
  }
}

// Says how many tensors were compared by sketches, and what that does not show; empty where none was, but of light
// iterations: those are looked at beside what is recorded whole.
std::optional<std::string> describe_sketched(const Matching& matching, std::span<const Difference> differences) {
  std::int64_t sketched = 0;
  double widest = 1;
  for (std::size_t i = 0; i < differences.size(); ++i) {
    const bool is_light = i < matching.pairs.size() && matching.pairs[i].candidate->light;
    if (!differences[i].sketch || is_light) continue;
    ++sketched;
    widest = std::max(widest, differences[i].sketch->widening);
  }
  if (sketched == 0) return std::nullopt;
  return fmt::format(
      "{} of {} comparisons are of sketches: they estimate the norm of a difference, and are allowed up to {:.3g} "
      "times more for that; a wrong element, or elements that changed places, within the noise of a cell of up to "
      "16384 elements are not seen",
      sketched, differences.size(), widest);
}

// Calls `visit` with every finding of a summarized report.
template <class Visit>
void for_each_finding(const Report& report, const Visit& visit) {
  for (const std::vector<Finding>* findings : {&report.findings, &report.passed}) {
    for (const Finding& finding : *findings) visit(finding);
  }
}

void count_verdicts(Report& report) {
  report.totals.counts = {};
  report.totals.by_name.clear();
  std::map<TensorId, Verdict> verdicts;
  for_each_finding(report, [&](const Finding& finding) {
    if (finding.id.name.empty()) return report.totals.counts.add(finding.verdict);
    const auto [found, is_new] = verdicts.emplace(finding.id, finding.verdict);
    if (!is_new) found->second = worse(found->second, finding.verdict);
  });
  for (const auto& [id, verdict] : verdicts) {
    report.totals.counts.add(verdict);
    report.totals.by_name[{id.name, id.kind}].add(verdict);
  }
}

void note_nonfinite_and_replicas(std::span<const Finding> findings, std::vector<std::string>& notes) {
  std::int64_t nonfinite = 0, replicas = 0;
  const Finding* first_nonfinite = nullptr;
  const Finding* first_replicas = nullptr;
  for (const Finding& finding : findings) {
    if (!finding.difference || finding.verdict == Verdict::kFail) continue;
    if (finding.difference->reference_nan + finding.difference->reference_inf > 0 && nonfinite++ == 0) {
      first_nonfinite = &finding;
    }
    if (!finding.difference->replica_ranks.empty() && replicas++ == 0) first_replicas = &finding;
  }
  if (nonfinite > 0) {
    notes.push_back(
        fmt::format("{} with NaN or Inf at the same places on both sides, judged by the "
                    "other elements, such as {}",
                    count_of(nonfinite, "tensor"), to_string(first_nonfinite->id)));
  }
  if (replicas > 0) {
    notes.push_back(fmt::format("{} with copies on several ranks that differ, within what is allowed, such as {}",
                                count_of(replicas, "tensor"), to_string(first_replicas->id)));
  }
}

struct Tally {
  std::int64_t findings = 0, not_in_candidate = 0, not_in_reference = 0;
};

// Finds iterations and micro-batches of which one side has nothing. The micro-batches of a missing iteration are not
// listed.
std::vector<MissingGroup> find_missing_groups(const Report& report) {
  std::map<std::int32_t, Tally> iterations;
  std::map<std::pair<std::int32_t, std::int32_t>, Tally> microbatches;
  for_each_finding(report, [&](const Finding& finding) {
    if (finding.id.name.empty()) return;
    Tally& iteration = iterations[finding.id.iteration];
    Tally& microbatch = microbatches[{finding.id.iteration, finding.id.microbatch}];
    for (Tally* tally : {&iteration, &microbatch}) {
      ++tally->findings;
      tally->not_in_candidate += finding.reason == Reason::kMissingInCandidate;
      tally->not_in_reference += finding.reason == Reason::kMissingInReference;
    }
  });
  const auto is_missing_whole = [](const Tally& tally) {
    return tally.findings > 1 && (tally.not_in_candidate == tally.findings || tally.not_in_reference == tally.findings);
  };
  const auto reason = [](const Tally& tally) {
    return tally.not_in_candidate > 0 ? Reason::kMissingInCandidate : Reason::kMissingInReference;
  };
  std::vector<MissingGroup> groups;
  for (const auto& [iteration, tally] : iterations) {
    if (is_missing_whole(tally)) groups.push_back({reason(tally), iteration, std::nullopt, tally.findings});
  }
  for (const auto& [id, tally] : microbatches) {
    if (id.second == kNoMicrobatch || is_missing_whole(iterations[id.first]) || !is_missing_whole(tally)) continue;
    groups.push_back({reason(tally), id.first, id.second, tally.findings});
  }
  return groups;
}

double coverage_of(const Alignment& reference, const Matching& matching) {
  std::set<TensorId> compared;
  for (const TensorPair& pair : matching.pairs) compared.insert(pair.reference->id);
  std::size_t total = 0;
  for (const auto& [id, tensor] : reference.tensors) {
    // A recomputation, a buffer and an optimizer's state that only the reference has are waived, and do not count.
    const bool may_be_missing = id.pass == Pass::kRecompute || is_optimizer_state(id.kind) || is_buffer_kind(id.kind);
    total += !may_be_missing || compared.contains(id) ? 1 : 0;
  }
  return total == 0 ? 0 : static_cast<double>(compared.size()) / static_cast<double>(total);
}

// Returns, for every floating-point tensor, why it proves nothing, by the worst of its findings; empty: it does.
std::map<TensorId, std::string> doubts_of(std::span<const Finding> findings, bool accept_excuses) {
  std::map<TensorId, std::string> doubts;
  for (const Finding& finding : findings) {
    if (!finding.floating || finding.light) continue;
    std::string& doubt = doubts[finding.id];
    if (finding.verdict != Verdict::kPass) {
      doubt = name_of(finding.reason);
    } else if (finding.excused && !accept_excuses) {
      doubt = kByOverride;
    }
  }
  return doubts;
}

// Counts what is proved. What is waived is not. What begins at zero holds back the gradients behind it, and recording
// goes on until these are more: what is zero on both sides in one iteration, and proved in a later one, does not count.
Proofs prove(const std::map<TensorId, std::string>& doubts, const std::set<TensorId>& waived) {
  std::map<ToleranceKey, std::int32_t> last_proved;
  for (const auto& [id, doubt] : doubts) {
    if (!doubt.empty() || waived.contains(id)) continue;
    const auto [found, is_new] = last_proved.try_emplace({id.kind, id.name}, id.iteration);
    if (!is_new) found->second = std::max(found->second, id.iteration);
  }
  Proofs proofs;
  for (const auto& [id, doubt] : doubts) {
    const bool is_waived = waived.contains(id);
    const auto proved = last_proved.find({id.kind, id.name});
    const bool is_proved_later = proved != last_proved.end() && proved->second > id.iteration;
    if (!is_waived && doubt == name_of(Reason::kAllZero) && is_proved_later) continue;
    KindProof& proof = proofs[id.kind];
    ++proof.compared;
    if (is_waived || !doubt.empty()) {
      ++proof.others[is_waived ? kByWaiver : doubt];
    } else {
      ++proof.proved;
    }
  }
  return proofs;
}

// Notes the light iterations of which more than half proves nothing.
void note_unproved_light_iterations(std::span<const Finding> findings, std::vector<std::string>& notes) {
  struct LightTally {
    std::int64_t compared = 0;
    std::map<std::string_view, std::int64_t> unproved;  // by reason
  };
  std::map<std::int32_t, LightTally> tallies;  // by iteration
  for (const Finding& finding : findings) {
    if (!finding.floating || !finding.light || is_wrong(finding)) continue;
    LightTally& tally = tallies[finding.id.iteration];
    ++tally.compared;
    if (finding.verdict != Verdict::kPass) ++tally.unproved[name_of(finding.reason)];
  }
  for (const auto& [iteration, tally] : tallies) {
    std::int64_t unproved = 0;
    std::vector<std::string> reasons;
    for (const auto& [reason, count] : tally.unproved) {
      unproved += count;
      reasons.push_back(fmt::format("{} {}", count, reason));
    }
    if (2 * unproved <= tally.compared) continue;
    notes.push_back(fmt::format(
        "light iteration {}: {} of {} floating-point tensors prove nothing ({}): a mistake that shows there "
        "alone may not be seen",
        iteration, unproved, tally.compared, fmt::join(reasons, ", ")));
  }
}

std::vector<OverrideUse> uses_of(const ToleranceFile& tolerance, std::span<const Finding> findings) {
  std::vector<OverrideUse> uses;
  for (const ToleranceOverride& item : tolerance.overrides) {
    uses.push_back(
        {fmt::format("{}:{}", tolerance.path, item.line), item.pattern, item.kind, item.allowed, item.reason});
  }
  for (const Finding& finding : findings) {
    if (!finding.by_override) continue;
    OverrideUse& use = uses.at(*finding.by_override);
    ++use.covered;
    use.excused += finding.excused ? 1 : 0;
  }
  return uses;
}

}  // namespace

void recount(Report& report) {
  count_verdicts(report);
  report.totals.missing_groups = find_missing_groups(report);
}

void summarize_findings(std::vector<Finding> findings, Report& report) {
  note_nonfinite_and_replicas(findings, report.notes);
  const auto passed = std::stable_partition(findings.begin(), findings.end(),
                                            [](const Finding& finding) { return finding.verdict != Verdict::kPass; });
  report.passed.assign(std::make_move_iterator(passed), std::make_move_iterator(findings.end()));
  findings.erase(passed, findings.end());
  std::stable_sort(findings.begin(), findings.end(), executes_before);
  report.findings = std::move(findings);
  recount(report);
}

Report judge_all(const Alignment& reference, const Matching& matching, std::span<const Difference> differences,
                 const ToleranceFile* tolerance, const Acceptance& acceptance, const StepVerdicts& steps,
                 std::span<const BitDifference> bits) {
  assert(differences.size() == matching.pairs.size() + matching.recomputed.size());
  const bool by_bits = !bits.empty();
  std::vector<Finding> findings = matching.findings;
  std::erase_if(findings, [&](const Finding& finding) {
    return finding.reason == Reason::kMissingInCandidate && steps.elsewhere.contains(finding.id);
  });
  Report report;
  SumsWithoutBits sums(matching.pairs);
  for (std::size_t i = 0; i < matching.pairs.size(); ++i) {
    findings.push_back(judge(matching.pairs[i], differences[i], tolerance));
    if (by_bits) hold_to_bits(matching.pairs[i], bits[i], findings.back());
    if (by_bits && sums.take(bits[i], findings.back())) {
      findings.pop_back();
      continue;
    }
    if (is_wrong(findings.back())) findings.back().message += placing_of(*matching.pairs[i].candidate);
    report.totals.placed_by_shape += is_placed_by_shape(*matching.pairs[i].candidate) ? 1 : 0;
  }
  for (std::size_t i = 0; i < matching.recomputed.size(); ++i) {
    findings.push_back(judge_recompute(matching.recomputed[i], differences[matching.pairs.size() + i], tolerance));
    if (by_bits) hold_to_bits(matching.recomputed[i], bits[matching.pairs.size() + i], findings.back());
  }
  std::vector<std::string> routing_notes;
  const ReroutesByCause reroutes = explain_reroutes(matching.reroutes, tolerance);
  for (Finding& finding : judge_reroutes(reroutes, routing_notes)) findings.push_back(std::move(finding));
  findings.insert(findings.end(), steps.findings.begin(), steps.findings.end());
  set_order(findings, reference);
  put_in_backward_order(findings, reference);
  std::vector<Reroute> ties = reroutes.near_ties;
  ties.insert(ties.end(), reroutes.following.begin(), reroutes.following.end());
  for (Finding& finding : findings) {
    downgrade_if_rerouted(finding, ties, matching.without_rerouted.contains(finding.id));
  }
  if (tolerance != nullptr) judge_coherence(*tolerance, acceptance.waivers, findings);
  report.notes = matching.notes;
  if (by_bits) {
    sums.note(report.notes);
  } else {
    pass_what_is_proved(steps, findings);
    pass_behind_jumps(matching.pairs, steps, findings, report.notes);
    pass_stepped_parameters(matching.pairs, steps, findings, report.notes);
    pass_whole_losses(matching.pairs, tolerance, findings, report.notes);
    pass_other_orders(matching.pairs, tolerance, findings, report.notes);
    pass_scaled_back(findings, report.notes);
    pass_weighted(matching.pairs, findings, report.notes);
    pass_taken_as_recorded(matching.pairs, tolerance, findings, report.notes);
    pass_inner_gradients(matching.pairs, tolerance, findings, report.notes);
    pass_averaged_after(steps, findings, report.notes);
    pass_reduced_in_step(matching.pairs, findings, report.notes);
    pass_later_sums(matching.pairs, findings, report.notes);
    set_shared_gradients_aside(matching.pairs, findings, report.notes);
    pass_gradients_of_equal_rows(matching.pairs, findings, report.notes);
    set_ends_of_padding_aside(matching.padded_shorter, reference, findings, report.notes);
    find_truncated_by_one(matching.pairs, findings);
    const bool is_measured = tolerance != nullptr && tolerance->unmeasured.empty();
    if (is_measured) pass_rounding_alone(matching.pairs, findings, report.notes);
  }
  report.notes.insert(report.notes.end(), routing_notes.begin(), routing_notes.end());
  report.totals.waived = matching.waived + sums.waived();
  if (!matching.partial.empty()) report.runs.partial = matching.partial;
  report.totals.coverage = coverage_of(reference, matching);
  if (tolerance != nullptr) report.proof.overrides = uses_of(*tolerance, findings);
  if (tolerance != nullptr && !tolerance->unmeasured.empty()) report.proof.unmeasured = tolerance->unmeasured;
  if (tolerance != nullptr && tolerance->unmeasured.empty() && tolerance->margin != kDefaultMargin) {
    report.proof.margin = tolerance->margin;
  }
  report.runs.sketched = describe_sketched(matching, differences);
  std::map<TensorId, std::string> doubts = doubts_of(findings, acceptance.excuses);
  std::set<std::string> unproved = find_steps_unseen_elsewhere(findings, steps.elsewhere, doubts);
  if (report.proof.unmeasured && steps.are_stated) {
    unproved.merge(doubt_unmeasured_steps(findings, steps.unheld, doubts));
  }
  report.proof.unproved_steps.assign(unproved.begin(), unproved.end());
  apply_waivers(acceptance.waivers, findings, report);
  std::set<TensorId> waived;
  for (const WaivedFinding& item : report.waived_findings) waived.insert(item.finding.id);
  if (acceptance.excuses) std::erase_if(doubts, [&](const auto& doubt) { return waived.contains(doubt.first); });
  report.proof.by_kind = prove(doubts, waived);
  report.proof.zero_gradients = find_zero_gradients(doubts, report.notes);
  note_unproved_light_iterations(findings, report.notes);
  summarize_findings(std::move(findings), report);
  return report;
}

}  // namespace ttrace
