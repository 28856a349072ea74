#include "judge/extra_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/count_of.h"
#include "base/describe.h"
#include "base/lookup.h"
#include "base/tensor_name.h"

namespace ttrace {
namespace {

// True for `:1`, the place in a tuple.
bool is_place(std::string_view member) {
  return member.size() > 1 &&
         std::all_of(member.begin() + 1, member.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_extra(const TensorId& id, const Alignment& own, const Alignment& other) {
  if (id.kind != Kind::kOutput && id.kind != Kind::kGradOutput) return false;
  const TensorName name(id.name);
  const LogicalTensor* tensor = find_tensor(own, id);
  if (tensor == nullptr || !is_floating(tensor->dtype) || name.path == kRootModule || !is_place(name.member)) {
    return false;
  }
  return has_any_of_call(other, id, Kind::kOutput) && has_any_of_call(other, id, Kind::kGradOutput);
}

// Takes out what is extra, and notes how many of what, and their names.
template <class IsWaived>
void waive(const IsWaived& is_waived, std::string_view one, std::string_view what, Matching& matching) {
  std::set<std::string> names;
  const std::size_t waived = std::erase_if(matching.findings, [&](const Finding& finding) {
    if (!is_waived(finding)) return false;
    names.insert(printable(without_numbers(finding.id.name)));
    return true;
  });
  if (waived == 0) return;
  matching.waived += static_cast<std::int64_t>(waived);
  matching.notes.push_back(fmt::format("waived: {} {}: {}", count_of(waived, one), what,
                                       comma_list(std::vector<std::string>(names.begin(), names.end()))));
}

}  // namespace

void waive_extra_outputs(const Alignment& reference, const Alignment& candidate, Matching& matching) {
  const auto is_extra_output = [&](const Finding& finding) {
    const bool is_of_reference = finding.reason == Reason::kMissingInCandidate;
    if (!is_of_reference && finding.reason != Reason::kMissingInReference) return false;
    const Alignment &own = is_of_reference ? reference : candidate, &other = is_of_reference ? candidate : reference;
    return is_extra(finding.id, own, other);
  };
  waive(is_extra_output, "value", "that modules return on one side alone, beside what both return", matching);
}

void waive_extra_scalars(const Alignment& reference, Matching& matching) {
  std::set<std::string> of_reference;
  for (const auto& [id, tensor] : reference.tensors) {
    if (id.kind == Kind::kScalar) of_reference.insert(id.name);
  }
  const auto is_extra_scalar = [&](const Finding& finding) {
    const TensorId& id = finding.id;
    return finding.reason == Reason::kMissingInReference && id.kind == Kind::kScalar &&
           id.microbatch == kNoMicrobatch && !is_loss(id) && !of_reference.contains(id.name);
  };
  waive(is_extra_scalar, "number", "of an iteration that the candidate alone has", matching);
}

}  // namespace ttrace
