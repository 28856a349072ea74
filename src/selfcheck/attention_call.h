// The tensors that were recorded of one call of an attention module.
//
// A call has queries [s, b, heads, d], keys and values [t, b, kv heads, d], and a context [s, b, heads * d] (or with
// the sample first, or with sample and head first). Inside it a softmax turns scores [b, heads, s, t] into
// probabilities, and a dropout may follow it: Megatron-LM's DotProductAttention, and those written like it.
#pragma once

#include <optional>
#include <string>

#include "selfcheck/relations.h"

namespace ttrace {

struct AttentionCall {
  const LogicalTensor *query = nullptr, *key = nullptr, *value = nullptr, *context = nullptr;
  // Null where the modules inside the attention were not recorded.
  const LogicalTensor *scores = nullptr, *probabilities = nullptr;
  const LogicalTensor* applied =
      nullptr;                // the left factor of the values: probabilities, after dropout if there is one
  std::string path;           // the module's
  bool plain_softmax = true;  // rows sum to 1: nothing is added to the denominator
};

// True where the class of the module that returned `output` is named as attention is.
bool is_attention(const LogicalTensor& output);

// Returns the call whose context is `output`. Nothing if the module is no attention: its class is not named so, or its
// first three inputs are not floating tensors of 4 dimensions.
std::optional<AttentionCall> find_attention_call(const Alignment& alignment, const LogicalTensor& output);

// Returns the gradient of one of a call's tensors; null if it was not recorded, or has another shape.
const LogicalTensor* find_gradient(const Alignment& alignment, const LogicalTensor& tensor);

}  // namespace ttrace
