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

// Returns the inputs of which others with the same bytes lie on other ranks.
std::set<TensorId> inputs_of_several_ranks(std::span<const TensorPair> pairs) {
  std::map<Handed, std::vector<const TensorPair*>> handed;
  for (const TensorPair& pair : pairs) {
    const TensorId& id = pair.reference->id;
    if (id.kind != Kind::kInput || id.microbatch < 0) continue;
    const std::vector<Piece> pieces = pair.reference->pieces();
    if (pieces.empty() || pieces[0].entry->shape != pair.reference->shape) continue;
    handed[{id.iteration, id.microbatch, pair.reference->shape, pieces[0].entry->checksum}].push_back(&pair);
  }
  std::set<TensorId> inputs;
  for (const auto& [what, to] : handed) {
    std::set<std::set<std::int32_t>> holders;
    for (const TensorPair* pair : to) holders.insert(holders_of(*pair->candidate));
    if (holders.size() < 2) continue;
    for (const TensorPair* pair : to) inputs.insert(pair->candidate->id);
  }
  return inputs;
}

bool is_wrong_gradient_of_input(const Finding& finding) {
  return finding.id.kind == Kind::kGradInput && finding.verdict == Verdict::kFail &&
         finding.reason == Reason::kExceedsTolerance;
}

}  // namespace

void set_shared_gradients_aside(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                                std::vector<std::string>& notes) {
  if (std::none_of(findings.begin(), findings.end(), is_wrong_gradient_of_input)) return;
  if (!is_training_right(findings)) return;
  const std::set<TensorId> shared = inputs_of_several_ranks(pairs);
  std::int64_t count = 0;
  std::string first;
  for (Finding& finding : findings) {
    if (!is_wrong_gradient_of_input(finding) || !shared.contains(finding.id.with_kind(Kind::kInput))) continue;
    if (count++ == 0) first = to_string(finding.id);
    finding.verdict = Verdict::kUntrusted;
    finding.reason = Reason::kNotCheckable;
  }
  if (count == 0) return;
  notes.push_back(fmt::format(
      "{} of gradients of inputs, the first {}: the reference hands one tensor to several modules, whose gradients add "
      "up in it, and here ranks have a copy each; what steps take and make is right, and these were not compared",
      count_of(count, "tensor"), first));
}

}  // namespace ttrace
