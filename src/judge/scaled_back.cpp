#include "judge/scaled_back.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "align/recorded_bits.h"
#include "base/describe.h"
#include "base/factor.h"
#include "base/logical_tensor.h"
#include "base/tensor_name.h"
#include "judge/right_elsewhere.h"
#include "merge/values.h"

namespace ttrace {
namespace {

// What a factor may be away from a whole number, where its tolerance allows more.
constexpr double kMostOff = 1e-3;

// True for one number that is another one than the reference's, and nothing else is wrong with it.
bool is_other_number(const Finding& finding) {
  return finding.verdict == Verdict::kFail && finding.reason == Reason::kExceedsTolerance && finding.floating &&
         finding.difference && finding.allowed && finding.difference->elements == 1 &&
         finding.difference->replica_ranks.empty();
}

// The whole number, or one over it, that the number is the reference's times, within its tolerance; none where it is no
// such multiple.
std::optional<double> whole_factor(const Finding& finding) {
  const double factor = finding.difference->uniform_factor();
  if (!(factor > 0) || !std::isfinite(factor)) return std::nullopt;
  const double nearest = nearest_whole_factor(factor);
  const bool is_near = nearest != 1 && std::abs(factor / nearest - 1) <= std::min(*finding.allowed, kMostOff);
  return is_near ? std::optional(nearest) : std::nullopt;
}

bool is_gradient(Kind kind) {
  return kind == Kind::kParamGrad || kind == Kind::kGradOutput || kind == Kind::kGradInput;
}

struct Batch {
  std::map<TensorId, Finding*> numbers, gradients;  // by the identity of the output: what a module returned, and its
  bool others_are_right = true;                     // gradients, and the losses
  bool has_right_gradients = false;
};

using Batches = std::map<std::pair<std::int32_t, std::int32_t>, Batch>;

Batches find_batches(std::vector<Finding>& findings) {
  Batches batches;
  for (Finding& finding : findings) {
    if (finding.id.microbatch < 0) continue;
    Batch& batch = batches[{finding.id.iteration, finding.id.microbatch}];
    const Kind kind = finding.id.kind;
    if (kind == Kind::kOutput && is_other_number(finding)) {
      batch.numbers[finding.id] = &finding;
    } else if (kind == Kind::kGradOutput && is_other_number(finding)) {
      batch.gradients[finding.id.with_kind(Kind::kOutput)] = &finding;
    } else if (is_gradient(kind) || is_loss(finding.id)) {
      batch.others_are_right = batch.others_are_right && !is_wrong(finding);
      batch.has_right_gradients |= kind == Kind::kParamGrad && finding.verdict == Verdict::kPass;
    }
  }
  return batches;
}

// The ranks' numbers, and their gradients.
struct Weighted {
  std::map<std::int32_t, double> numbers, gradients;
  double number = 0, gradient = 0;  // the reference's
};

std::optional<Weighted> weighted_of(const TensorId& output, const PairsById& pairs) {
  const auto number = pairs.find(output), gradient = pairs.find(output.with_kind(Kind::kGradOutput));
  if (number == pairs.end() || gradient == pairs.end()) return std::nullopt;
  const auto whole = recorded_numbers(*number->second->reference);
  const auto its = recorded_numbers(*gradient->second->reference);
  if (whole.empty() || its.empty()) return std::nullopt;
  return Weighted{recorded_numbers(*number->second->candidate), recorded_numbers(*gradient->second->candidate),
                  whole.begin()->second, its.begin()->second};
}

// True where the ranks' unlike numbers have unlike weights, and the reference's for their weighted mean, within `allowed`.
bool has_right_mean(const Weighted& weighted, double allowed) {
  double sum = 0, of_gradients = 0;
  std::set<double> weights, values;
  for (const auto& [rank, number] : weighted.numbers) {
    const auto gradient = weighted.gradients.find(rank);
    if (gradient == weighted.gradients.end()) return false;
    sum += number * gradient->second;
    of_gradients += gradient->second;
    weights.insert(gradient->second);
    values.insert(number);
  }
  if (weights.size() < 2 || values.size() < 2) return false;
  const double whole = weighted.number * weighted.gradient;
  const auto is_near = [&](double value, double wanted) {
    return wanted != 0 && std::abs(value / wanted - 1) <= std::min(allowed, kMostOff);
  };
  return std::ranges::any_of(
      std::initializer_list<double>{1, static_cast<double>(weighted.numbers.size())},
      [&](double copies) { return is_near(sum, copies * whole) && is_near(of_gradients, copies * weighted.gradient); });
}

// True where each rank has the reference's number, as those have whose samples are alike.
bool has_each_the_references(const Weighted& weighted, double allowed) {
  return weighted.number != 0 && std::ranges::all_of(weighted.numbers, [&](const auto& item) {
           return std::abs(item.second / weighted.number - 1) <= std::min(allowed, kMostOff);
         });
}

// What is known of the gradients of an iteration's parameters.
struct ParameterGradients {
  bool have_scale = true, are_there = false;
};

// Returns what is said of a gradient that fails where the loss scale is left out: the verdict on what was recorded. A
// single number's is of a criterion, which the loss scale is a matter of.
std::optional<Finding> judge_unscaled(const Finding& finding, const TensorPair& pair, const ToleranceFile* tolerance) {
  const double scale = pair.candidate->scale;
  if (finding.verdict != Verdict::kFail || finding.reason != Reason::kExceedsTolerance || !finding.difference ||
      finding.difference->elements == 1 || scale == 1 ||
      std::abs(finding.difference->uniform_factor() * scale - 1) > kMostOff) {
    return std::nullopt;
  }
  LogicalTensor recorded = *pair.candidate;
  recorded.scale = 1;
  const TensorPair unscaled{pair.reference, &recorded};
  CompareOptions options;
  options.checksums = false;  // they were verified when the pair was compared first
  Finding judged = judge(unscaled, compare(std::span(&unscaled, 1), options).at(0), tolerance);
  if (judged.verdict != Verdict::kPass) return std::nullopt;
  judged.order = finding.order;
  judged.cycle = finding.cycle;
  return judged;
}

// True where a gradient that may be wrong is nearer to the reference's with the loss scale than without it.
bool has_scale(const Finding& finding, const TensorPair& pair) {
  if (finding.verdict == Verdict::kPass) return true;
  if (!finding.difference) return false;
  const double factor = finding.difference->uniform_factor(), scale = pair.candidate->scale;
  return scale == 1 || std::abs(factor - 1) < std::abs(factor - 1 / scale);
}

// A call of a module in a micro-batch.
using ModuleCall = std::tuple<std::int32_t, std::int32_t, std::string>;

ModuleCall call_of_gradient(const TensorId& id) {
  const TensorName name(id.name.get());
  return {id.iteration, id.microbatch, std::string(name.path) + std::string(name.call)};
}

bool is_of_activation(const TensorId& id) {
  return id.microbatch >= 0 && (id.kind == Kind::kGradOutput || id.kind == Kind::kGradInput);
}

// What is known of the gradients of one call of a module.
struct CallGradients {
  bool are_outputs_there = false, has_output_scale = false, has_input_scale = false, have_all_inputs_scale = true;

