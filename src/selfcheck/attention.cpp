#include <fmt/format.h>

#include "selfcheck/attention_heads.h"

namespace ttrace {
namespace {

// Why nothing can be said of the call; empty if something can.
std::string objection_to(const AttentionCall& call, const std::optional<AttentionFit>& fit) {
  for (const LogicalTensor* tensor : {call.query, call.key, call.value, call.context, call.scores, call.applied}) {
    if (!fits_in_memory(*tensor)) return "its tensors have more than 2^27 elements";
    if (element_count(tensor->shape) == 0) return "its tensors have no elements";
  }
  if (fit) return {};
  return fmt::format("queries {}, keys {}, values {}, scores {} and context {} do not chain",
                     to_string(call.query->shape), to_string(call.key->shape), to_string(call.value->shape),
                     to_string(call.scores->shape), to_string(call.context->shape));
}

}  // namespace

void check_attention(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings) {
  for (const auto& [id, output] : alignment.tensors) {
    if (id.kind != Kind::kOutput || !is_floating(output.dtype)) continue;
    const std::optional<AttentionCall> call = attention_call_of(alignment, output);
    if (!call) continue;
    const auto refuse = [&](const std::string& why) {
      findings.push_back(finding_about(output, Verdict::kUntrusted, Reason::kNotCheckable, why));
    };
    if (call->scores == nullptr) {
      refuse("its scores and probabilities were not recorded: attention is fused, or its softmax is no module");
      continue;
    }
    std::string why = objection_to(*call, AttentionFit{});
    const std::optional<AttentionFit> fit = why.empty() ? fit_of(*call) : std::nullopt;
    if (why.empty()) why = objection_to(*call, fit);
    if (!why.empty()) {
      refuse(why);
      continue;
    }
    const AttentionHeads heads(*call, *fit);
    check_attention_forward(*call, *fit, heads, options, findings);
    if (id.pass == Pass::kForward) check_attention_backward(alignment, *call, *fit, heads, options, findings);
  }
}

}  // namespace ttrace
