// Backward through attention, head by head:
//
//   dP = dC V^T    dV = P^T dC    dQ = scale dS K    dK = scale dS^T Q
//
// where P is the left factor of the values, and S the scores. Heads that share keys and values add up their gradients.
#include "selfcheck/attention_heads.h"

namespace ttrace {
namespace {

class Backward {
 public:
  Backward(const Alignment& alignment, const AttentionCall& call, const AttentionFit& fit, const AttentionHeads& heads,
           const SelfCheckOptions& options, std::vector<Finding>& findings)
      : alignment_(alignment), call_(call), fit_(fit), heads_(heads), options_(options), findings_(findings) {}

  void check() {
    if (const LogicalTensor* gradient = find_gradient(alignment_, *call_.context)) {
      const Heads dc(*gradient, fit_.order, fit_.sizes.heads);
      check_probabilities(dc);
      check_values(dc);
    }
    const LogicalTensor* gradient = find_gradient(alignment_, *call_.scores);
    if (gradient != nullptr && fit_.usual_scale) {
      const Heads ds(*gradient);
      check_queries(ds);
      check_keys(ds);
    }
  }

 private:
  void check_probabilities(const Heads& dc) {
    const LogicalTensor* gradient = find_gradient(alignment_, *call_.applied);
    if (gradient == nullptr) return;
    const Heads dp(*gradient);
    HeadVerdicts verdicts(*gradient, "is the gradient of the context times the values");
    for_each_head(fit_.sizes.batch, fit_.sizes.heads, [&](std::int64_t sample, std::int64_t head) {
      const abft::MatrixView value = heads_.value.at(sample, fit_.sizes.kv_head_of(head));
      const abft::Product product{.terms = {{dc.at(sample, head), abft::transposed(value)}}, .c = dp.at(sample, head)};
      check_product(verdicts, product, dp, sample, head, 1, options_);
    });
    findings_.push_back(verdicts.finding());
  }

  void check_values(const Heads& dc) {
    const LogicalTensor* gradient = find_gradient(alignment_, *call_.value);
    if (gradient == nullptr) return;
    const Heads dv(*gradient, fit_.order, fit_.sizes.kv_heads);
    HeadVerdicts verdicts(*gradient, "is the probabilities, transposed, times the gradient of the context");
    for_each_head(fit_.sizes.batch, fit_.sizes.kv_heads, [&](std::int64_t sample, std::int64_t kv_head) {
      abft::Product product{.terms = {}, .c = dv.at(sample, kv_head)};
      for (std::int64_t head = kv_head * group(); head < (kv_head + 1) * group(); ++head) {
        product.terms.push_back({abft::transposed(heads_.applied.at(sample, head)), dc.at(sample, head)});
      }
      check_product(verdicts, product, dv, sample, kv_head, roundings_of_sum(1), options_);
    });
    findings_.push_back(verdicts.finding());
  }

  void check_queries(const Heads& ds) {
    const LogicalTensor* gradient = find_gradient(alignment_, *call_.query);
    if (gradient == nullptr) return;
    const Heads dq(*gradient, fit_.order, fit_.sizes.heads);
    HeadVerdicts verdicts(*gradient, "is the gradient of the scores times the keys");
    for_each_head(fit_.sizes.batch, fit_.sizes.heads, [&](std::int64_t sample, std::int64_t head) {
      const ScaledCopy key(heads_.key.at(sample, fit_.sizes.kv_head_of(head)), fit_.scale);
      const abft::Product product{.terms = {{ds.at(sample, head), key.view()}}, .c = dq.at(sample, head)};
      check_product(verdicts, product, dq, sample, head, fit_.roundings(), options_);
    });
    findings_.push_back(verdicts.finding());
  }

  void check_keys(const Heads& ds) {
    const LogicalTensor* gradient = find_gradient(alignment_, *call_.key);
    if (gradient == nullptr) return;
    const Heads dk(*gradient, fit_.order, fit_.sizes.kv_heads);
    HeadVerdicts verdicts(*gradient, "is the gradient of the scores, transposed, times the queries");
    for_each_head(fit_.sizes.batch, fit_.sizes.kv_heads, [&](std::int64_t sample, std::int64_t kv_head) {
      std::vector<ScaledCopy> queries;
      abft::Product product{.terms = {}, .c = dk.at(sample, kv_head)};
      for (std::int64_t head = kv_head * group(); head < (kv_head + 1) * group(); ++head) {
        queries.emplace_back(heads_.query.at(sample, head), fit_.scale);
        product.terms.push_back({abft::transposed(ds.at(sample, head)), queries.back().view()});
      }
      check_product(verdicts, product, dk, sample, kv_head, roundings_of_sum(fit_.roundings()), options_);
    });
    findings_.push_back(verdicts.finding());
  }

  std::int64_t group() const { return fit_.sizes.heads / fit_.sizes.kv_heads; }
  // Where heads share keys and values, each head's term is rounded, and then each addition of two of them.
  double roundings_of_sum(double of_one_term) const {
    return group() == 1 ? of_one_term : of_one_term + static_cast<double>(group());
  }

  const Alignment& alignment_;
  const AttentionCall& call_;
  const AttentionFit& fit_;
  const AttentionHeads& heads_;
  const SelfCheckOptions& options_;
  std::vector<Finding>& findings_;
};

}  // namespace

void check_attention_backward(const Alignment& alignment, const AttentionCall& call, const AttentionFit& fit,
                              const AttentionHeads& heads, const SelfCheckOptions& options,
                              std::vector<Finding>& findings) {
  Backward(alignment, call, fit, heads, options, findings).check();
}

}  // namespace ttrace
