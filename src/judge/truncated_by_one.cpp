#include "judge/truncated_by_one.h"

#include <utility>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

bool is_of_model(const TensorId& id) { return TensorName(id.name.get()).path == kRootModule; }

bool is_of_same_microbatch(const TensorId& a, const TensorId& b) {
  return a.iteration == b.iteration && a.microbatch == b.microbatch;
}

bool lacks_what_is_wrong(const TensorId& input, const std::vector<Finding>& findings) {
  bool is_loss_wrong = false, is_step_wrong = false, comes_right_back = false;
  for (const Finding& finding : findings) {
    const TensorId& id = finding.id;
    const bool is_wrong_value = finding.verdict == Verdict::kFail && finding.reason == Reason::kExceedsTolerance;
    if (id.kind == Kind::kMainGrad && id.iteration == input.iteration) is_step_wrong = is_step_wrong || is_wrong_value;
    if (!is_of_same_microbatch(id, input)) continue;
    if (is_loss_of_backward(id)) is_loss_wrong = is_loss_wrong || is_wrong_value;
    if (id.kind != Kind::kGradOutput || id.chunk != input.chunk || !is_of_model(id)) continue;
    if (is_wrong(finding)) return false;
    comes_right_back = comes_right_back || finding.verdict == Verdict::kPass;
  }
  return is_loss_wrong && is_step_wrong && comes_right_back;
}

}  // namespace

void find_truncated_by_one(std::span<const TensorPair> pairs, std::vector<Finding>& findings) {
  const PairsById pairs_by_id = index_pairs(pairs);
  std::vector<std::pair<Finding*, const Finding*>> mistakes;
  for (Finding& finding : findings) {
    if (finding.verdict != Verdict::kPass || finding.id.kind != Kind::kInput) continue;
    const auto pair = pairs_by_id.find(finding.id);
    if (pair == pairs_by_id.end() || pair->second->candidate->truncated == nullptr) continue;
    if (lacks_what_is_wrong(finding.id, findings)) {
      mistakes.emplace_back(&finding, pair->second->candidate->truncated.get());
    }
  }
  for (const auto& [finding, mistake] : mistakes) {
    finding->verdict = mistake->verdict;
    finding->reason = mistake->reason;
    finding->message = mistake->message;
    finding->ranks = mistake->ranks;
    finding->difference.reset();
    finding->guessed = mistake->guessed;
  }
}

}  // namespace ttrace
