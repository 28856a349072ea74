#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/describe.h"
#include "base/tensor_name.h"
#include "selfcheck/attention_heads.h"
#include "selfcheck/fused_attention.h"

namespace ttrace {
namespace {

// Returns why the call cannot be checked; empty if its tensors can be read.
std::string objection_to(const AttentionCall& call) {
  for (const LogicalTensor* tensor : {call.query, call.key, call.value, call.context, call.scores, call.applied}) {
    if (tensor == nullptr) continue;
    if (!fits_in_memory(*tensor)) return "its tensors have more than 2^27 elements";
    if (element_count(tensor->shape) == 0) return "its tensors have no elements";
    if (call.scores == nullptr && is_unplaced(*tensor)) return "no annotation says how its ranks hold its tensors";
  }
  return {};
}

std::string describe_misfit(const AttentionCall& call) {
  return fmt::format("queries {}, keys {}, values {}, scores {} and context {} do not chain",
                     to_string(call.query->shape), to_string(call.key->shape), to_string(call.value->shape),
                     to_string(call.scores->shape), to_string(call.context->shape));
}

// Counts and names the modules whose scores and probabilities no module made: of a fused kernel such as PyTorch's
// scaled_dot_product_attention nothing but its operands and its result could be recorded.
std::vector<std::string> notes_of_unchecked(const Alignment& alignment, const std::set<std::string>& unseen,
                                            const std::set<std::string>& fused) {
  std::set<std::string> checked;  // modules inside of which some attention was looked at
  for (const auto& [id, output] : alignment.tensors) {
    if (id.kind == Kind::kOutput && is_floating(output.dtype) && find_attention_call(alignment, output))
      checked.emplace(TensorName(id.name).path);
  }
  std::vector<std::string> names(fused.begin(), fused.end());
  for (const std::string& path : unseen) {
    const auto is_within = [&](const std::string& other) { return is_inside(other, path); };
    if (std::none_of(checked.begin(), checked.end(), is_within) &&
        std::none_of(unseen.begin(), unseen.end(), is_within))
      names.push_back(path);
  }
  if (names.empty()) return {};
  return {
      fmt::format("of {} attention modules scores, probabilities and context are not checked, since no module of "
                  "their own made them (a fused kernel such as scaled_dot_product_attention, or functions): {}",
                  names.size(), comma_list(names))};
}

}  // namespace

std::vector<std::string> check_attention(const Alignment& alignment, const SelfCheckOptions& options,
                                         std::vector<Finding>& findings) {
  std::set<std::string> unseen;  // paths of modules whose queries, keys and values no module was given
  std::set<std::string> fused, sampled;
  for (const auto& [id, output] : alignment.tensors) {
    if (id.kind != Kind::kOutput || !is_floating(output.dtype)) continue;
    const std::optional<AttentionCall> call = find_attention_call(alignment, output);
    if (!call) {
      if (is_attention(output)) unseen.emplace(TensorName(id.name).path);
      continue;
    }
    const auto refuse = [&, &about = output](const std::string& why) {
      findings.push_back(finding_about(about, Verdict::kUntrusted, Reason::kNotCheckable, why));
    };
    if (const std::string why = objection_to(*call); !why.empty()) {
      if (call->scores == nullptr) fused.insert(call->path);
      refuse(why);
      continue;
    }
    if (call->scores == nullptr) {
      findings.push_back(check_fused_attention(*call));
      (findings.back().verdict == Verdict::kUntrusted ? fused : sampled).insert(call->path);
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
  std::vector<std::string> notes = notes_of_unchecked(alignment, unseen, fused);
  if (!sampled.empty()) {
    notes.push_back(fmt::format(
        "of {} fused attention modules {} rows of each head were computed again, and not their backward: a "
        "fault in another row, or in most heads alike, is not seen: {}",
        sampled.size(), kSampledRows, comma_list(std::vector<std::string>(sampled.begin(), sampled.end()))));
  }
  return notes;
}

}  // namespace ttrace
