// A row of the context is o = sum over keys j of p_j v_j, with p the softmax of scale q k_j. Of kSampledRows rows,
// spread over the sequence, all heads are computed in fp64: O(kSampledRows * keys * d) a head, where the whole would
// take rows * keys * d.
//
// What the kernel masks, and by what it scales, was not recorded. So three readings of the shapes are tried, with a
// causal mask and without one, and the usual scale 1/sqrt(d). A mask holds for all heads of a sample. Therefore a row
// is proved to be that attention where at least three quarters of the heads agree with it; another head's, in the same
// place, is then wrong. Where fewer agree (a window, padding, dropout, a bias by head, another scale) nothing is said
// of the row, and nothing of the call unless nine tenths of the places are proved: what is wrong in all heads is not
// seen.
//
// An element may differ by kDeviations times
//
//   e^2 = eps^2 sum_j p_j^2 ((1 + |s_j|^2 + scale^2 sum_i (q_i k_ji)^2) |v_j - o|^2 + |v_j|^2) + (eps o)^2
//         + eps_fp32^2 (keys + d) (sum_j p_j |v_j|)^2
//
// that is, scores s_j = scale q k_j that were rounded, as scaled queries may have been, probabilities that were
// rounded, and the context itself; sums are in fp32. eps, a whole step, is more than three times the deviation of a
// rounding.
#include "selfcheck/fused_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "selfcheck/attention_fit.h"
#include "selfcheck/head_verdicts.h"

namespace ttrace {
namespace {

constexpr double kDeviations = 4;
constexpr double kHeadsThatAgree = 0.75, kPlacesThatAgree = 0.9;

struct Reading {
  HeadOrder order;
  AttentionSizes sizes;
  bool causal = false;
};

std::vector<Reading> readings_of(const AttentionCall& call) {
  std::vector<Reading> readings;
  for (const HeadOrder& order : kHeadOrders) {
    const Shape& query = call.query->shape;
    AttentionSizes sizes;
    sizes.batch = query[order.batch];
    sizes.heads = query[order.head];
    sizes.rows = query[order.row];
    sizes.kv_heads = call.key->shape[order.head];
    sizes.cols = call.key->shape[order.row];
    if (!do_chain(call, sizes, order)) continue;
    readings.push_back({order, sizes, false});
    if (sizes.rows == sizes.cols) readings.push_back({order, sizes, true});
  }
  return readings;
}

// One head of one sample.
class Head {
 public:
  Head(const Heads& query, const Heads& key, const Heads& value, const Heads& context, const Reading& reading,
       std::int64_t sample, std::int64_t head)
      : query_(query.at(sample, head)),
        key_(key.at(sample, reading.sizes.kv_head_of(head))),
        value_(value.at(sample, reading.sizes.kv_head_of(head))),
        context_(context.at(sample, head)),
        causal_(reading.causal) {}

  // Returns the largest error of the row, in units of what it may be.
  double error_of(std::int64_t row, double eps) const {
    const std::int64_t keys = causal_ ? row + 1 : key_.rows, d = query_.cols, width = value_.cols;
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    std::vector<double> q(static_cast<std::size_t>(d)), k(q), v(static_cast<std::size_t>(width)), o(v);
    read(query_, row, 1, 0, d, q.data());
    read(context_, row, 1, 0, width, o.data());
    std::vector<double> p(static_cast<std::size_t>(keys)), rounding(p);
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      read(key_, static_cast<std::int64_t>(j), 1, 0, d, k.data());
      double dot = 0, squares = 0;
      for (std::size_t i = 0; i < k.size(); ++i) {
        dot += q[i] * k[i];
        squares += std::pow(q[i] * k[i], 2);
      }
      p[j] = scale * dot;
      rounding[j] = 1 + scale * scale * (dot * dot + squares);
      largest = std::max(largest, p[j]);
    }
    for (double& one : p) sum += one = std::exp(one - largest);
    std::vector<double> expected(v), variance(v), magnitude(v);
    for (std::size_t j = 0; j < p.size(); ++j) {
      p[j] /= sum;
      read(value_, static_cast<std::int64_t>(j), 1, 0, width, v.data());
      for (std::size_t i = 0; i < v.size(); ++i) {
        expected[i] += p[j] * v[i];
        magnitude[i] += p[j] * std::fabs(v[i]);
        variance[i] += p[j] * p[j] * (rounding[j] * std::pow(v[i] - o[i], 2) + v[i] * v[i]);
      }
    }
    const double summing = std::pow(epsilon_of(Dtype::kFloat32), 2) * static_cast<double>(keys + d);
    double worst = 0;
    for (std::size_t i = 0; i < o.size(); ++i) {
      const double square = eps * eps * (variance[i] + expected[i] * expected[i]) + summing * std::pow(magnitude[i], 2);
      const double difference = std::fabs(o[i] - expected[i]);
      if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
      if (difference > 0) worst = std::max(worst, difference / (kDeviations * std::sqrt(square)));
    }
    return worst;
  }

