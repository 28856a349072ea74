#include "diagnose/other_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/lookup.h"
#include "base/renumbered.h"
#include "base/tensor_name.h"
#include "merge/values.h"

namespace ttrace {
namespace {

std::set<std::string> names_of(const Alignment& alignment) {
  std::set<std::string> names;
  for (const auto& [id, tensor] : alignment.tensors) names.insert(id.name);
  return names;
}

bool is_of_whole_model(const Finding& finding) {
  return last_component(TensorName(finding.id.name.get()).path) == kRootModule;
}

bool is_of_values(Reason reason) {
  return reason != Reason::kShapeMismatch && reason != Reason::kDtypeMismatch && reason != Reason::kOverlap;
}

// True where a parameter passed that is the tensor, or that the module of the tensor has itself.
bool is_name_proved(const Finding& finding, const Report& report) {
  const std::string_view path = TensorName(finding.id.name.get()).path;
  return std::any_of(report.passed.begin(), report.passed.end(), [&](const Finding& passed) {
    const std::string& name = passed.id.name.get();
    return passed.id.kind == Kind::kParam && (name == path || owner_of(name) == path);
  });
}

// True where the candidate's tensor has the values of the reference's of another name.
bool has_values_of(const std::string& name, const Finding& finding, const Evidence& evidence) {
  TensorId other = finding.id;
  other.name = name;
  const LogicalTensor *trusted = find_tensor(evidence.reference, other),
                      *own = find_tensor(evidence.candidate, finding.id);
  if (trusted == nullptr || own == nullptr || trusted->shape != own->shape) return false;
  return relative_distance(values_of(*own), values_of(*trusted)) <= finding.allowed.value_or(0);
}

}  // namespace

std::optional<std::string> describe_few_shared_names(const Evidence& evidence) {
  const std::set<std::string> of_reference = names_of(evidence.reference), of_candidate = names_of(evidence.candidate);
  const auto is_common = [&](const std::string& name) { return of_candidate.contains(name); };
  const auto common = static_cast<std::size_t>(std::ranges::count_if(of_reference, is_common));
  if (of_candidate.empty() || 2 * common >= std::min(of_reference.size(), of_candidate.size())) return std::nullopt;
  return fmt::format(
      "{} of the reference's {} names are among the candidate's {}: they are two programs, or name their modules "
      "otherwise, and what differs by its name alone may be right; `ttrace annotate` drafts a correspondence where "
      "both implement one model, a file for --correspondence",
      common, of_reference.size(), of_candidate.size());
}

bool rests_on_name(const Finding& finding, const Report& report) {
  if (finding.id.name.empty()) return false;
  if (finding.verdict == Verdict::kMissing) return true;
  const bool is_of_all = is_loss(finding.id) || is_of_whole_model(finding);
  return !(is_of_all && is_of_values(finding.reason)) && !is_name_proved(finding, report);
}

std::optional<std::string> other_of_no_module(const Finding& finding, const Report& report, const Evidence& evidence) {
  const std::string& name = finding.id.name.get();
  if (!name.starts_with(kOfNoModule) || finding.verdict != Verdict::kFail) return std::nullopt;
  std::vector<const Finding*> wrong;
  for (const Finding& each : report.findings) {
    if (each.id.name == name && is_wrong(each)) wrong.push_back(&each);
  }
  const auto begins = [&](const Finding* each) { return each->id.kind == Kind::kParam; };
  const bool begins_otherwise = std::any_of(wrong.begin(), wrong.end(), begins);
  TensorId first = finding.id.with_kind(Kind::kParam);
  const LogicalTensor* trusted = find_tensor(evidence.reference, first);
  if (trusted == nullptr) return std::nullopt;
  for (const auto& [id, tensor] : evidence.reference.tensors) {
    const bool is_another = id.kind == Kind::kParam && id.iteration == first.iteration &&
                            id.name.get().starts_with(kOfNoModule) && id.name != name;
    if (!is_another || tensor.shape != trusted->shape) continue;
    if (!begins_otherwise && values_of(tensor) != values_of(*trusted)) continue;
    const std::string& other = id.name.get();
    const auto explains = [&, &named = other](const Finding* each) { return has_values_of(named, *each, evidence); };
    if (std::all_of(wrong.begin(), wrong.end(), explains)) return other;
  }
  return std::nullopt;
}

}  // namespace ttrace
