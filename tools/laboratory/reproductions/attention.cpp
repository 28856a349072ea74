#include "reproductions/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "reproductions/passing.h"

namespace ttrace::reproductions {
namespace {

template <class T>
DenseMatrix<T> multiply(const DenseMatrix<T>& a, const DenseMatrix<T>& b, const Bias<T>& bias = {}) {
  DenseMatrix<T> c(a.rows, b.cols);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    T* const out = &c.values[static_cast<std::size_t>(row * b.cols)];
    for (std::int64_t i = 0; i < a.cols; ++i) {
      const T factor = a.at(row, i);
      const T* const values = &b.values[static_cast<std::size_t>(i * b.cols)];
      for (std::int64_t col = 0; col < b.cols; ++col) out[col] += factor * values[col];
    }
    for (std::size_t col = 0; col < bias.size(); ++col) out[col] += bias[col];
  }
  return c;
}

void add_report(SectionReport& report, const MatrixRepair& repaired) {
  report.corrected.insert(report.corrected.end(), repaired.corrected.begin(), repaired.corrected.end());
  report.pattern = std::max(report.pattern, repaired.pattern);
  report.wrong += repaired.wrong;
}

template <class T>
void softmax_rows(DenseMatrix<T>& scores, T scale, bool causal) {
  for (std::int64_t row = 0; row < scores.rows; ++row) {
    const std::int64_t seen = causal ? row + 1 : scores.cols;
    T largest = -std::numeric_limits<T>::infinity(), sum = 0;
    for (std::int64_t col = 0; col < seen; ++col) largest = std::max(largest, scores.at(row, col) * scale);
    for (std::int64_t col = 0; col < scores.cols; ++col) {
      T& value = scores.at(row, col);
      value = col < seen ? std::exp(value * scale - largest) : T{0};
      sum += value;
    }
    for (std::int64_t col = 0; col < seen; ++col) scores.at(row, col) /= sum;
  }
}

template <class T>
void require_shapes(const DenseMatrix<T>& x, const AttentionWeights<T>& weights, std::int64_t heads) {
  const std::int64_t d = x.cols;
  if (x.rows <= 0 || d <= 0 || heads <= 0 || d % heads != 0) {
    throw InputError(
        fmt::format("attention: {} heads of an input [{}, {}]; heads that divide D were expected", heads, x.rows, d));
  }
  for (const DenseMatrix<T>* matrix : {&weights.query, &weights.key, &weights.value, &weights.output}) {
    if (matrix->rows == d && matrix->cols == d) continue;
    throw InputError(
        fmt::format("attention: a weight [{}, {}]; [{}, {}] was expected", matrix->rows, matrix->cols, d, d));
  }
  for (const Bias<T>* bias : {&weights.query_bias, &weights.key_bias, &weights.value_bias, &weights.output_bias}) {
    if (bias->empty() || std::ssize(*bias) == d) continue;
    throw InputError(fmt::format("attention: a bias of {} elements; {} were expected", bias->size(), d));
  }
}

template <class T>
class ProtectedAttention {
 public:
  ProtectedAttention(const DenseMatrix<T>& x, const AttentionWeights<T>& weights, const AttentionOptions<T>& options)
      : x_(x), weights_(weights), options_(options), head_size_(x.cols / options.heads), context_(x.rows, x.cols) {}

  Attention<T> run() {
    query_ = projected(AttentionMatrix::kQuery, weights_.query, weights_.query_bias);
    key_ = projected(AttentionMatrix::kKey, weights_.key, weights_.key_bias);
    value_ = projected(AttentionMatrix::kValue, weights_.value, weights_.value_bias);
    if (checks(Section::kScores)) {
      const Bounded<T> of_x = columns_of(x_);
      query_columns_ = through(of_x, weights_.query);
      key_columns_ = through(of_x, weights_.key);
      add_bias(query_columns_, weights_.query_bias, x_.rows);
      add_bias(key_columns_, weights_.key_bias, x_.rows);
    }
    for (std::int64_t head = 0; head < options_.heads; ++head) {
      DenseMatrix<T> probabilities = scores(head);
      softmax_rows(probabilities, static_cast<T>(1 / std::sqrt(static_cast<double>(head_size_))), options_.causal);
      computed(AttentionMatrix::kProbabilities, head, probabilities);
      add_context(head, probabilities);
    }
    output();
    return std::move(result_);
  }

 private:
  bool checks(Section section) const { return options_.checked[static_cast<std::size_t>(section)]; }
  SectionReport& report(Section section) { return result_.sections[static_cast<std::size_t>(section)]; }
  void computed(AttentionMatrix which, std::int64_t head, DenseMatrix<T>& matrix) const {
    if (options_.computed) options_.computed(which, head, matrix);
  }

  DenseMatrix<T> projected(AttentionMatrix which, const DenseMatrix<T>& weight, const Bias<T>& bias) const {
    DenseMatrix<T> result = multiply(x_, weight, bias);
    computed(which, 0, result);
    return result;
  }

