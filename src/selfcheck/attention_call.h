// What was recorded of one call of an attention module, head by head.
//
// A call has queries [s, b, heads, d], keys and values [t, b, kv heads, d], and a context [s, b, heads * d] (or with
// the sample first, or with sample and head first). Inside it a softmax turns scores [b, heads, s, t] into
// probabilities, and a dropout may follow it: Megatron-LM's DotProductAttention, and those written like it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "selfcheck/identities.h"
#include "selfcheck/matrices.h"

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

// Which dimension of the queries is which; features come last.
struct HeadOrder {
  std::size_t row, batch, head;
};

struct AttentionSizes {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, rows = 0, cols = 0;  // rows: queries, cols: keys
  std::int64_t kv_head_of(std::int64_t head) const { return head * kv_heads / heads; }
};

// How the tensors of a call fit together, and by what the products of queries and keys were multiplied.
struct AttentionFit {
  HeadOrder order;
  AttentionSizes sizes;
  double scale = 1;
  double agreeing = 0;         // share of the sampled scores that are a product times `scale`
  bool usual = false;          // 1/sqrt(d), 1/(n sqrt(d)) in the n-th layer, or 1
  bool rounded_twice = false;  // a product times such a scale has another rounding of its own
};

// The order that the shapes allow; where they allow several, the one whose products the scores are. Nothing if none.
std::optional<AttentionFit> fit_of(const AttentionCall& call);

// A tensor of [batch][head] matrices, in place where it can be.
class Heads {
 public:
  // Queries, keys, values, context: `order`'s, or with heads and features in one dimension.
  Heads(const LogicalTensor& tensor, const HeadOrder& order, std::int64_t heads);
  // Scores and probabilities: [batch, head, row, column].
  explicit Heads(const LogicalTensor& tensor);

  abft::MatrixView at(std::int64_t batch, std::int64_t head) const;
  // The row-major number in the logical tensor of an element of that matrix.
  std::int64_t element(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t col) const;
  Dtype stored() const { return matrix_.stored; }

 private:
  void set_strides(const Shape& shape, const HeadOrder& order);

  Matrix matrix_;
  std::int64_t batch_stride_ = 0, head_stride_ = 0, row_stride_ = 0;
  std::int64_t rows_ = 0, cols_ = 0;
};

}  // namespace ttrace
