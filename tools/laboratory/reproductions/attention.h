// Multi-head attention that corrects itself, ATTNChecker (section 4.4). Six products in three protected sections:
//
//   scores   Q = X W_Q, K = X W_K, AS = Q K^T    column checksums of X pass through to both sides of AS
//   context  V = X W_V, CL = AP V                row checksums of W_V pass through V; column checksums of AP
//   output   O = CL W_O                          column checksums of CL pass through
//
// where AP = softmax(AS / sqrt(d)). Q, K and V are not checked themselves: an error in one of them becomes a row or a
// column of the section's last product, and is corrected there. A section corrects one error at a time.
#pragma once

#include <array>
#include <functional>

#include "reproductions/extreme.h"

namespace ttrace::reproductions {

template <class T>
struct AttentionWeights {
  DenseMatrix<T> query, key, value, output;                      // [D, D], applied from the right
  std::vector<T> query_bias, key_bias, value_bias, output_bias;  // [D], or empty
};

using abft::AttentionMatrix;
enum class Section { kScores, kContext, kOutput };

template <class T>
struct AttentionOptions {
  std::int64_t heads = 1;  // divides D
  bool causal = false;
  std::array<bool, 3> checked = {true, true, true};  // by Section
  ExtremeThresholds thresholds;
  // Sees every matrix as it is computed, before it is checked, and may change it: faults are put in here. Scores,
  // probabilities and context are of one head, the others of all.
  std::function<void(AttentionMatrix, std::int64_t head, DenseMatrix<T>&)> computed;
};

struct SectionReport {
  std::vector<Correction> corrected;
  Pattern pattern = Pattern::kNone;
  std::int64_t wrong = 0;  // rows and columns that remain wrong
};

template <class T>
struct Attention {
  DenseMatrix<T> output;                  // [S, D]
  std::array<SectionReport, 3> sections;  // by Section

  bool ok() const;
};

// Computes the attention of `x` [S, D]. Shapes that do not chain are an InputError.
template <class T>
Attention<T> attention(const DenseMatrix<T>& x, const AttentionWeights<T>& weights, const AttentionOptions<T>& options);

}  // namespace ttrace::reproductions
