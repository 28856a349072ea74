#include "judge/shared_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "base/count_of.h"
#include "base/describe.h"
#include "judge/later_sums.h"

namespace ttrace {
namespace {

// What was handed to modules in a micro-batch.
using Handed = std::tuple<std::int32_t, std::int32_t, Shape, std::uint64_t>;

std::set<std::int32_t> holders_of(const LogicalTensor& tensor) {
  std::set<std::int32_t> ranks;
  for (const Piece& piece : tensor.pieces()) ranks.insert(piece.rank);
  return ranks;
}

// Returns, by the inputs of which others with the same bytes lie on other ranks, the outputs that have these bytes.
std::map<TensorId, std::vector<TensorId>> inputs_of_several_ranks(std::span<const TensorPair> pairs) {
  std::map<Handed, std::vector<const TensorPair*>> handed;
  std::map<Handed, std::vector<TensorId>> made;
  for (const TensorPair& pair : pairs) {
    const TensorId& id = pair.reference->id;
    if ((id.kind != Kind::kInput && id.kind != Kind::kOutput) || id.microbatch < 0) continue;
    const std::vector<Piece> pieces = pair.reference->pieces();
    if (pieces.empty() || pieces[0].entry->shape != pair.reference->shape) continue;
    const Handed what = {id.iteration, id.microbatch, pair.reference->shape, pieces[0].entry->checksum};
    if (id.kind == Kind::kInput) {
      handed[what].push_back(&pair);
    } else {
      made[what].push_back(pair.candidate->id);
    }
  }
  std::map<TensorId, std::vector<TensorId>> inputs;
  for (const auto& [what, to] : handed) {
    std::set<std::set<std::int32_t>> holders;
    for (const TensorPair* pair : to) holders.insert(holders_of(*pair->candidate));
    if (holders.size() < 2) continue;
    for (const TensorPair* pair : to) inputs[pair->candidate->id] = made[what];
  }
  return inputs;
}

// The gradients of outputs that pass: what is handed on has the sum of all gradients there.
std::set<TensorId> right_gradients_of_outputs(const std::vector<Finding>& findings) {
  std::set<TensorId> right;
  for (const Finding& finding : findings) {
    if (finding.id.kind == Kind::kGradOutput && finding.verdict == Verdict::kPass) right.insert(finding.id);
  }
  return right;
}

bool is_wrong_gradient_of_input(const Finding& finding) {
  return finding.id.kind == Kind::kGradInput && finding.verdict == Verdict::kFail &&
         finding.reason == Reason::kExceedsTolerance;
}

}  // namespace

void set_shared_gradients_aside(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                                std::vector<std::string>& notes) {
  if (std::none_of(findings.begin(), findings.end(), is_wrong_gradient_of_input)) return;
  // What a later iteration does wrong says nothing of those before it.
  const std::int32_t end = end_of_right_training(findings);
  const std::map<TensorId, std::vector<TensorId>> shared = inputs_of_several_ranks(pairs);
  const std::set<TensorId> right = right_gradients_of_outputs(findings);
  const auto is_sum_right = [&](const TensorId& made) { return right.contains(made.with_kind(Kind::kGradOutput)); };
  std::int64_t count = 0;
  std::string first;
  for (Finding& finding : findings) {
    if (!is_wrong_gradient_of_input(finding)) continue;
    const auto input = shared.find(finding.id.with_kind(Kind::kInput));
    if (input == shared.end()) continue;
    const bool is_right = finding.id.iteration < end;
    if (!is_right && std::none_of(input->second.begin(), input->second.end(), is_sum_right)) continue;
    if (count++ == 0) first = to_string(finding.id);
    finding.verdict = Verdict::kUntrusted;
    finding.reason = Reason::kNotCheckable;
  }
  if (count == 0) return;
  notes.push_back(fmt::format(
      "{} of gradients of inputs, the first {}: the reference hands one tensor to several modules, whose gradients add "
      "up in it, and here ranks have a copy each; their sum, or what steps take and make, is right, and these were not "
      "compared",
      count_of(count, "tensor"), first));
}

}  // namespace ttrace
