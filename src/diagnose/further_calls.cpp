#include "diagnose/further_calls.h"

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "base/describe.h"
#include "base/tensor_name.h"
#include "judge/later_sums.h"

namespace ttrace {
namespace {

// A module in an iteration.
struct Called {
  std::int32_t iteration = 0, chunk = 0;
  std::string path;
  auto operator<=>(const Called&) const = default;
};

Called called_in(const TensorId& id) { return {id.iteration, id.chunk, std::string(TensorName(id.name.get()).path)}; }

bool is_of_call(const TensorId& id) { return id.microbatch != kNoMicrobatch && !id.name.empty(); }

// The micro-batches and calls in which a side has something of the module.
std::set<std::pair<std::int32_t, std::string>> calls_of(const Alignment& side, const Called& module) {
  std::set<std::pair<std::int32_t, std::string>> calls;
  for (const auto& [id, tensor] : side.tensors) {
    if (!is_of_call(id) || id.pass != Pass::kForward || called_in(id) != module) continue;
    calls.emplace(id.microbatch, std::string(TensorName(id.name.get()).call));
  }
  return calls;
}

std::string times(std::size_t count) { return count == 1 ? "once" : fmt::format("{} times", count); }

}  // namespace

std::vector<std::size_t> find_further_calls(const Report& report, const Evidence& evidence) {
  const std::int32_t end = end_of_right_training(report.findings, report.passed);
  const auto is_candidate = [&](const Finding& finding) {
    return is_wrong(finding) && is_of_call(finding.id) && finding.id.iteration < end;
  };
  std::set<Called> modules;
  for (const Finding& finding : report.findings) {
    if (finding.verdict != Verdict::kMissing || finding.guessed || !is_candidate(finding)) continue;
    const Called module = called_in(finding.id);
    if (modules.contains(module)) continue;
    const Alignment& lacking = finding.only_in_candidate ? evidence.reference : evidence.candidate;
    if (!calls_of(lacking, module).empty()) modules.insert(module);
  }
  std::vector<std::size_t> found;
  if (modules.empty()) return found;
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const Finding& finding = report.findings[i];
    if (is_candidate(finding) && modules.contains(called_in(finding.id))) found.push_back(i);
  }
  return found;
}

std::string describe_further_calls(const Finding& finding, const Evidence& evidence) {
  const Called module = called_in(finding.id);
  const std::size_t of_reference = calls_of(evidence.reference, module).size(),
                    of_candidate = calls_of(evidence.candidate, module).size();
  const std::string counts =
      of_reference == of_candidate
          ? "both have it equally often in the iteration, in micro-batches or calls of other numbers"
          : fmt::format("in iteration {} the reference has {} {}, and the candidate {}", module.iteration,
                        printable(module.path), times(of_reference), times(of_candidate));
  return fmt::format(
      "{}: {}. Nothing says which is which, and what they make cannot be compared; the gradients that steps take, "
      "updates and parameters are, and are right. To compare all of it, let both call their models equally often, and "
      "in one order",
      to_string(finding.id), counts);
}

}  // namespace ttrace
