// Attention, head by head: scores and context by checksums, as linears are; probabilities by the sums of their rows;
// extreme values by where a fault must have struck to leave them (ttrace/abft/propagation.h). Backward:
//
//   dP = dC V^T    dV = P^T dC    dQ = scale dS K    dK = scale dS^T Q
//
// where P is what the values were multiplied with. Of heads that share keys and values the gradients are summed.
#include <fmt/format.h>

#include <cmath>

#include "selfcheck/attention_call.h"
#include "selfcheck/head_verdicts.h"
#include "selfcheck/masks.h"
#include "selfcheck/products.h"
#include "ttrace/abft/propagation.h"

namespace ttrace {
namespace {

using abft::AttentionMatrix;

constexpr double kLeastAgreeing = 0.25;  // of the sampled scores: with fewer, something else was added to all of them

struct Values {
  std::vector<double> data;
  std::int64_t rows = 0, cols = 0;

  abft::MatrixView view() const { return abft::row_major(data.data(), Dtype::kFloat64, rows, cols); }
};

Values copy_of(const abft::MatrixView& matrix, double scale = 1) {
  Values values{std::vector<double>(static_cast<std::size_t>(matrix.rows * matrix.cols)), matrix.rows, matrix.cols};
  read(matrix, 0, matrix.rows, 0, matrix.cols, values.data.data());
  for (double& value : values.data) value *= scale;
  return values;
}

std::string_view name_of(AttentionMatrix matrix) {
  constexpr std::string_view kNames[] = {"queries", "keys", "values", "scores", "probabilities", "context", "output"};
  return kNames[static_cast<std::size_t>(matrix)];
}

std::string words_of(const abft::Strike& strike, const abft::HeadExtremes& extremes) {
  const std::string found =
      fmt::format("{} of the {}", to_string(extremes[static_cast<std::size_t>(strike.seen)]), name_of(strike.seen));
  switch (strike.where) {
    case abft::Strike::Where::kHere:
      return fmt::format("{}: by ATTNChecker's Table 1 the fault struck these", found);
    case abft::Strike::Where::kInFlight:
      return fmt::format("{}: by ATTNChecker's Table 1 the fault struck the {} on their way, after they were recorded",
                         found, name_of(strike.matrix));
    default:
      return fmt::format("{}: no single fault of ATTNChecker's Table 1", found);
  }
}

class AttentionCheck {
 public:
  AttentionCheck(const Alignment& alignment, const AttentionCall& call, const AttentionFit& fit,
                 const SelfCheckOptions& options, std::vector<Finding>& findings)
      : alignment_(alignment),
        call_(call),
        fit_(fit),
        sizes_(fit.sizes),
        options_(options),
        findings_(findings),
        query_(*call.query, fit.order, sizes_.heads),
        key_(*call.key, fit.order, sizes_.kv_heads),
        value_(*call.value, fit.order, sizes_.kv_heads),
        context_(*call.context, fit.order, sizes_.heads),
        scores_(*call.scores),
        probabilities_(*call.probabilities),
        applied_(*call.applied),
        masks_(scores_, sizes_) {}

  void forward() {
    HeadVerdicts query(*call_.query, ""), key(*call_.key, ""), value(*call_.value, "");
    HeadVerdicts scores(*call_.scores, fmt::format("is its queries times its keys, times {:.6g}", fit_.scale));
    HeadVerdicts probabilities(*call_.probabilities, "has rows that sum to 1");
    HeadVerdicts context(*call_.context, "is its probabilities times its values");
    for_each_head(sizes_.heads, [&](std::int64_t batch, std::int64_t head) {
      const std::int64_t kv_head = sizes_.kv_head_of(head);
      const Values unmasked = unmasked_scores(batch, head);
      const abft::HeadExtremes extremes = {
          extremes_in(query_.at(batch, head)),         extremes_in(key_.at(batch, kv_head)),
          extremes_in(value_.at(batch, kv_head)),      extremes_in(unmasked.view()),
          extremes_in(probabilities_.at(batch, head)), extremes_in(context_.at(batch, head))};
      const abft::Strike strike = abft::struck(extremes);
      const auto told_of = [&](AttentionMatrix matrix) {
        const bool here = strike.where != abft::Strike::Where::kNowhere && strike.seen == matrix;
        return here ? "; " + words_of(strike, extremes) : "";
      };
      check_input(query, query_, AttentionMatrix::kQuery, strike, extremes, batch, head, head);
      check_input(key, key_, AttentionMatrix::kKey, strike, extremes, batch, head, kv_head);
      check_input(value, value_, AttentionMatrix::kValue, strike, extremes, batch, head, kv_head);
      check_scores(scores, unmasked, batch, head, told_of(AttentionMatrix::kScores));
      check_rows(probabilities, unmasked, batch, head, told_of(AttentionMatrix::kProbabilities));
      const abft::Product product{.terms = {{applied_.at(batch, head), value_.at(batch, kv_head)}},
                                  .c = context_.at(batch, head)};
      check_product(context, product, context_, batch, head, 1, told_of(AttentionMatrix::kContext));
    });
    for (const HeadVerdicts* input : {&query, &key, &value}) {
      if (input->is_wrong()) findings_.push_back(input->finding());
    }
    for (const HeadVerdicts* verdicts : {&scores, &probabilities, &context}) findings_.push_back(verdicts->finding());
  }