  DenseMatrix<T> scores(std::int64_t head) {
    const std::int64_t first = head * head_size_;
    const DenseMatrix<T> query = columns(query_, first, head_size_), key = columns(key_, first, head_size_);
    const DenseMatrix<T> key_transposed = transposed(key);
    DenseMatrix<T> scores = multiply(query, key_transposed);
    computed(AttentionMatrix::kScores, head, scores);
    if (!checks(Section::kScores)) return scores;
    const std::int64_t additions = x_.rows + x_.cols + head_size_;
    // The row sums of Q K^T are Q times the column sums of K.
    Checksums<T> of_columns = checksums_of(through(part(query_columns_, first, head_size_), key_transposed), additions);
    Checksums<T> of_rows = checksums_of(through(query, part(key_columns_, first, head_size_)), additions);
    add_report(report(Section::kScores), repair(scores, &of_columns, &of_rows, options_.thresholds));
    return scores;
  }

  void add_context(std::int64_t head, const DenseMatrix<T>& probabilities) {
    const std::int64_t first = head * head_size_;
    const DenseMatrix<T> value = columns(value_, first, head_size_);
    DenseMatrix<T> context = multiply(probabilities, value);
    computed(AttentionMatrix::kContext, head, context);
    if (checks(Section::kContext)) {
      const std::int64_t additions = x_.rows + x_.cols + head_size_;
      Checksums<T> of_columns = checksums_of(through(columns_of(probabilities), value), additions);
      Checksums<T> of_rows = checksums_of(through(probabilities, value_rows(first)), additions);
      add_report(report(Section::kContext), repair(context, &of_columns, &of_rows, options_.thresholds));
      append(context_columns_, of_columns);
    }
    for (std::int64_t row = 0; row < context.rows; ++row) {
      for (std::int64_t col = 0; col < head_size_; ++col) context_.at(row, first + col) = context.at(row, col);
    }
  }

  // The row sums of one head of V: X times the row sums of W_V.
  Bounded<T> value_rows(std::int64_t first) const {
    Bounded<T> rows = through(x_, rows_of(weights_.value, first, head_size_));
    if (weights_.value_bias.empty()) return rows;
    DenseMatrix<T> bias(1, x_.cols);
    bias.values = weights_.value_bias;
    const Bounded<T> of_bias = rows_of(bias, first, head_size_);
    for (std::size_t i = 0; i < rows.plain.size(); ++i) {
      rows.plain[i] += of_bias.plain[0];
      rows.weighted[i] += of_bias.weighted[0];
      rows.bound[i] += of_bias.bound[0];
    }
    return rows;
  }

  void append(Checksums<T>& all, const Checksums<T>& head) {
    all.plain.insert(all.plain.end(), head.plain.begin(), head.plain.end());
    all.weighted.insert(all.weighted.end(), head.weighted.begin(), head.weighted.end());
    all.allowed.insert(all.allowed.end(), head.allowed.begin(), head.allowed.end());
  }

  void output() {
    result_.output = multiply(context_, weights_.output, weights_.output_bias);
    computed(AttentionMatrix::kOutput, 0, result_.output);
    if (!checks(Section::kOutput)) return;
    const std::int64_t additions = x_.rows + x_.cols;
    Bounded<T> of_context = columns_of(context_);  // bounds; and checksums, if none have come this far
    // The amount by which the context's checksums may be off passes through W_O, too: in units of this section's own
    // rounding.
    if (checks(Section::kContext)) {
      const double unit = checksums_of<T>({{}, {}, {1.0}}, additions).allowed[0];
      of_context.plain = context_columns_.plain;
      of_context.weighted = context_columns_.weighted;
      for (std::size_t i = 0; i < of_context.bound.size(); ++i)
        of_context.bound[i] += context_columns_.allowed[i] / unit;
    }
    Bounded<T> of_output = through(of_context, weights_.output);
    add_bias(of_output, weights_.output_bias, x_.rows);
    Checksums<T> of_columns = checksums_of(of_output, additions);
    const MatrixRepair repaired = repair<T>(result_.output, &of_columns, nullptr, options_.thresholds);
    add_report(report(Section::kOutput), repaired);
  }

  const DenseMatrix<T>& x_;
  const AttentionWeights<T>& weights_;
  const AttentionOptions<T>& options_;
  std::int64_t head_size_;
  DenseMatrix<T> query_, key_, value_, context_;
  Bounded<T> query_columns_, key_columns_;
  Checksums<T> context_columns_;
  Attention<T> result_;
};

}  // namespace

template <class T>
bool Attention<T>::ok() const {
  return std::all_of(sections.begin(), sections.end(), [](const SectionReport& report) { return report.wrong == 0; });
}

template <class T>
Attention<T> attention(const DenseMatrix<T>& x, const AttentionWeights<T>& weights,
                       const AttentionOptions<T>& options) {
  require_shapes(x, weights, options.heads);
  return ProtectedAttention<T>(x, weights, options).run();
}

#define TTRACE_INSTANTIATE(T)   \
  template struct Attention<T>; \
  template Attention<T> attention(const DenseMatrix<T>&, const AttentionWeights<T>&, const AttentionOptions<T>&);
TTRACE_INSTANTIATE(float)
TTRACE_INSTANTIATE(double)
#undef TTRACE_INSTANTIATE

}  // namespace ttrace::reproductions
