#include "selfcheck/attention_heads.h"

#include <algorithm>

#include "selfcheck/products.h"

namespace ttrace {

AttentionHeads::AttentionHeads(const AttentionCall& call, const AttentionFit& fit)
    : query(*call.query, fit.order, fit.sizes.heads),
      key(*call.key, fit.order, fit.sizes.kv_heads),
      value(*call.value, fit.order, fit.sizes.kv_heads),
      context(*call.context, fit.order, fit.sizes.heads),
      scores(*call.scores),
      probabilities(*call.probabilities),
      applied(*call.applied) {}

ScaledCopy::ScaledCopy(const abft::MatrixView& matrix, double scale)
    : values(static_cast<std::size_t>(matrix.rows * matrix.cols)), rows(matrix.rows), cols(matrix.cols) {
  read(matrix, 0, rows, 0, cols, values.data());
  for (double& value : values) value *= scale;
}

void check_product(HeadVerdicts& verdicts, const abft::Product& product, const Heads& heads, std::int64_t sample,
                   std::int64_t head, double roundings, const SelfCheckOptions& options, const std::string& ending) {
  Dtype operand = product.terms.front().a.dtype;
  if (operand == Dtype::kFloat64) operand = heads.stored();  // a ScaledCopy, whose own dtype was the call's
  const abft::Verification result = verify_product(product, {operand, heads.stored()}, options, roundings);
  if (result.outcome == abft::Outcome::kVerified) return verdicts.add_verified();
  if (result.outcome == abft::Outcome::kNotCheckable) return verdicts.add_unchecked(result.reason);
  const abft::Fault& first = result.faults.front();
  const std::int64_t row = std::max<std::int64_t>(first.row, 0), col = std::max<std::int64_t>(first.col, 0);
  const std::string operands = verdicts.claim().substr(3);  // after "is "
  verdicts.add_wrong(sample, head, Reason::kProductDiffers, describe(result, operands) + ending,
                     heads.element_number(sample, head, row, col));
}

}  // namespace ttrace
