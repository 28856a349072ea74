// Attention of which only queries, keys, values and context were recorded: a fused kernel such as PyTorch's
// scaled_dot_product_attention. A few rows of every head are computed again.
#pragma once

#include <cstdint>

#include "base/finding.h"
#include "selfcheck/attention_call.h"

namespace ttrace {

// A check sees so many rows of a head, or all where there are fewer.
inline constexpr std::int64_t kSampledRows = 8;

// Returns `pass`, `fail` (product-differs), or `untrusted` (not-checkable), and says how many rows were seen.
Finding check_fused_attention(const AttentionCall& call);

}  // namespace ttrace