  void backward() {
    const LogicalTensor* context_gradient = gradient_of(alignment_, *call_.context);
    const LogicalTensor* score_gradient = gradient_of(alignment_, *call_.scores);
    if (context_gradient != nullptr) {
      const Heads dc(*context_gradient, fit_.order, sizes_.heads);
      probabilities_backward(dc);
      values_backward(dc);
    }
    if (score_gradient != nullptr && fit_.usual) {
      const Heads ds(*score_gradient);
      queries_backward(ds);
      keys_backward(ds);
    }
  }

 private:
  template <class Check>
  void for_each_head(std::int64_t heads, Check check) const {
    for (std::int64_t batch = 0; batch < sizes_.batch; ++batch) {
      for (std::int64_t head = 0; head < heads; ++head) check(batch, head);
    }
  }

  std::int64_t group() const { return sizes_.heads / sizes_.kv_heads; }
  double roundings() const { return fit_.rounded_twice ? 2 : 1; }

  // With what a masked score would have been in place of it.
  Values unmasked_scores(std::int64_t batch, std::int64_t head) const {
    Values scores = copy_of(scores_.at(batch, head));
    if (!masks_.any()) return scores;
    const Values query = copy_of(query_.at(batch, head), fit_.scale);
    const abft::Product product{.terms = {{query.view(), abft::transposed(key_.at(batch, sizes_.kv_head_of(head)))}},
                                .c = scores.view()};
    for (std::int64_t row = 0; row < sizes_.rows; ++row) {
      for (std::int64_t col = 0; col < sizes_.cols; ++col) {
        if (!masks_.at(batch, row, col)) continue;
        scores.data[static_cast<std::size_t>(row * sizes_.cols + col)] = exact_element(product, row, col);
      }
    }
    return scores;
  }

  // Queries, keys and values are no product that is checked here: an extreme value in one of them alone is the fault.
  void check_input(HeadVerdicts& verdicts, const Heads& heads, AttentionMatrix matrix, const abft::Strike& strike,
                   const abft::HeadExtremes& extremes, std::int64_t batch, std::int64_t head, std::int64_t own_head) {
    if (strike.where == abft::Strike::Where::kNowhere || strike.where == abft::Strike::Where::kBefore ||
        strike.seen != matrix) {
      return verdicts.verified();
    }
    const abft::Extremes& found = extremes[static_cast<std::size_t>(matrix)];
    verdicts.wrong(
        batch, head, Reason::kNotFinite,
        fmt::format("has at row {}, column {} the first of {}", found.row, found.col, words_of(strike, extremes)),
        heads.element(batch, own_head, found.row, found.col));
  }

  void check_scores(HeadVerdicts& verdicts, const Values& unmasked, std::int64_t batch, std::int64_t head,
                    const std::string& told) {
    if (fit_.agreeing < kLeastAgreeing) {
      return verdicts.unchecked("no multiple of queries times keys, as if something were added to all of them");
    }
    if (!fit_.usual) {
      return verdicts.unchecked(fmt::format(
          "about {:.4g} times queries times keys, and neither 1/sqrt(d) nor 1: the scale may be wrong", fit_.scale));
    }
    const Values query = copy_of(query_.at(batch, head), fit_.scale);
    const abft::Product product{.terms = {{query.view(), abft::transposed(key_.at(batch, sizes_.kv_head_of(head)))}},
                                .c = unmasked.view()};
    check_product(verdicts, product, scores_, batch, head, roundings(), told);
  }

