#include <fmt/format.h>

#include <cmath>

#include "align/holders.h"
#include "merge/values.h"
#include "selfcheck/identities.h"
#include "ttrace/numeric/convert.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

// A lookup rounds nothing, but the ranks that hold none of a row's id add zeros to it, and a dtype may be narrowed.
bool row_is(const Values& output, std::int64_t row, const Values& weight, std::int64_t id, std::int64_t width,
            double epsilon) {
  for (std::int64_t i = 0; i < width; ++i) {
    const double expected = weight[static_cast<std::size_t>(id * width + i)];
    const double found = output[static_cast<std::size_t>(row * width + i)];
    if (!(std::abs(found - expected) <= epsilon * std::abs(expected))) return false;
  }
  return true;
}

void check_embedding(const LogicalTensor& ids, const LogicalTensor& weight, const LogicalTensor& output,
                     std::vector<Finding>& findings) {
  const std::int64_t width = weight.shape[1], rows = element_count(ids.shape);
  const Values of_ids = values_of(ids), table = values_of(weight), found = values_of(output);
  const double epsilon = output.dtype == weight.dtype ? 0 : epsilon_of(output.dtype);
  std::int64_t wrong = 0, first = -1;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto id = static_cast<std::int64_t>(of_ids[static_cast<std::size_t>(row)]);
    const bool in_table = id >= 0 && id < weight.shape[0];
    if (in_table && row_is(found, row, table, id, width, epsilon)) continue;
    if (wrong++ == 0) first = row;
  }
  if (wrong == 0) {
    findings.push_back(finding_about(output, Verdict::kPass, Reason::kNone, "is its weight's rows"));
    return;
  }
  Finding finding = finding_about(
      output, Verdict::kFail, Reason::kLookupDiffers,
      fmt::format("{} of {} rows are not those of the weight that the ids name; the first is row {}, id {:.0f}", wrong,
                  rows, first, of_ids[static_cast<std::size_t>(first)]));
  finding.ranks = ranks_holding(output, first * width);
  findings.push_back(std::move(finding));
}

}  // namespace

void check_embeddings(const Alignment& alignment, std::vector<Finding>& findings) {
  for (const auto& [id, output] : alignment.tensors) {
    if (id.kind != Kind::kOutput || !is_floating(output.dtype)) continue;
    if (output.module_class.find("Embedding") == output.module_class.npos) continue;
    const TensorName name(id.name);
    const LogicalTensor* ids = find_tensor(alignment, id, Kind::kInput, id.name);
    const LogicalTensor* weight = parameter_at(alignment, id, parameter_of(name.path, "weight"));
    if (!name.member.empty() || ids == nullptr || weight == nullptr || is_floating(ids->dtype) ||
        weight->shape.size() != 2)
      continue;
    Shape expected = ids->shape;
    expected.push_back(weight->shape[1]);
    if (output.shape == expected && fits_in_memory(output) && fits_in_memory(*weight))
      check_embedding(*ids, *weight, output, findings);
  }
}

}  // namespace ttrace