  // An inner backward leaves out what it does not depend on of what the module was given, and that has its gradient of the
  // loss alone; of what the module returned it leaves out nothing.
  bool are_of_loss() const {
    return has_output_scale || (has_input_scale && (have_all_inputs_scale || !are_outputs_there));
  }
};

// Calls of modules whose gradients, by those that are the reference's with the loss scale, are of the loss's backward.
std::set<ModuleCall> calls_with_scale(const std::vector<Finding>& findings, const PairsById& pairs_by_id) {
  std::map<ModuleCall, CallGradients> gradients;
  for (const Finding& finding : findings) {
    if (!is_of_activation(finding.id) || finding.reason == Reason::kAllZero) continue;
    const auto pair = pairs_by_id.find(finding.id);
    const bool has_scale = finding.verdict == Verdict::kPass && pair != pairs_by_id.end() &&
                           pair->second->candidate->scale != 1 && finding.difference &&
                           finding.difference->elements > 1;
    CallGradients& call = gradients[call_of_gradient(finding.id)];
    if (finding.id.kind == Kind::kGradOutput) {
      call.are_outputs_there = true;
      call.has_output_scale |= has_scale;
    } else {
      call.has_input_scale |= has_scale;
      call.have_all_inputs_scale &= has_scale;
    }
  }
  std::set<ModuleCall> calls;
  for (const auto& [call, of] : gradients) {
    if (of.are_of_loss()) calls.insert(call);
  }
  return calls;
}

// True where ranks have parts of the tensor, and no number of their own samples.
bool is_divided(const LogicalTensor& tensor) {
  const std::vector<Piece> pieces = tensor.pieces();
  return std::any_of(pieces.begin(), pieces.end(),
                     [&](const Piece& piece) { return piece.logical != pieces.front().logical; });
}

}  // namespace

void pass_scaled_back(std::vector<Finding>& findings, std::vector<std::string>& notes) {
  std::int64_t passed = 0;
  std::string first;
  for (auto& [id, batch] : find_batches(findings)) {
    if (!batch.others_are_right || !batch.has_right_gradients) continue;
    std::map<Finding*, double> factors;  // of all numbers whose gradient has the inverse one
    bool all_cancel = batch.numbers.size() == batch.gradients.size();
    for (const auto& [output, number] : batch.numbers) {
      const auto gradient = batch.gradients.find(output);
      const std::optional<double> factor = whole_factor(*number);
      all_cancel = all_cancel && factor && gradient != batch.gradients.end() &&
                   std::abs(whole_factor(*gradient->second).value_or(0) * *factor - 1) < 1e-9;
      if (all_cancel) factors[number] = *factor;
    }
    if (!all_cancel) continue;
    for (const auto& [number, factor] : factors) {
      if (passed++ == 0) first = fmt::format("{}: {:.4g} times", to_string(number->id), factor);
      let_pass(*batch.gradients.at(number->id));
      let_pass(*number);
    }
  }
  if (passed == 0) return;
  notes.push_back(fmt::format(
      "{} of the numbers that the model returns, the first {} the reference's: its gradient is the inverse "
      "multiple, and all others of the micro-batch are the reference's, so the program multiplies it by the "
      "rest before backward(); compared with these factors",
      passed, first));
}

void pass_weighted(std::span<const TensorPair> pairs, std::vector<Finding>& findings, std::vector<std::string>& notes) {
  const auto is_own_number = [](const Finding& finding) {
    const bool is_of_value = finding.id.kind == Kind::kOutput || finding.id.kind == Kind::kGradOutput;
    return is_of_value && finding.verdict == Verdict::kFail && finding.difference && finding.allowed &&
           finding.difference->elements == 1 && !finding.difference->sketch &&
           (finding.reason == Reason::kExceedsTolerance || finding.reason == Reason::kReplicasDisagree);
  };
  if (std::ranges::none_of(findings, is_own_number)) return;
  const PairsById pairs_by_id = index_pairs(pairs);
  std::set<std::string> names;
  for (Finding& finding : findings) {
    if (!is_own_number(finding)) continue;
    const auto weighted = weighted_of(finding.id.with_kind(Kind::kOutput), pairs_by_id);
    if (!weighted) continue;
    const bool is_alike = finding.id.kind == Kind::kOutput && has_each_the_references(*weighted, *finding.allowed);
    if (is_alike) let_pass(finding);
    if (is_alike || !has_right_mean(*weighted, *finding.allowed)) continue;
    let_pass(finding);
    names.insert(printable(finding.id.name));
  }
  if (names.empty()) return;
  notes.push_back(fmt::format(
      "numbers of each rank's own, whose mean, weighted by the gradients that come back, is the reference's: {}",
      comma_list(std::vector<std::string>(names.begin(), names.end()))));
}

void pass_taken_as_recorded(std::span<const TensorPair> pairs, const ToleranceFile* tolerance,
                            std::vector<Finding>& findings, std::vector<std::string>& notes) {
  const PairsById pairs_by_id = index_pairs(pairs);
  std::set<TensorId> taken;  // by steps, and right
  for (const Finding& finding : findings) {
    if (finding.id.kind == Kind::kMainGrad && finding.verdict == Verdict::kPass) taken.insert(finding.id);
  }
  std::int64_t passed = 0;
  std::string first;
  for (Finding& finding : findings) {
    TensorId of_step = finding.id.with_kind(Kind::kMainGrad);
    of_step.microbatch = kNoMicrobatch;
    if (finding.id.kind != Kind::kParamGrad || !taken.contains(of_step)) continue;
    const auto pair = pairs_by_id.find(finding.id), step = pairs_by_id.find(of_step);
    if (pair == pairs_by_id.end() || step == pairs_by_id.end() || !is_divided(*pair->second->candidate)) continue;
    std::optional<Finding> unscaled = judge_unscaled(finding, *pair->second, tolerance);
    const LogicalTensor &recorded = *pair->second->candidate, &taken_by_step = *step->second->candidate;
    if (!unscaled || recorded.dtype != taken_by_step.dtype || !have_same_recorded_bits(recorded, taken_by_step))
      continue;
    if (passed++ == 0) first = to_string(finding.id);
    finding = *std::move(unscaled);
  }
  if (passed == 0) return;
  notes.push_back(fmt::format(
      "{} gradients of parameters, the first {}, are the reference's without the loss scale, as the step takes them: "
      "nothing averages them over ranks, and they were compared without it",
      passed, first));
}

void pass_inner_gradients(std::span<const TensorPair> pairs, const ToleranceFile* tolerance,
                          std::vector<Finding>& findings, std::vector<std::string>& notes) {
  const PairsById pairs_by_id = index_pairs(pairs);
  const std::set<ModuleCall> scaled = calls_with_scale(findings, pairs_by_id);
  std::optional<RightInLayers> right;
  const auto has_scale_in_other_layer = [&](const TensorId& id) {
    if (!right) right.emplace(findings);
    return std::ranges::any_of(right->others(id), [&](const TensorId& other) {
      const auto pair = pairs_by_id.find(other);
      return pair != pairs_by_id.end() && pair->second->candidate->scale != 1;
    });
  };
  std::vector<std::pair<Finding*, Finding>> inner;        // of activations, and what is said of them unscaled
  std::map<std::int32_t, ParameterGradients> iterations;  // one backward may be of several micro-batches
  for (Finding& finding : findings) {
    if (finding.id.microbatch < 0 || finding.reason == Reason::kAllZero) continue;
    const auto pair = pairs_by_id.find(finding.id);
    if (finding.id.kind == Kind::kParamGrad) {
      ParameterGradients& gradients = iterations[finding.id.iteration];
      gradients.have_scale = gradients.have_scale && pair != pairs_by_id.end() && has_scale(finding, *pair->second);
      gradients.are_there = true;
    }
    if (!is_of_activation(finding.id) || pair == pairs_by_id.end()) continue;
    if (is_divided(*pair->second->candidate) && scaled.contains(call_of_gradient(finding.id))) continue;
    std::optional<Finding> unscaled = judge_unscaled(finding, *pair->second, tolerance);
    if (unscaled && !has_scale_in_other_layer(finding.id)) inner.emplace_back(&finding, *std::move(unscaled));
  }
  std::int64_t passed = 0;
  std::string first;
  for (auto& [finding, unscaled] : inner) {
    const ParameterGradients& parameters = iterations[finding->id.iteration];
    if (!parameters.have_scale || !parameters.are_there) continue;
    if (passed++ == 0) first = to_string(finding->id);
    *finding = std::move(unscaled);
  }
  if (passed == 0) return;
  notes.push_back(fmt::format(
      "{} gradients of activations, the first {}, are the reference's without the loss scale, and those of the "
      "iteration's parameters with it: they are of an inner autograd.grad, as for a gradient "
      "penalty or forces, or of means of each rank's samples, and were compared without it",
      passed, first));
}

}  // namespace ttrace