  // Each probability is rounded to its dtype, by half a unit of at most 1 in all; the softmax of `n` scores is one of
  // fp32 at least: n additions, and a few roundings of the exponential and the quotient.
  void check_rows(HeadVerdicts& verdicts, const Values& unmasked, std::int64_t batch, std::int64_t head,
                  const std::string& told) {
    if (!call_.plain_softmax) return verdicts.unchecked("its module has parameters, or adds to the denominator");
    const Dtype dtype = call_.probabilities->dtype;
    const double accumulator = std::min(epsilon_of(dtype), epsilon_of(Dtype::kFloat32)) / 2;
    const double allowed = epsilon_of(dtype) / 2 + static_cast<double>(sizes_.cols + 8) * accumulator;
    const abft::MatrixView matrix = probabilities_.at(batch, head);
    std::vector<double> row(static_cast<std::size_t>(sizes_.cols));
    std::int64_t unusable = 0;
    for (std::int64_t i = 0; i < sizes_.rows; ++i) {
      read(matrix, i, 1, 0, sizes_.cols, row.data());
      double sum = 0;
      bool possible = true;
      for (const double value : row) {
        sum += value;
        possible = possible && value >= 0 && value <= 1 + allowed;
      }
      if (possible && std::fabs(sum - 1) <= allowed) continue;
      if (sum == 0 && possible && sees_nothing(batch, i)) continue;
      if (!is_finite_row(unmasked, i)) {
        ++unusable;
        continue;
      }
      return verdicts.wrong(
          batch, head, Reason::kSumDiffers,
          fmt::format("has row {} with the sum {:.6g}, allowed 1 +- {:.3g}, and {} value beyond 0 and 1{}", i, sum,
                      allowed, possible ? "no" : "a", told),
          probabilities_.element(batch, head, i, 0));
    }
    if (unusable > 0) return verdicts.unchecked("the scores are not finite");
    verdicts.verified();
  }

  // A row of zeros in all heads: of a query whose keys are all masked.
  bool sees_nothing(std::int64_t batch, std::int64_t row) const {
    for (std::int64_t head = 0; head < sizes_.heads; ++head) {
      for (std::int64_t col = 0; col < sizes_.cols; ++col) {
        if (element(probabilities_.at(batch, head), row, col) != 0) return false;
      }
    }
    return true;
  }

  static bool is_finite_row(const Values& matrix, std::int64_t row) {
    for (std::int64_t col = 0; col < matrix.cols; ++col) {
      if (!std::isfinite(matrix.data[static_cast<std::size_t>(row * matrix.cols + col)])) return false;
    }
    return true;
  }

  void probabilities_backward(const Heads& dc) {
    const LogicalTensor* gradient = gradient_of(alignment_, *call_.applied);
    if (gradient == nullptr) return;
    const Heads dp(*gradient);
    HeadVerdicts verdicts(*gradient, "is the gradient of the context times the values");
    for_each_head(sizes_.heads, [&](std::int64_t batch, std::int64_t head) {
      const abft::MatrixView value = value_.at(batch, sizes_.kv_head_of(head));
      const abft::Product product{.terms = {{dc.at(batch, head), abft::transposed(value)}}, .c = dp.at(batch, head)};
      check_product(verdicts, product, dp, batch, head, 1);
    });
    findings_.push_back(verdicts.finding());
  }

  void values_backward(const Heads& dc) {
    const LogicalTensor* gradient = gradient_of(alignment_, *call_.value);
    if (gradient == nullptr) return;
    const Heads dv(*gradient, fit_.order, sizes_.kv_heads);
    HeadVerdicts verdicts(*gradient, "is the probabilities, transposed, times the gradient of the context");
    for_each_head(sizes_.kv_heads, [&](std::int64_t batch, std::int64_t kv_head) {
      abft::Product product{.terms = {}, .c = dv.at(batch, kv_head)};
      for (std::int64_t head = kv_head * group(); head < (kv_head + 1) * group(); ++head) {
        product.terms.push_back({abft::transposed(applied_.at(batch, head)), dc.at(batch, head)});
      }
      check_product(verdicts, product, dv, batch, kv_head, roundings_of_sum(1));
    });
    findings_.push_back(verdicts.finding());
  }

  void queries_backward(const Heads& ds) {
    const LogicalTensor* gradient = gradient_of(alignment_, *call_.query);
    if (gradient == nullptr) return;
    const Heads dq(*gradient, fit_.order, sizes_.heads);
    HeadVerdicts verdicts(*gradient, "is the gradient of the scores times the keys");
    for_each_head(sizes_.heads, [&](std::int64_t batch, std::int64_t head) {
      const Values key = copy_of(key_.at(batch, sizes_.kv_head_of(head)), fit_.scale);
      const abft::Product product{.terms = {{ds.at(batch, head), key.view()}}, .c = dq.at(batch, head)};
      check_product(verdicts, product, dq, batch, head, roundings());
    });
    findings_.push_back(verdicts.finding());
  }