 private:
  abft::MatrixView query_, key_, value_, context_;
  bool causal_;
};

// The largest errors of rows, by sample, row (of those that were chosen) and head.
struct Errors {
  std::vector<std::int64_t> rows;
  std::vector<double> values;
  std::int64_t samples = 0, heads = 0;

  double at(std::int64_t sample, std::size_t row, std::int64_t head) const {
    return values[static_cast<std::size_t>(
        (sample * static_cast<std::int64_t>(rows.size()) + static_cast<std::int64_t>(row)) * heads + head)];
  }
  bool is_proved(std::int64_t sample, std::size_t row) const {
    std::int64_t agreeing = 0;
    for (std::int64_t head = 0; head < heads; ++head) agreeing += at(sample, row, head) <= 1;
    return static_cast<double>(agreeing) >= kHeadsThatAgree * static_cast<double>(heads);
  }
  double share_proved() const {
    std::int64_t proved = 0;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      for (std::size_t row = 0; row < rows.size(); ++row) proved += is_proved(sample, row);
    }
    return static_cast<double>(proved) / static_cast<double>(samples * static_cast<std::int64_t>(rows.size()));
  }
};

Errors errors_of(const AttentionCall& call, const Reading& reading) {
  const AttentionSizes& sizes = reading.sizes;
  const Heads query(*call.query, reading.order, sizes.heads), key(*call.key, reading.order, sizes.kv_heads),
      value(*call.value, reading.order, sizes.kv_heads), context(*call.context, reading.order, sizes.heads);
  Errors errors;
  errors.samples = sizes.batch;
  errors.heads = sizes.heads;
  const std::int64_t count = std::min(kSampledRows, sizes.rows);
  // The last of each stretch: the last of all has the most keys.
  for (std::int64_t i = 1; i <= count; ++i) errors.rows.push_back(i * sizes.rows / count - 1);
  double eps = 0;
  for (const LogicalTensor* tensor : {call.query, call.key, call.value, call.context}) {
    eps = std::max(eps, epsilon_of(tensor->dtype));
  }
  for (std::int64_t sample = 0; sample < sizes.batch; ++sample) {
    for (const std::int64_t row : errors.rows) {
      for (std::int64_t head = 0; head < sizes.heads; ++head) {
        errors.values.push_back(Head(query, key, value, context, reading, sample, head).error_of(row, eps));
      }
    }
  }
  return errors;
}

Finding finding_of(const AttentionCall& call, const Reading& reading, const Errors& errors) {
  const auto rows = static_cast<std::int64_t>(errors.rows.size());
  HeadVerdicts verdicts(*call.context, fmt::format("is softmax(q k) v{}, in {} of {} rows",
                                                   reading.causal ? ", causal" : "", rows, reading.sizes.rows));
  const Heads context(*call.context, reading.order, reading.sizes.heads);
  for (std::int64_t sample = 0; sample < errors.samples; ++sample) {
    for (std::int64_t head = 0; head < errors.heads; ++head) {
      std::optional<std::size_t> wrong;
      for (std::size_t row = 0; row < errors.rows.size() && !wrong; ++row) {
        if (errors.at(sample, row, head) > 1 && errors.is_proved(sample, row)) wrong = row;
      }
      if (!wrong) {
        verdicts.add_verified();
        continue;
      }
      verdicts.add_wrong(sample, head, Reason::kProductDiffers,
                         fmt::format("is not softmax(q k) v in row {}, which most other heads are: {:.3g} times what "
                                     "rounding explains ({} of {} rows were computed again)",
                                     errors.rows[*wrong], errors.at(sample, *wrong, head), rows, reading.sizes.rows),
                         context.element_number(sample, head, errors.rows[*wrong], 0));
    }
  }
  return verdicts.finding();
}

}  // namespace

Finding check_fused_attention(const AttentionCall& call) {
  std::optional<Reading> best;
  Errors errors;
  double share = 0;
  for (const Reading& reading : readings_of(call)) {
    Errors tried = errors_of(call, reading);
    const double proved = tried.share_proved();
    if (proved <= share) continue;
    best = reading;
    errors = std::move(tried);
    share = proved;
  }
  if (!best || share < kPlacesThatAgree) {
    return finding_about(*call.context, Verdict::kUntrusted, Reason::kNotCheckable,
                         "it is fused, and not softmax(q k / sqrt(d)) v, causal or not, in most heads: it has another "
                         "mask, scale or bias, or dropout, or is wrong in all heads");
  }
  return finding_of(call, *best, errors);
}

}  // namespace ttrace
