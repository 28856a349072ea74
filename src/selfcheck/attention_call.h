// What was recorded of one call of an attention module, head by head.
//
// A call has queries [s, b, heads, d], keys and values [t, b, kv heads, d], and a context [s, b, heads * d] (or with
// the sample first, or with sample and head first). Inside it a softmax turns scores [b, heads, s, t] into
// probabilities, and a dropout may follow it: Megatron-LM's DotProductAttention, and those written like it.
#pragma once

#include <optional>
#include <string>

#include "selfcheck/identities.h"

namespace ttrace {

struct AttentionCall {
  const LogicalTensor *query = nullptr, *key = nullptr, *value = nullptr, *context = nullptr;
  // Null where the module's inside was not recorded.
  const LogicalTensor *scores = nullptr, *probabilities = nullptr;
  const LogicalTensor* applied = nullptr;  // what the values are multiplied with: after dropout, where there is one
  std::string path;                        // of the module
  bool plain_softmax = true;               // nothing is added to its denominator
};

// The call whose context `output` is; nothing where it is no attention: a module called so, whose first three inputs
// are floating tensors of 4 dimensions.
std::optional<AttentionCall> attention_call_of(const Alignment& alignment, const LogicalTensor& output);

// The same call's gradient of one of its tensors; null where it was not recorded, or has another shape.
const LogicalTensor* gradient_of(const Alignment& alignment, const LogicalTensor& tensor);

}  // namespace ttrace
