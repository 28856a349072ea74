// How the tensors of an attention call fit together: which dimension is which, and what scores are multiples of.
#pragma once

#include <cstdint>
#include <optional>

#include "selfcheck/attention_call.h"
#include "selfcheck/matrices.h"

namespace ttrace {

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

  double roundings() const { return rounded_twice ? 2 : 1; }
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
