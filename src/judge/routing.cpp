#include "judge/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/describe.h"

namespace ttrace {
namespace {

// True where the finding's tensor is computed after the router's choice, from the re-routed token among others.
bool may_change(const Reroute& reroute, const Finding& finding) {
  Finding choice;
  choice.id = reroute.logits;
  choice.order = reroute.order;
  choice.reason = finding.reason;  // else the logits themselves might come after the choice, by another reason
  const bool same_batch = finding.id.microbatch == kNoMicrobatch || finding.id.microbatch == choice.id.microbatch;
  return choice.id.iteration == finding.id.iteration && same_batch && executes_before(choice, finding);
}

bool is_near_tie(const Reroute& reroute, const ToleranceFile* tolerance) {
  const double allowed = tolerance == nullptr ? 0 : allowed_for(*tolerance, reroute.logits).value_or(0);
  return reroute.shift <= allowed && allowed < 1;
}

std::string list_tokens(const std::vector<Reroute>& reroutes) {
  std::vector<std::string> tokens;
  for (const Reroute& reroute : reroutes) {
    tokens.push_back(fmt::format("token {} of {}", reroute.token, to_string(reroute.logits)));
  }
  return comma_list(tokens);
}

std::string list_experts(const std::vector<std::int64_t>& experts) {
  return fmt::format("{}", fmt::join(experts, ", "));
}

}  // namespace

std::int64_t token_of(const LogicalTensor& tensor, std::int64_t row) {
  return tensor.routed_experts > 0 ? row / tensor.routed_experts : row;
}

ReroutesByCause explain_reroutes(std::span<const Reroute> reroutes, const ToleranceFile* tolerance) {
  std::vector<const Reroute*> executed;
  for (const Reroute& reroute : reroutes) executed.push_back(&reroute);
  std::stable_sort(executed.begin(), executed.end(), [](const Reroute* a, const Reroute* b) {
    return std::tie(a->logits.iteration, a->order) < std::tie(b->logits.iteration, b->order);
  });
  ReroutesByCause causes;
  std::set<std::tuple<std::int32_t, std::int32_t, std::int64_t>> moved;  // iteration, micro-batch, token
  for (const Reroute* reroute : executed) {
    const std::tuple token(reroute->logits.iteration, reroute->logits.microbatch, reroute->token);
    if (moved.contains(token)) {
      causes.following.push_back(*reroute);
    } else if (is_near_tie(*reroute, tolerance)) {
      causes.near_ties.push_back(*reroute);
      moved.insert(token);
    } else {
      causes.others.push_back(*reroute);
    }
  }
  return causes;
}

std::vector<Finding> judge_reroutes(const ReroutesByCause& reroutes, std::vector<std::string>& notes) {
  if (!reroutes.near_ties.empty()) {
    notes.push_back(fmt::format("re-routed by a near tie, compared no further: {} tokens: {}",
                                reroutes.near_ties.size(), list_tokens(reroutes.near_ties)));
  }
  if (!reroutes.following.empty()) {
    notes.push_back(fmt::format("re-routed by a later router, after a near tie had changed them: {} tokens: {}",
                                reroutes.following.size(), list_tokens(reroutes.following)));
  }
  std::map<TensorId, std::vector<const Reroute*>> wrong;
  for (const Reroute& reroute : reroutes.others) wrong[reroute.logits].push_back(&reroute);
  std::vector<Finding> findings;
  for (const auto& [logits, tokens] : wrong) {
    const Reroute& first = *tokens.front();
    Finding& finding = findings.emplace_back();
    finding.id = logits;
    finding.verdict = Verdict::kFail;
    finding.reason = Reason::kRoutingDiffers;
    finding.order = first.order;
    finding.message = fmt::format(
        "{}: {} tokens went to other experts, and the reference's choice was no near tie: token {} to {} instead of "
        "{}, for which the router's scores would have to move by {:.3g} of their norm",
        to_string(logits), tokens.size(), first.token,
        first.candidate_experts.empty() ? "none" : list_experts(first.candidate_experts),
        first.reference_experts.empty() ? "none" : list_experts(first.reference_experts), first.shift);
  }
  return findings;
}

std::vector<bool> find_changed_pairs(std::span<const TensorPair> pairs, std::span<const Reroute> reroutes) {
  std::map<TensorId, const Reroute*> choices;  // one reroute of each logits: the answer depends on nothing else
  for (const Reroute& reroute : reroutes) choices.emplace(reroute.logits, &reroute);
  std::vector<bool> changed;
  for (const TensorPair& pair : pairs) {
    Finding finding;
    finding.id = pair.reference->id;
    finding.order = pair.reference->order;
    // The step that follows a choice makes other parameters, and all later iterations begin with those.
    changed.push_back(std::any_of(choices.begin(), choices.end(), [&](const auto& choice) {
      return choice.first.iteration < finding.id.iteration || may_change(*choice.second, finding);
    }));
  }
  return changed;
}

void downgrade_if_rerouted(Finding& finding, std::span<const Reroute> ties, bool without_rerouted) {
  if (finding.reason != Reason::kExceedsTolerance || !finding.difference) return;
  double share = 0;
  std::set<std::pair<std::int32_t, std::int64_t>> tokens;
  for (const Reroute& tie : ties) {
    if (!may_change(tie, finding)) continue;
    if (!tokens.emplace(tie.logits.microbatch, tie.token).second) continue;
    share += (without_rerouted ? 1 : static_cast<double>(tie.experts)) / static_cast<double>(tie.tokens);
  }
  const double explained = std::sqrt(2 * share);
  // The relative error of what differs is 0, or none, where squares vanish or overflow.
  if (tokens.empty() || !(finding.difference->rel_err() <= explained)) return;
  finding.verdict = Verdict::kUntrusted;
  finding.reason = Reason::kRerouted;
  finding.message += fmt::format("; {} tokens that a near tie sent to other experts may explain up to {:.3g}",
                                 tokens.size(), explained);
}

LogicalTensor keep_rows(const LogicalTensor& tensor, const std::vector<std::int64_t>& rows) {
  LogicalTensor kept = tensor;
  kept.rows.reset();
  kept.shape[0] = static_cast<std::int64_t>(rows.size());
  kept.pieces = [make = tensor.pieces, rows] {
    std::vector<Piece> pieces;
    for (Piece& piece : make()) {
      const auto found = std::lower_bound(rows.begin(), rows.end(), piece.logical.start[0]);
      if (found == rows.end() || *found != piece.logical.start[0]) continue;
      piece.logical.start[0] = found - rows.begin();
      pieces.push_back(std::move(piece));
    }
    return pieces;
  };
  return kept;
}

}  // namespace ttrace
