#include "selfcheck/products.h"

#include <fmt/format.h>

namespace ttrace {

abft::Verification verify_product(const abft::Product& product, abft::Rounding rounding,
                                  const SelfCheckOptions& options, double roundings) {
  abft::Product rounded = product;
  rounded.rounding = rounding;
  abft::VerifyOptions verify_options;
  verify_options.threshold.method = options.method;
  verify_options.threshold.fp32_products = options.fp32_products;
  verify_options.threshold.roundings = roundings;
  const auto e_max = options.e_max.find(rounding.output);
  if (e_max != options.e_max.end() && rounding.operand == rounding.output)
    verify_options.threshold.e_max = e_max->second;
  return abft::verify(rounded, verify_options);
}

Dtype coarser(Dtype a, Dtype b) { return epsilon_of(a) >= epsilon_of(b) ? a : b; }

std::string describe(const abft::Verification& faulty, std::string_view operands) {
  std::int64_t located = 0, lines = 0;
  for (const abft::Fault& fault : faulty.faults) ++(fault.located() ? located : lines);
  const abft::Fault& first = faulty.faults.front();
  const std::string where =
      first.located()
          ? fmt::format("row {}, column {} is {:.6g}, not {:.6g}", first.row, first.col, first.value, first.corrected)
          : fmt::format("the sum of {} {} is off by {:.3g}, allowed {:.3g}",
                        first.line == abft::Line::kRow ? "row" : "column",
                        first.line == abft::Line::kRow ? first.row : first.col, first.difference, first.threshold);
  return fmt::format("is not {}: {}; {} elements and {} further rows or columns are wrong", operands, where, located,
                     lines);
}

}  // namespace ttrace
