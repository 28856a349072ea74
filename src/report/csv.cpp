#include "text/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/render.h"

namespace ttrace {
namespace {

std::string number_field(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; }

std::string difference_fields(const Difference& difference) {
  return fmt::format("{},{},{},{},{},{}", difference.elements, difference.rel_err(),
                     std::sqrt(difference.reference_square), std::sqrt(difference.candidate_square),
                     difference.one_minus_cosine(), difference.sketch ? "" : fmt::format("{}", difference.max_abs));
}

// Renders, of each statistic beside the norm, what was measured, and what was allowed.
std::string statistic_fields(const Finding& finding) {
  std::string text;
  for (const Statistic statistic : {Statistic::kScale, Statistic::kRow, Statistic::kElement, Statistic::kCoherence}) {
    const auto judged = std::find_if(finding.statistics.begin(), finding.statistics.end(),
                                     [&](const JudgedStatistic& one) { return one.statistic == statistic; });
    text += judged == finding.statistics.end() ? ",," : fmt::format(",{},{}", judged->measured, judged->allowed);
  }
  return text;
}

std::string csv_row(const Finding& finding) {
  const TensorId& id = finding.id;
  return fmt::format("{},{},{},{},{},{},{},{},{},{}{}\n", csv_field(id.name), name_of(id.kind), id.iteration,
                     id.microbatch == kNoMicrobatch ? "" : fmt::format("{}", id.microbatch), name_of(id.pass),
                     name_of(finding.verdict), name_of(finding.reason), number_field(finding.allowed),
                     number_field(ratio_of(finding)),
                     finding.difference ? difference_fields(*finding.difference) : ",,,,,", statistic_fields(finding));
}

}  // namespace

std::string to_csv(const Report& report) {
  std::vector<const Finding*> all;
  for (const std::vector<Finding>* findings : {&report.findings, &report.passed}) {
    for (const Finding& finding : *findings) {
      if (!finding.id.name.empty()) all.push_back(&finding);
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Finding* a, const Finding* b) { return executes_before(*a, *b); });
  std::string text =
      "name,kind,iteration,microbatch,pass,verdict,reason,allowed,ratio,elements,rel_err,reference_norm,"
      "candidate_norm,one_minus_cosine,max_abs,scale,scale_allowed,row,row_allowed,element,element_allowed,"
      "coherence,coherence_allowed\n";
  for (const Finding* finding : all) text += csv_row(*finding);
  return text;
}

}  // namespace ttrace
