#include "diagnose/changed_after.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/lookup.h"

namespace ttrace {
namespace {

// True where the rank's step has changed the parameter of the recorded tensor, and something after it once more.
bool is_changed_after(const RankTrace& rank, const TensorId& recorded) {
  return std::any_of(rank.optimizer_steps.begin(), rank.optimizer_steps.end(), [&](const OptimizerStep& step) {
    return step.changed_after && step.iteration == recorded.iteration && step.chunk == recorded.chunk &&
           std::find(step.parameters.begin(), step.parameters.end(), recorded.name.get()) != step.parameters.end();
  });
}

struct Holder {
  const RankTrace* rank = nullptr;
  bool is_changed = false;  // after the step
};

// The ranks that hold the candidate's tensor, by number; empty where that is not known of all of them.
std::map<std::int32_t, Holder> holders_of(const TensorId& id, const Evidence& evidence) {
  std::map<std::int32_t, Holder> holders;
  const LogicalTensor* tensor = find_tensor(evidence.candidate, id);
  if (tensor == nullptr || evidence.candidate_trace == nullptr) return holders;
  const std::vector<RankTrace>& ranks = evidence.candidate_trace->ranks;
  for (const Piece& piece : tensor->pieces()) {
    const auto rank = std::find_if(ranks.begin(), ranks.end(), [&](const auto& one) { return one.rank == piece.rank; });
    if (rank == ranks.end()) return {};
    holders[piece.rank] = {&*rank, is_changed_after(*rank, piece.entry->id)};
  }
  return holders;
}

// True where the update passes, or, by tolerances that were not measured and hold none, nothing of it is wrong.
bool is_update_right(const TensorId& update, const Report& report) {
  const auto is_it = [&](const Finding& finding) { return finding.id == update; };
  const auto is_wrong_of_it = [&](const Finding& finding) {
    return finding.id.with_kind(Kind::kParamDelta) == update && is_wrong(finding) &&
           (finding.id.kind == Kind::kParamDelta || finding.id.kind == Kind::kParamAfter);
  };
  if (std::ranges::any_of(report.passed, is_it)) return true;
  return report.proof.unmeasured && std::ranges::any_of(report.findings, is_it) &&
         std::ranges::none_of(report.findings, is_wrong_of_it);
}

}  // namespace

bool is_averaged_after(const Finding& finding, const Report& report, const Evidence& evidence) {
  if (finding.id.kind != Kind::kMainGrad || finding.reason != Reason::kReplicasDisagree) return false;
  if (!is_update_right(finding.id.with_kind(Kind::kParamDelta), report)) return false;
  const auto holders = holders_of(finding.id, evidence);
  return !holders.empty() &&
         std::all_of(holders.begin(), holders.end(), [](const auto& holder) { return holder.second.is_changed; });
}

std::vector<std::int32_t> ranks_that_ended_early(const Finding& finding, const Evidence& evidence) {
  const bool is_of_step = finding.id.kind == Kind::kParamDelta || finding.id.kind == Kind::kParamAfter;
  if (!is_of_step || finding.reason != Reason::kReplicasDisagree) return {};
  std::vector<std::int32_t> early, others;
  for (const auto& [rank, holder] : holders_of(finding.id, evidence)) {
    const bool has_ended = holder.rank->lacks_further;
    if (has_ended && !holder.is_changed) return {};
    (has_ended ? early : others).push_back(rank);
  }
  return others.empty() ? std::vector<std::int32_t>() : early;
}

}  // namespace ttrace
