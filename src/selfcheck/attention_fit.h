// Finds how the tensors of an attention call fit together: what their dimensions mean, and by what number the products
// of queries and keys were multiplied.
#pragma once

#include <cstdint>
#include <optional>

#include "selfcheck/attention_call.h"
#include "selfcheck/matrices.h"

namespace ttrace {

// Dimensions of queries, keys and values, by number; features are always the last.
struct HeadOrder {
  std::size_t row, batch, head;
};

// [s, b, heads, d], [b, s, heads, d], [b, heads, s, d]
inline constexpr HeadOrder kHeadOrders[] = {{0, 1, 2}, {1, 0, 2}, {2, 0, 1}};

struct AttentionSizes {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, rows = 0, cols = 0;  // of the scores: queries, keys
  std::int64_t kv_head_of(std::int64_t head) const { return head * kv_heads / heads; }
};

// True where queries, keys, values and context, read in that order, have those sizes.
bool do_chain(const AttentionCall& call, const AttentionSizes& sizes, const HeadOrder& order);

struct AttentionFit {
  HeadOrder order;
  AttentionSizes sizes;
  double scale = 1;
  double agreeing = 0;         // share of the sampled scores that are a product times `scale`
  bool usual_scale = false;    // `scale` is 1/sqrt(d), 1/(n sqrt(d)) in the n-th layer, or 1
  bool rounded_twice = false;  // `scale` is no power of two: multiplying by it rounds once more

  double roundings() const { return rounded_twice ? 2 : 1; }
};

// Tries the orders that the shapes allow, and returns the one whose products agree with most of the scores. Nothing if
// the shapes allow none.
std::optional<AttentionFit> find_fit(const AttentionCall& call);

// A tensor as matrices, one for each sample and head. It is read in place where `matrix_of` allows it.
class Heads {
 public:
  // Queries, keys, values, context: of 4 dimensions in `order`, or of 3, with heads and features in the last one.
  Heads(const LogicalTensor& tensor, const HeadOrder& order, std::int64_t heads);
  // Scores and probabilities: [batch, head, row, column].
  explicit Heads(const LogicalTensor& tensor);

  abft::MatrixView at(std::int64_t batch, std::int64_t head) const;
  // Returns the row-major number in the logical tensor of an element of that matrix.
  std::int64_t element_number(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t col) const;
  Dtype stored() const { return matrix_.stored; }

 private:
  void set_strides(const Shape& shape, const HeadOrder& order);

  Matrix matrix_;
  std::int64_t batch_stride_ = 0, head_stride_ = 0, row_stride_ = 0;
  std::int64_t rows_ = 0, cols_ = 0;
};

}  // namespace ttrace
