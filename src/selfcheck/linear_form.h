// Finds what a module with a weight makes of its input: the form that its product has.
//
// PyTorch's own linears are Y = X W^T + b. Other modules differ, and their names do not say how: Megatron-LM's linears
// may return the bias instead of adding it, for an addition that is fused with the next operation (skip_bias_add);
// Conv1D of Hugging Face's GPT-2 stores its weight as [in, out]; a router or a bilinear module computes something else.
// So the recorded calls decide: the first one whose result is the product in one form, and in no other.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "abft/verify.h"
#include "selfcheck/matrices.h"
#include "selfcheck/relations.h"

namespace ttrace {

struct LinearForm {
  bool adds_bias = true;
  bool weight_is_transposed = false;  // [in, out]
};

// The recorded tensors of one call of a module whose weight is a matrix.
struct Linear {
  const LogicalTensor* input = nullptr;
  const LogicalTensor* output = nullptr;
  const LogicalTensor* weight = nullptr;
  const LogicalTensor* bias = nullptr;  // may be null
  LinearForm form;

  const LogicalTensor* added_bias() const { return form.adds_bias ? bias : nullptr; }
};

bool is_linear_class(const std::string& module_class);

// True where the shapes allow the product in the call's form.
bool chains(const Linear& call);

// The forward of a call, with its operands in memory.
struct ForwardProduct {
  Matrix x, y, bias;
  abft::Product product;
};
ForwardProduct forward_product(const Linear& call, const Matrix& weight);

// Returns the form of a module, of which these are the calls that could be read; nothing where the module is no linear
// by its class, and its results have no form. A linear whose results have none has the usual one: they are wrong.
std::optional<LinearForm> form_of(std::span<const Linear> calls, const SelfCheckOptions& options);

}  // namespace ttrace