  void keys_backward(const Heads& ds) {
    const LogicalTensor* gradient = gradient_of(alignment_, *call_.key);
    if (gradient == nullptr) return;
    const Heads dk(*gradient, fit_.order, sizes_.kv_heads);
    HeadVerdicts verdicts(*gradient, "is the gradient of the scores, transposed, times the queries");
    for_each_head(sizes_.kv_heads, [&](std::int64_t batch, std::int64_t kv_head) {
      std::vector<Values> queries;
      abft::Product product{.terms = {}, .c = dk.at(batch, kv_head)};
      for (std::int64_t head = kv_head * group(); head < (kv_head + 1) * group(); ++head) {
        queries.push_back(copy_of(query_.at(batch, head), fit_.scale));
        product.terms.push_back({abft::transposed(ds.at(batch, head)), queries.back().view()});
      }
      check_product(verdicts, product, dk, batch, kv_head, roundings_of_sum(roundings()));
    });
    findings_.push_back(verdicts.finding());
  }

  // The terms of heads that share keys and values are rounded, and then their sums.
  double roundings_of_sum(double of_term) const {
    return group() == 1 ? of_term : of_term + static_cast<double>(group());
  }

  // `heads` are of the tensor that the product's C is.
  void check_product(HeadVerdicts& verdicts, const abft::Product& product, const Heads& heads, std::int64_t batch,
                     std::int64_t head, double roundings, const std::string& told = "") {
    Dtype operand = product.terms.front().a.dtype;
    if (operand == Dtype::kFloat64) operand = heads.stored();  // a copy: operands have the call's dtype
    const abft::Verification result = verify_product(product, {operand, heads.stored()}, options_, roundings);
    if (result.outcome == abft::Outcome::kVerified) return verdicts.verified();
    if (result.outcome == abft::Outcome::kNotCheckable) return verdicts.unchecked(result.reason);
    const abft::Fault& first = result.faults.front();
    const std::string operands = verdicts.words().substr(3);  // after "is "
    verdicts.wrong(
        batch, head, Reason::kProductDiffers, describe(result, operands) + told,
        heads.element(batch, head, std::max<std::int64_t>(first.row, 0), std::max<std::int64_t>(first.col, 0)));
  }

  const Alignment& alignment_;
  const AttentionCall& call_;
  const AttentionFit& fit_;
  const AttentionSizes& sizes_;
  const SelfCheckOptions& options_;
  std::vector<Finding>& findings_;
  Heads query_, key_, value_, context_, scores_, probabilities_, applied_;
  Masks masks_;
};

// Why nothing can be said of the call; empty if something can.
std::string objection_to(const AttentionCall& call, const std::optional<AttentionFit>& fit) {
  for (const LogicalTensor* tensor : {call.query, call.key, call.value, call.context, call.scores, call.applied}) {
    if (!fits_in_memory(*tensor)) return "its tensors have more than 2^27 elements";
    if (element_count(tensor->shape) == 0) return "its tensors have no elements";
  }
  if (fit) return {};
  return fmt::format("queries {}, keys {}, values {}, scores {} and context {} do not chain",
                     to_string(call.query->shape), to_string(call.key->shape), to_string(call.value->shape),
                     to_string(call.scores->shape), to_string(call.context->shape));
}

}  // namespace

void check_attention(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings) {
  for (const auto& [id, output] : alignment.tensors) {
    if (id.kind != Kind::kOutput || !is_floating(output.dtype)) continue;
    const std::optional<AttentionCall> call = attention_call_of(alignment, output);
    if (!call) continue;
    const auto refuse = [&](const std::string& why) {
      findings.push_back(finding_about(output, Verdict::kUntrusted, Reason::kNotCheckable, why));
    };
    if (call->scores == nullptr) {
      refuse("its scores and probabilities were not recorded: attention is fused, or its softmax is no module");
      continue;
    }
    std::string why = objection_to(*call, AttentionFit{});
    const std::optional<AttentionFit> fit = why.empty() ? fit_of(*call) : std::nullopt;
    if (why.empty()) why = objection_to(*call, fit);
    if (!why.empty()) {
      refuse(why);
      continue;
    }
    AttentionCheck check(alignment, *call, *fit, options, findings);
    check.forward();
    if (id.pass == Pass::kForward) check.backward();
  }
}

}  // namespace ttrace
