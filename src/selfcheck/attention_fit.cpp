#include "selfcheck/attention_fit.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/tensor_name.h"
#include "selfcheck/masks.h"

namespace ttrace {
namespace {

constexpr std::int64_t kSamples = 256;

struct Sample {
  double score, product, magnitude;  // `product` is the sum of q k, `magnitude` that of |q k|
};

std::vector<Sample> sample_scores(const AttentionCall& call, const AttentionSizes& sizes, const HeadOrder& order) {
  const Heads query(*call.query, order, sizes.heads), key(*call.key, order, sizes.kv_heads), scores(*call.scores);
  const std::int64_t d = call.query->shape[3];
  std::vector<double> query_row(static_cast<std::size_t>(d)), key_row(query_row);
  std::vector<Sample> samples;
  const std::int64_t count = sizes.batch * sizes.heads * sizes.rows * sizes.cols;
  for (std::int64_t i = 0; i < std::min(kSamples, count); ++i) {
    std::int64_t rest = count <= kSamples ? i : i * 2654435761 % count;  // Knuth's multiplicative hash: no pattern
    const std::int64_t col = rest % sizes.cols, row = (rest /= sizes.cols) % sizes.rows;
    const std::int64_t head = (rest /= sizes.rows) % sizes.heads, batch = rest / sizes.heads;
    const double score = element(scores.at(batch, head), row, col);
    if (!std::isfinite(score) || score <= kMasked) continue;
    read(query.at(batch, head), row, 1, 0, d, query_row.data());
    read(key.at(batch, sizes.kv_head_of(head)), col, 1, 0, d, key_row.data());
    Sample sample{score, 0, 0};
    for (std::size_t k = 0; k < query_row.size(); ++k) {
      sample.product += query_row[k] * key_row[k];
      sample.magnitude += std::fabs(query_row[k] * key_row[k]);
    }
    if (std::isfinite(sample.magnitude)) samples.push_back(sample);
  }
  return samples;
}

// Returns the median of score / product over the half of the samples with the largest products, whose relative rounding
// error is least.
std::optional<double> median_ratio(std::vector<Sample> samples) {
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return std::fabs(a.product) > std::fabs(b.product); });
  samples.resize((samples.size() + 1) / 2);
  std::vector<double> ratios;
  for (const Sample& sample : samples) {
    if (sample.product != 0) ratios.push_back(sample.score / sample.product);
  }
  if (ratios.empty()) return {};
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2), ratios.end());
  return ratios[ratios.size() / 2];
}

// Returns the first number in the path plus one, since layers count from 1 here: 4 for `decoder.layers.3.attention`.
std::int64_t layer_number(const std::string& path) {
  const std::optional<NameNumber> number = number_in(path);
  return number ? number->value + 1 : 1;
}

void find_scale(const AttentionCall& call, AttentionFit& fit) {
  const std::vector<Sample> samples = sample_scores(call, fit.sizes, fit.order);
  const double epsilon = epsilon_of(call.scores->dtype);
  const double root = 1 / std::sqrt(static_cast<double>(call.query->shape[3]));
  const double measured = median_ratio(samples).value_or(root);  // without samples, assume the usual one
  fit.scale = measured;
  for (const double usual : {root, root / static_cast<double>(layer_number(call.path)), 1.0}) {
    // The score was rounded twice; what its sum lost is little beside a large product.
    if (fit.usual_scale || std::fabs(measured / usual - 1) > 4 * epsilon) continue;
    fit.scale = usual;
    fit.usual_scale = true;
  }
  int exponent = 0;
  fit.rounded_twice = std::frexp(fit.scale, &exponent) != 0.5;
  std::int64_t agreeing = 0;
  for (const Sample& sample : samples) {
    const double allowed = 4 * epsilon * std::fabs(fit.scale) * sample.magnitude;
    agreeing += std::fabs(sample.score - fit.scale * sample.product) <= allowed;
  }
  fit.agreeing = samples.empty() ? 1 : static_cast<double>(agreeing) / static_cast<double>(samples.size());
}

}  // namespace

bool do_chain(const AttentionCall& call, const AttentionSizes& sizes, const HeadOrder& order) {
  const Shape &query = call.query->shape, &key = call.key->shape, &value = call.value->shape;
  const Shape& context = call.context->shape;
  const auto has_sizes = [&](const Shape& shape, std::int64_t rows, std::int64_t heads) {
    return shape[order.batch] == sizes.batch && shape[order.row] == rows && shape[order.head] == heads;
  };
  if (!has_sizes(query, sizes.rows, sizes.heads) || !has_sizes(key, sizes.cols, sizes.kv_heads) || query[3] != key[3])
    return false;
  if (!has_sizes(value, sizes.cols, sizes.kv_heads) || sizes.kv_heads == 0 || sizes.heads % sizes.kv_heads != 0)
    return false;
  if (context.size() == 4) return has_sizes(context, sizes.rows, sizes.heads) && context[3] == value[3];
  // The context has heads and features in one dimension: [s, b, heads * d], or with the sample first in the other
  // orders.
  const std::size_t row = order.row == 0 ? 0 : 1;
  return context.size() == 3 && context[row] == sizes.rows && context[1 - row] == sizes.batch &&
         context[2] == sizes.heads * value[3];
}

std::optional<AttentionFit> find_fit(const AttentionCall& call) {
  std::optional<AttentionFit> best;
  const Shape& scores = call.scores->shape;
  for (const HeadOrder& order : kHeadOrders) {
    const AttentionSizes sizes{scores[0], scores[1], call.key->shape[order.head], scores[2], scores[3]};
    if (!do_chain(call, sizes, order)) continue;
    AttentionFit fit{.order = order, .sizes = sizes};
    find_scale(call, fit);
    if (!best || fit.agreeing > best->agreeing) best = fit;
  }
  return best;
}

Heads::Heads(const LogicalTensor& tensor, const HeadOrder& order, std::int64_t heads) : matrix_(matrix_of(tensor)) {
  Shape shape = tensor.shape;
  HeadOrder own = order;
  if (shape.size() == 3) {  // [row, batch, heads * d], or [batch, row, heads * d]
    shape = {shape[0], shape[1], heads, heads == 0 ? 0 : shape[2] / heads};
    own = order.row == 0 ? kHeadOrders[0] : kHeadOrders[1];
  }
  set_strides(shape, own);
}

Heads::Heads(const LogicalTensor& tensor) : matrix_(matrix_of(tensor)) { set_strides(tensor.shape, {2, 0, 1}); }

void Heads::set_strides(const Shape& shape, const HeadOrder& order) {
  const Shape strides = row_major_strides(shape);
  batch_stride_ = strides[order.batch];
  head_stride_ = strides[order.head];
  row_stride_ = strides[order.row];
  rows_ = shape[order.row];
  cols_ = shape[3];
}

abft::MatrixView Heads::at(std::int64_t batch, std::int64_t head) const {
  const std::int64_t first = element_number(batch, head, 0, 0);
  const abft::MatrixView& whole = matrix_.view;
  return {whole.data + first * size_of(whole.dtype), whole.dtype, rows_, cols_, row_stride_, 1};
}

std::int64_t Heads::element_number(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t col) const {
  return batch * batch_stride_ + head * head_stride_ + row * row_stride_ + col;
}

}  // namespace ttrace
