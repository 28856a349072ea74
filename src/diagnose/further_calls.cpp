#include "diagnose/further_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/describe.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "judge/later_sums.h"
#include "merge/elements.h"

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

bool is_activation(const TensorId& id) { return id.kind == Kind::kInput || id.kind == Kind::kOutput; }

// The tensors of a side's calls, by module.
class CallsOfSide {
 public:
  explicit CallsOfSide(const Alignment& side) {
    for (const auto& [id, tensor] : side.tensors) {
      if (!is_of_call(id) || id.pass != Pass::kForward) continue;
      tensors_[called_in(id)].push_back(&tensor);
      if (is_activation(id)) microbatches_.emplace(id.iteration, id.microbatch);
    }
  }

  std::span<const LogicalTensor* const> of(const Called& module) const {
    const auto found = tensors_.find(module);
    return found == tensors_.end() ? std::span<const LogicalTensor* const>() : found->second;
  }

  // True where the call that this tensor is of was made: of the module, or of any in the micro-batch for a loss or a
  // gradient of a parameter.
  bool makes(const TensorId& id) const {
    if (id.kind == Kind::kScalar || id.kind == Kind::kParamGrad) {
      return microbatches_.contains({id.iteration, id.microbatch});
    }
    return std::ranges::any_of(of(called_in(id)), [&](const LogicalTensor* other) {
      return is_activation(other->id) && other->id.microbatch == id.microbatch &&
             TensorName(other->id.name.get()).call == TensorName(id.name.get()).call;
    });
  }

  // True where another call of the module has such a tensor.
  bool has_alike(const TensorId& id) const {
    return std::ranges::any_of(of(called_in(id)), [&](const LogicalTensor* other) {
      return other->id.kind == id.kind && TensorName(other->id.name.get()).member == TensorName(id.name.get()).member;
    });
  }

  // How many micro-batches and calls have something of the module.
  std::size_t count(const Called& module) const {
    std::set<std::pair<std::int32_t, std::string_view>> calls;
    for (const LogicalTensor* tensor : of(module)) {
      calls.emplace(tensor->id.microbatch, TensorName(tensor->id.name.get()).call);
    }
    return calls.size();
  }

 private:
  std::map<Called, std::vector<const LogicalTensor*>> tensors_;
  std::set<std::pair<std::int32_t, std::int32_t>> microbatches_;  // with their iterations
};

constexpr std::size_t kMostLooks = 16;  // at inputs, each of which is held against those of all calls

bool have_same_bytes(const LogicalTensor& tensor, const std::vector<std::byte>& bytes, const LogicalTensor& as) {
  return tensor.dtype == as.dtype && tensor.shape == as.shape && !tensor.rows && !tensor.sketched &&
         bytes_of(tensor) == bytes;
}

bool is_constant(const std::vector<std::byte>& bytes, Dtype dtype) {
  const std::ptrdiff_t element = std::min<std::ptrdiff_t>(size_of(dtype), std::ssize(bytes));
  return std::equal(bytes.begin() + element, bytes.end(), bytes.begin());
}

// True where a call that one side alone makes is given the bits that the side gives to another call, which the other side
// makes as well: what it is is known, such as a batch that each rank computes in whole. `others`: those of the other side.
bool is_another_call_again(const TensorId& id, const Alignment& making, const CallsOfSide& others) {
  const LogicalTensor* given = find_tensor(making, id);
  if (given == nullptr || given->rows || given->sketched) return false;
  const std::vector<std::byte> bytes = bytes_of(*given);
  if (is_constant(bytes, given->dtype)) return false;
  return std::ranges::any_of(others.of(called_in(id)), [&](const LogicalTensor* other) {
    const bool is_namesake =
        other->id.kind == Kind::kInput && TensorName(other->id.name.get()).member == TensorName(id.name.get()).member;
    if (!is_namesake || !have_same_bytes(*other, bytes, *given)) return false;
    const LogicalTensor* own = find_tensor(making, other->id);
    return own != nullptr && have_same_bytes(*own, bytes, *given);
  });
}

std::string times(std::size_t count) { return count == 1 ? "once" : fmt::format("{} times", count); }

}  // namespace

std::vector<std::size_t> find_further_calls(const Report& report, const Evidence& evidence) {
  const std::int32_t end = end_of_right_training(report.findings, report.passed);
  const auto is_candidate = [&](const Finding& finding) {
    return is_wrong(finding) && is_of_call(finding.id) && finding.id.iteration < end;
  };
  const auto lacks = [&](const Finding& finding) {
    return finding.verdict == Verdict::kMissing && !finding.guessed && is_candidate(finding);
  };
  if (std::ranges::none_of(report.findings, lacks)) return {};
  const CallsOfSide of_reference(evidence.reference), of_candidate(evidence.candidate);
  std::set<Called> modules;
  std::size_t looks = 0;
  for (const Finding& finding : report.findings) {
    if (!lacks(finding)) continue;
    const Alignment& making = finding.only_in_candidate ? evidence.candidate : evidence.reference;
    const CallsOfSide& lacking = finding.only_in_candidate ? of_reference : of_candidate;
    const bool is_input = finding.id.kind == Kind::kInput;
    if (is_input && looks++ < kMostLooks && is_another_call_again(finding.id, making, lacking)) return {};
    if (!lacking.makes(finding.id) && lacking.has_alike(finding.id)) modules.insert(called_in(finding.id));
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
  const std::size_t of_reference = CallsOfSide(evidence.reference).count(module),
                    of_candidate = CallsOfSide(evidence.candidate).count(module);
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
