// Forward attention, head by head: scores and context are checked by checksums, as linears are, and probabilities by
// the sums of their rows. The pattern of extreme values tells where a fault struck (abft/propagation.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "abft/propagation.h"
#include "selfcheck/attention_heads.h"
#include "selfcheck/masks.h"

namespace ttrace {
namespace {

using abft::AttentionMatrix;

constexpr double kLeastAgreeing = 0.25;  // share of the sampled scores; if fewer agree, something was added to them

std::string_view name_of(AttentionMatrix matrix) {
  constexpr std::string_view kNames[] = {"queries", "keys", "values", "scores", "probabilities", "context", "output"};
  return kNames[static_cast<std::size_t>(matrix)];
}

std::string describe_strike(const abft::Strike& strike, const abft::HeadExtremes& extremes) {
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

class Forward {
 public:
  Forward(const AttentionCall& call, const AttentionFit& fit, const AttentionHeads& heads,
          const SelfCheckOptions& options, std::vector<Finding>& findings)
      : call_(call),
        fit_(fit),
        sizes_(fit.sizes),
        heads_(heads),
        options_(options),
        findings_(findings),
        masks_(heads.scores, fit.sizes) {}

  void check() {
    HeadVerdicts query(*call_.query, ""), key(*call_.key, ""), value(*call_.value, "");
    HeadVerdicts scores(*call_.scores, fmt::format("is its queries times its keys, times {:.6g}", fit_.scale));
    HeadVerdicts probabilities(*call_.probabilities, "has rows that sum to 1");
    HeadVerdicts context(*call_.context, "is its probabilities times its values");
    for_each_head(sizes_.batch, sizes_.heads, [&](std::int64_t sample, std::int64_t head) {
      const std::int64_t kv_head = sizes_.kv_head_of(head);
      const ScaledCopy unmasked = unmasked_scores(sample, head);
      const abft::HeadExtremes extremes = {
          extremes_in(heads_.query.at(sample, head)),         extremes_in(heads_.key.at(sample, kv_head)),
          extremes_in(heads_.value.at(sample, kv_head)),      extremes_in(unmasked.view()),
          extremes_in(heads_.probabilities.at(sample, head)), extremes_in(heads_.context.at(sample, head))};
      const abft::Strike strike = abft::find_strike(extremes);
      const auto describe_strike_on = [&](AttentionMatrix matrix) {
        const bool here = strike.where != abft::Strike::Where::kNowhere && strike.seen == matrix;
        return here ? "; " + describe_strike(strike, extremes) : "";
      };
      check_input(query, heads_.query, AttentionMatrix::kQuery, strike, extremes, sample, head, head);
      check_input(key, heads_.key, AttentionMatrix::kKey, strike, extremes, sample, head, kv_head);
      check_input(value, heads_.value, AttentionMatrix::kValue, strike, extremes, sample, head, kv_head);
      check_scores(scores, unmasked, sample, head, describe_strike_on(AttentionMatrix::kScores));
      check_rows(probabilities, unmasked, sample, head, describe_strike_on(AttentionMatrix::kProbabilities));
      const abft::Product product{.terms = {{heads_.applied.at(sample, head), heads_.value.at(sample, kv_head)}},
                                  .c = heads_.context.at(sample, head)};
      check_product(context, product, heads_.context, sample, head, 1, options_,
                    describe_strike_on(AttentionMatrix::kContext));
    });
    for (const HeadVerdicts* input : {&query, &key, &value}) {
      if (input->is_wrong()) findings_.push_back(input->finding());
    }
    for (const HeadVerdicts* verdicts : {&scores, &probabilities, &context}) findings_.push_back(verdicts->finding());
  }

 private:
  // Returns the scores with each masked one replaced by what the product gives, so that the sums of lines stay
  // checkable.
  ScaledCopy unmasked_scores(std::int64_t sample, std::int64_t head) const {
    ScaledCopy scores(heads_.scores.at(sample, head));
    if (!masks_.any()) return scores;
    const ScaledCopy query(heads_.query.at(sample, head), fit_.scale);
    const abft::Product product{
        .terms = {{query.view(), abft::transposed(heads_.key.at(sample, sizes_.kv_head_of(head)))}},
        .c = scores.view()};
    for (std::int64_t row = 0; row < sizes_.rows; ++row) {
      for (std::int64_t col = 0; col < sizes_.cols; ++col) {
        if (!masks_.at(sample, row, col)) continue;
        scores.values[static_cast<std::size_t>(row * sizes_.cols + col)] = exact_element(product, row, col);
      }
    }
    return scores;
  }

  // Queries, keys and values are not results of attention. They are wrong only where the strike is on them.
  void check_input(HeadVerdicts& verdicts, const Heads& heads, AttentionMatrix matrix, const abft::Strike& strike,
                   const abft::HeadExtremes& extremes, std::int64_t sample, std::int64_t head, std::int64_t own_head) {
    if (strike.where == abft::Strike::Where::kNowhere || strike.where == abft::Strike::Where::kBefore ||
        strike.seen != matrix) {
      return verdicts.add_verified();
    }
    const abft::Extremes& found = extremes[static_cast<std::size_t>(matrix)];
    verdicts.add_wrong(sample, head, Reason::kNotFinite,
                       fmt::format("has at row {}, column {} the first of {}", found.row, found.col,
                                   describe_strike(strike, extremes)),
                       heads.element_number(sample, own_head, found.row, found.col));
  }

  void check_scores(HeadVerdicts& verdicts, const ScaledCopy& unmasked, std::int64_t sample, std::int64_t head,
                    const std::string& ending) {
    if (fit_.agreeing < kLeastAgreeing) {
      return verdicts.add_unchecked("no multiple of queries times keys, as if something were added to all of them");
    }
    if (!fit_.usual_scale) {
      return verdicts.add_unchecked(fmt::format(
          "about {:.4g} times queries times keys, and neither 1/sqrt(d) nor 1: the scale may be wrong", fit_.scale));
    }
    const ScaledCopy query(heads_.query.at(sample, head), fit_.scale);
    const abft::Product product{
        .terms = {{query.view(), abft::transposed(heads_.key.at(sample, sizes_.kv_head_of(head)))}},
        .c = unmasked.view()};
    check_product(verdicts, product, heads_.scores, sample, head, fit_.roundings(), options_, ending);
  }

  // Rounding the probabilities to their dtype moves a row's sum, which is 1, by half a unit of it at most. The softmax
  // before that was computed in fp32 or better: `cols` additions, and a few roundings of exponential and quotient.
  void check_rows(HeadVerdicts& verdicts, const ScaledCopy& unmasked, std::int64_t sample, std::int64_t head,
                  const std::string& ending) {
    if (!call_.plain_softmax) return verdicts.add_unchecked("its module has parameters, or adds to the denominator");
    const Dtype dtype = call_.probabilities->dtype;
    const double accumulator = std::min(epsilon_of(dtype), epsilon_of(Dtype::kFloat32)) / 2;
    const double allowed = epsilon_of(dtype) / 2 + static_cast<double>(sizes_.cols + 8) * accumulator;
    const abft::MatrixView matrix = heads_.probabilities.at(sample, head);
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
      if (sum == 0 && possible && is_zero_in_all_heads(sample, i)) continue;
      if (!is_finite_row(unmasked, i) || masks_.masks_whole_row(sample, i)) {
        ++unusable;
        continue;
      }
      return verdicts.add_wrong(
          sample, head, Reason::kSumDiffers,
          fmt::format("has row {} with the sum {:.6g}, allowed 1 +- {:.3g}, and {} value beyond 0 and 1{}", i, sum,
                      allowed, possible ? "no" : "a", ending),
          heads_.probabilities.element_number(sample, head, i, 0));
    }
    if (unusable > 0)
      return verdicts.add_unchecked(fmt::format("{} rows have scores that are not finite, or all masked", unusable));
    verdicts.add_verified();
  }

  // Returns whether the row is zero in all heads, as it is for a query whose keys are all masked.
  bool is_zero_in_all_heads(std::int64_t sample, std::int64_t row) const {
    for (std::int64_t head = 0; head < sizes_.heads; ++head) {
      for (std::int64_t col = 0; col < sizes_.cols; ++col) {
        if (element(heads_.probabilities.at(sample, head), row, col) != 0) return false;
      }
    }
    return true;
  }

  static bool is_finite_row(const ScaledCopy& matrix, std::int64_t row) {
    for (std::int64_t col = 0; col < matrix.cols; ++col) {
      if (!std::isfinite(matrix.values[static_cast<std::size_t>(row * matrix.cols + col)])) return false;
    }
    return true;
  }

  const AttentionCall& call_;
  const AttentionFit& fit_;
  const AttentionSizes& sizes_;
  const AttentionHeads& heads_;
  const SelfCheckOptions& options_;
  std::vector<Finding>& findings_;
  Masks masks_;
};

}  // namespace

void check_attention_forward(const AttentionCall& call, const AttentionFit& fit, const AttentionHeads& heads,
                             const SelfCheckOptions& options, std::vector<Finding>& findings) {
  Forward(call, fit, heads, options, findings).check();
}

}  // namespace ttrace
