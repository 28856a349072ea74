#include "diagnose/handed_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/lookup.h"
#include "base/mesh.h"
#include "base/tensor_name.h"
#include "diagnose/hypothesis.h"
#include "judge/later_sums.h"
#include "merge/values.h"

namespace ttrace {
namespace {

// The axis along which the ranks divide what the model is given behind its first dimension; empty where they divide none.
std::string axis_of_sequences(const Alignment& candidate) {
  for (const auto& [id, tensor] : candidate.tensors) {
    if (id.kind != Kind::kInput || TensorName(id.name.get()).path != kRootModule) continue;
    for (const AxisPlacement& axis : tensor.deduced) {
      if (axis.placement == Placement::kShard && axis.dim > 0) return axis.axis;
    }
  }
  return "";
}

bool may_be_state(const Finding& finding) {
  return is_wrong(finding) && finding.reason == Reason::kReplicasDisagree && finding.id.kind == Kind::kOutput &&
         finding.allowed.has_value();
}

// True for copies that nobody says are to agree, of which the last one alone is the reference's.
bool is_state(const Finding& finding, const Evidence& evidence) {
  if (!may_be_state(finding)) return false;
  const LogicalTensor* own = find_tensor(evidence.candidate, finding.id);
  const LogicalTensor* trusted = find_tensor(evidence.reference, finding.id);
  if (own == nullptr || trusted == nullptr || own->annotated || !is_small(*own) || own->shape != trusted->shape) {
    return false;
  }
  std::set<std::int32_t> replicas;
  for (const Piece& piece : own->pieces()) replicas.insert(piece.replica);
  const Values whole = values_of(*trusted);
  return replicas.size() > 1 && std::ranges::all_of(replicas, [&](std::int32_t replica) {
           const bool is_right = relative_distance(values_of(*own, replica), whole) <= *finding.allowed;
           return is_right == (replica == *replicas.rbegin());
         });
}

// The ranks that hold the last copy.
std::set<std::int32_t> last_ranks_of(const LogicalTensor& state) {
  std::map<std::int32_t, std::set<std::int32_t>> ranks;  // by replica
  for (const Piece& piece : state.pieces()) ranks[piece.replica].insert(piece.rank);
  return ranks.rbegin()->second;
}

// The input of that name that a rank recorded; null where it has none.
const Entry* input_on(std::int32_t rank, const TensorId& recorded, const Trace& trace) {
  for (const RankTrace& one : trace.ranks) {
    if (one.rank != rank) continue;
    const TensorId wanted = recorded.with_kind(Kind::kInput);
    const auto found = std::ranges::find_if(one.entries, [&](const Entry& entry) { return entry.id == wanted; });
    return found == one.entries.end() ? nullptr : &*found;
  }
  return nullptr;
}

// True where each rank but the first is given, under the same name, the bits that the rank before has returned.
bool is_given_on(const TensorId& state, const Evidence& evidence) {
  if (evidence.candidate_trace == nullptr) return false;
  std::map<std::int32_t, const Entry*> returned;  // by rank
  for (const Piece& piece : find_tensor(evidence.candidate, state)->pieces()) {
    returned.try_emplace(piece.rank, piece.entry);
  }
  const Entry* before = nullptr;
  for (const auto& [rank, entry] : returned) {
    const Entry* given = before == nullptr ? nullptr : input_on(rank, entry->id, *evidence.candidate_trace);
    if (before != nullptr && (given == nullptr || given->checksum != before->checksum)) return false;
    before = entry;
  }
  return true;
}

// True for what is given, or comes back, for a state, and for gradients inside a layer that returns one.
bool is_beside(const Finding& finding, const std::vector<TensorId>& states, const std::set<std::int32_t>& last_ranks,
               bool is_right) {
  const TensorName name(finding.id.name.get());
  const bool is_lacking = finding.reason == Reason::kOmission;
  if (is_lacking && finding.id.kind == Kind::kGradOutput && name.path == kRootModule) return is_right;
  const auto is_last = [&](std::int32_t rank) { return last_ranks.contains(rank); };
  const bool spares_last = is_right && std::ranges::none_of(finding.ranks, is_last);
  return std::ranges::any_of(states, [&](const TensorId& state) {
    if (state.iteration != finding.id.iteration || state.microbatch != finding.id.microbatch) return false;
    if (state.name == finding.id.name) return true;
    const std::string_view layer = TensorName(state.name.get()).path;
    return finding.id.kind == Kind::kGradInput && spares_last && layer != kRootModule && is_inside(name.path, layer);
  });
}

// Lines of annotations that leave these out, as `layers.*:1: {input: local, output: local}`.
std::string lines_for(const std::set<TensorId>& ids) {
  std::map<std::string, std::set<std::string_view>> kinds;
  for (const TensorId& id : ids) {
    std::string pattern = without_numbers(id.name.get());
    std::ranges::replace(pattern, '#', '*');
    kinds[printable(pattern)].insert(name_of(id.kind));
  }
  std::string lines;
  for (const auto& [pattern, of_pattern] : kinds) {
    std::string words;
    for (const std::string_view kind : of_pattern) words += fmt::format("{}{}: local", words.empty() ? "" : ", ", kind);
    lines += fmt::format("{}{}: {{{}}}", lines.empty() ? "" : "; ", pattern, words);
  }
  return lines;
}

}  // namespace

HandedStates find_handed_states(const Report& report, const Evidence& evidence) {
  if (std::ranges::none_of(report.findings, may_be_state)) return {};  // a large trace has many tensors to look at
  HandedStates found;
  found.axis = axis_of_sequences(evidence.candidate);
  if (found.axis.empty()) return found;
  const std::int32_t end = end_of_right_training(report.findings, report.passed);
  std::vector<TensorId> states;
  std::set<std::int32_t> last_ranks;
  for (const Finding& finding : report.findings) {
    if (!is_state(finding, evidence)) continue;
    if (finding.id.iteration >= end && !is_given_on(finding.id, evidence)) continue;
    states.push_back(finding.id);
    last_ranks.merge(last_ranks_of(*find_tensor(evidence.candidate, finding.id)));
  }
  std::set<TensorId> ids;
  for (std::size_t i = 0; i < report.findings.size() && !states.empty(); ++i) {
    const Finding& finding = report.findings[i];
    if (!is_wrong(finding) || !is_beside(finding, states, last_ranks, finding.id.iteration < end)) continue;
    found.findings.push_back(i);
    ids.insert(finding.id);
  }
  found.lines = lines_for(ids);
  return found;
}

}  // namespace ttrace
