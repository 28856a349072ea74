#include <fmt/format.h>

#include <cmath>

#include "align/holders.h"
#include "base/tensor_name.h"
#include "merge/values.h"
#include "numeric/convert.h"
#include "selfcheck/relations.h"

namespace ttrace {
namespace {

// Returns whether row `row` of the output is row `id` of the weight. A lookup rounds nothing, and neither do the zeros
// that ranks without the id add; only a narrower dtype of the output does, by `epsilon`.
bool is_row_of_weight(const Values& output, std::int64_t row, const Values& weight, std::int64_t id, std::int64_t width,
                      double epsilon) {
  for (std::int64_t i = 0; i < width; ++i) {
    const double looked_up = weight[static_cast<std::size_t>(id * width + i)];
    const double recorded = output[static_cast<std::size_t>(row * width + i)];
    if (!(std::abs(recorded - looked_up) <= epsilon * std::abs(looked_up))) return false;
  }
  return true;
}

void check_embedding(const LogicalTensor& ids, const LogicalTensor& weight, const LogicalTensor& output,
                     std::vector<Finding>& findings) {
  const std::int64_t width = weight.shape[1], rows = element_count(ids.shape);
  const Values id_values = values_of(ids), table = values_of(weight), recorded = values_of(output);
  const double epsilon = output.dtype == weight.dtype ? 0 : epsilon_of(output.dtype);
  std::int64_t wrong = 0, first = -1;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto id = static_cast<std::int64_t>(id_values[static_cast<std::size_t>(row)]);
    const bool in_table = id >= 0 && id < weight.shape[0];
    if (in_table && is_row_of_weight(recorded, row, table, id, width, epsilon)) continue;
    if (wrong++ == 0) first = row;
  }
  if (wrong == 0) {
    findings.push_back(finding_about(output, Verdict::kPass, Reason::kNone, "is its weight's rows"));
    return;
  }
  Finding finding = finding_about(
      output, Verdict::kFail, Reason::kLookupDiffers,
      fmt::format("{} of {} rows are not those of the weight that the ids name; the first is row {}, id {:.0f}", wrong,
                  rows, first, id_values[static_cast<std::size_t>(first)]));
  finding.ranks = ranks_holding(output, first * width);
  findings.push_back(std::move(finding));
}

}  // namespace

void check_embeddings(const Alignment& alignment, std::vector<Finding>& findings) {
  for (const auto& [id, output] : alignment.tensors) {
    if (id.kind != Kind::kOutput || !is_floating(output.dtype)) continue;
    if (output.module_class.get().find("Embedding") == std::string::npos) continue;
    const TensorName name(id.name);
    const LogicalTensor* ids = find_tensor(alignment, id, Kind::kInput, id.name);
    const LogicalTensor* weight = parameter_at(alignment, id, parameter_of(name.path, "weight"));
    if (!name.member.empty() || ids == nullptr || weight == nullptr || is_floating(ids->dtype) ||
        weight->shape.size() != 2)
      continue;
    Shape rows_of_weight = ids->shape;
    rows_of_weight.push_back(weight->shape[1]);
    if (output.shape == rows_of_weight && fits_in_memory(output) && fits_in_memory(*weight))
      check_embedding(*ids, *weight, output, findings);
  }
}

}  // namespace ttrace
