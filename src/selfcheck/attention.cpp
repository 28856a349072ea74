#include <fmt/format.h>

#include "selfcheck/attention_heads.h"

namespace ttrace {
namespace {

// Returns why the call cannot be checked; empty if its tensors can be read.
std::string objection_to(const AttentionCall& call) {
  for (const LogicalTensor* tensor : {call.query, call.key, call.value, call.context, call.scores, call.applied}) {
    if (!fits_in_memory(*tensor)) return "its tensors have more than 2^27 elements";
    if (element_count(tensor->shape) == 0) return "its tensors have no elements";
  }
  return {};
}

std::string describe_misfit(const AttentionCall& call) {
  return fmt::format("queries {}, keys {}, values {}, scores {} and context {} do not chain",
                     to_string(call.query->shape), to_string(call.key->shape), to_string(call.value->shape),
                     to_string(call.scores->shape), to_string(call.context->shape));
}

}  // namespace

void check_attention(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings) {
  for (const auto& [id, output] : alignment.tensors) {
    if (id.kind != Kind::kOutput || !is_floating(output.dtype)) continue;
    const std::optional<AttentionCall> call = find_attention_call(alignment, output);
    if (!call) continue;
    const auto refuse = [&](const std::string& why) {
      findings.push_back(finding_about(output, Verdict::kUntrusted, Reason::kNotCheckable, why));
    };
    if (call->scores == nullptr) {
      refuse("its scores and probabilities were not recorded: attention is fused, or its softmax is no module");
      continue;
    }
    if (const std::string why = objection_to(*call); !why.empty()) {
      refuse(why);
      continue;
    }
    const std::optional<AttentionFit> fit = find_fit(*call);
    if (!fit) {
      refuse(describe_misfit(*call));
      continue;
    }
    const AttentionHeads heads(*call, *fit);
    check_attention_forward(*call, *fit, heads, options, findings);
    if (id.pass == Pass::kForward) check_attention_backward(alignment, *call, *fit, heads, options, findings);
  }
}

}  // namespace ttrace
