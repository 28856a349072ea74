// The matrices of an attention call, one for each sample and head, and the check of a product of them.
#pragma once

#include <string>
#include <vector>

#include "abft/verify.h"
#include "selfcheck/attention_fit.h"
#include "selfcheck/head_verdicts.h"

namespace ttrace {

struct AttentionHeads {
  Heads query, key, value, context, scores, probabilities, applied;

  AttentionHeads(const AttentionCall& call, const AttentionFit& fit);
};

// Calls `check(sample, head)` for every head of every sample.
template <class Check>
void for_each_head(std::int64_t batch, std::int64_t heads, Check check) {
  for (std::int64_t sample = 0; sample < batch; ++sample) {
    for (std::int64_t head = 0; head < heads; ++head) check(sample, head);
  }
}

// A copy of a matrix in fp64, multiplied by a number.
struct ScaledCopy {
  explicit ScaledCopy(const abft::MatrixView& matrix, double scale = 1);
  abft::MatrixView view() const { return abft::row_major(values.data(), Dtype::kFloat64, rows, cols); }

  std::vector<double> values;
  std::int64_t rows = 0, cols = 0;
};

// Verifies the product of one head, and adds the outcome to `verdicts`. `heads` are the matrices of the tensor that
// holds the product's C; `roundings` is as in abft::ThresholdOptions; `ending` is appended to the message of a wrong
// product.
void check_product(HeadVerdicts& verdicts, const abft::Product& product, const Heads& heads, std::int64_t sample,
                   std::int64_t head, double roundings, const SelfCheckOptions& options,
                   const std::string& ending = "");

void check_attention_forward(const AttentionCall& call, const AttentionFit& fit, const AttentionHeads& heads,
                             const SelfCheckOptions& options, std::vector<Finding>& findings);
void check_attention_backward(const Alignment& alignment, const AttentionCall& call, const AttentionFit& fit,
                              const AttentionHeads& heads, const SelfCheckOptions& options,
                              std::vector<Finding>& findings);

}  // namespace ttrace
