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

// True where the side holds a tensor of this kind of the same call.
bool has_any_of_call(const Alignment& side, const TensorId& id, Kind kind) {
  const TensorName name(id.name);
  TensorId wanted = id.with_kind(kind);
  wanted.name = std::string(name.path);
  for (auto at = side.tensors.lower_bound(wanted); at != side.tensors.end(); ++at) {
    const TensorName other(at->first.name);
    wanted.name = at->first.name;
    if (at->first != wanted || !other.path.starts_with(name.path)) break;
    if (other.path == name.path && other.call == name.call) return true;
  }
  return false;
}

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

}  // namespace

void waive_extra_outputs(const Alignment& reference, const Alignment& candidate, Matching& matching) {
  std::set<std::string> names;
  const std::size_t waived = std::erase_if(matching.findings, [&](const Finding& finding) {
    const bool is_of_reference = finding.reason == Reason::kMissingInCandidate;
    if (!is_of_reference && finding.reason != Reason::kMissingInReference) return false;
    const Alignment &own = is_of_reference ? reference : candidate, &other = is_of_reference ? candidate : reference;
    if (!is_extra(finding.id, own, other)) return false;
    names.insert(printable(without_numbers(finding.id.name)));
    return true;
  });
  if (waived == 0) return;
  matching.waived += static_cast<std::int64_t>(waived);
  matching.notes.push_back(fmt::format("waived: {} that modules return on one side alone, beside what both return: {}",
                                       count_of(waived, "value"),
                                       comma_list(std::vector<std::string>(names.begin(), names.end()))));
}

void waive_extra_scalars(const Alignment& reference, Matching& matching) {
  std::set<std::string> of_reference, names;
  for (const auto& [id, tensor] : reference.tensors) {
    if (id.kind == Kind::kScalar) of_reference.insert(id.name);
  }
  const std::size_t waived = std::erase_if(matching.findings, [&](const Finding& finding) {
    const TensorId& id = finding.id;
    const bool is_extra = finding.reason == Reason::kMissingInReference && id.kind == Kind::kScalar &&
                          id.microbatch == kNoMicrobatch && !is_loss(id) && !of_reference.contains(id.name);
    if (is_extra) names.insert(printable(id.name));
    return is_extra;
  });
  if (waived == 0) return;
  matching.waived += static_cast<std::int64_t>(waived);
  matching.notes.push_back(fmt::format("waived: {} of an iteration that the candidate alone has: {}",
                                       count_of(waived, "number"),
                                       comma_list(std::vector<std::string>(names.begin(), names.end()))));
}

}  // namespace ttrace
