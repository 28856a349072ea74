#include "selfcheck/products.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>

namespace ttrace {

abft::Verification verify_product(const abft::Product& product, abft::Rounding rounding,
                                  const SelfCheckOptions& options, double roundings) {
  abft::Product rounded = product;
  rounded.rounding = rounding;
  abft::VerifyOptions verify_options;
  verify_options.threshold.method = options.method;
  verify_options.threshold.fp32_products = options.fp32_products;
  verify_options.threshold.roundings = roundings;
  verify_options.block = options.block;
  const auto e_max = options.e_max.find(rounding.output);
  if (e_max != options.e_max.end() && rounding.operand == rounding.output)
    verify_options.threshold.e_max = e_max->second;
  return abft::verify(rounded, verify_options);
}

namespace {

// "by the sums of its row 0.497, of its column 0.5": the right value a second time, by other sums than its own product's.
std::string describe_sums(const abft::Fault& fault) {
  const double error = std::fabs(fault.value - fault.corrected);
  std::string text, coarse;
  const auto add = [&](const std::optional<abft::SumsValue>& by, std::string_view line) {
    if (!by) return;
    const bool tells = !(error <= by->threshold);  // and where it is NaN
    std::string& to = tells ? text : coarse;
    to += fmt::format("{}of its {}{}",
                      to.empty() ? ""
                      : tells    ? ", "
                                 : " and ",
                      line, tells ? fmt::format(" {:.6g}", by->value) : "");
  };
  add(fault.by_row, "row");
  add(fault.by_col, "column");
  if (!text.empty()) text = "by the sums " + text;
  if (!coarse.empty()) text += fmt::format("{}the sums {} round too much to tell", text.empty() ? "" : "; ", coarse);
  return text.empty() ? text : fmt::format(" ({})", text);
}

}  // namespace

std::string describe(const abft::Verification& faulty, std::string_view operands) {
  std::int64_t located = 0, lines = 0;
  for (const abft::Fault& fault : faulty.faults) ++(fault.located() ? located : lines);
  const abft::Fault& first = faulty.faults.front();
  const std::string where = first.located() ? fmt::format("row {}, column {} is {:.6g}, not {:.6g}{}", first.row,
                                                          first.col, first.value, first.corrected, describe_sums(first))
                                            : fmt::format("the sum of {} {} is off by {:.3g}, allowed {:.3g}",
                                                          first.line == abft::Line::kRow ? "row" : "column",
                                                          first.line == abft::Line::kRow ? first.row : first.col,
                                                          first.difference, first.threshold);
  return fmt::format("is not {}: {}; {} elements and {} further rows or columns are wrong", operands, where, located,
                     lines);
}

}  // namespace ttrace
