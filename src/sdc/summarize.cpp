#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "sdc/calls.h"
#include "ttrace/sdc/report.h"

namespace ttrace {
namespace {

bool differs(const RecordedPair* pair) { return pair->mismatch.differing > 0; }

bool made_error(const Call& call) { return call.has_inputs && call.inputs_agree && !call.outputs_agree; }

// Whether `inner` is `outer` or lies inside it.
bool is_within(std::string_view inner, std::string_view outer) {
  if (outer == "(model)") return true;
  return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '.');
}

Origin origin_of(const Call& call) {
  Origin origin;
  origin.pair = *std::find_if(call.outputs.begin(), call.outputs.end(), differs);
  origin.id = origin.pair->healthy->id;
  origin.type = call.type;
  origin.rank = origin.pair->rank->rank;
  std::set<std::int32_t> ranks;
  for (const RecordedPair* pair : call.outputs) {
    if (differs(pair)) ranks.insert(pair->rank->rank);
  }
  origin.ranks = static_cast<std::int64_t>(ranks.size());
  return origin;
}

// Innermost: a module that holds another that made the error did not make it.
std::vector<const Call*> innermost_errors(std::span<const Call> calls) {
  std::map<std::tuple<std::int32_t, std::int32_t, Direction>, std::vector<const Call*>> by_step;
  for (const Call& call : calls) {
    if (made_error(call)) by_step[{call.iteration, call.microbatch, call.direction}].push_back(&call);
  }
  std::vector<const Call*> innermost;
  for (const Call& call : calls) {
    if (!made_error(call)) continue;
    const auto& others = by_step[{call.iteration, call.microbatch, call.direction}];
    const bool holds_another = std::any_of(others.begin(), others.end(), [&](const Call* other) {
      return other->module != call.module && is_within(other->module, call.module);
    });
    if (!holds_another) innermost.push_back(&call);
  }
  return innermost;
}

// Equations 1 and 3, for one submodule: over all ranks of its stage.
struct Submodule {
  double frequency = 0, severity = 0;
};

Submodule measure(const Call& call, SubmoduleStep& step) {
  std::int64_t elements = 0, differing = 0;
  Submodule result;
  std::map<std::int32_t, std::pair<double, std::int64_t>> by_rank;  // sum and count of relative differences
  for (const RecordedPair* pair : call.outputs) {
    elements += pair->mismatch.elements;
    differing += pair->mismatch.differing;
    step.unbounded += pair->mismatch.unbounded;
    auto& [sum, count] = by_rank[pair->rank->rank];
    sum += pair->mismatch.relative_sum;
    count += pair->mismatch.relative_count;
    if (differs(pair)) step.ranks.push_back(pair->rank->rank);
  }
  for (const auto& [rank, relative] : by_rank) {
    if (relative.second > 0) {
      result.severity = std::max(result.severity, relative.first / static_cast<double>(relative.second));
    }
  }
  step.differing += differing;
  if (elements > 0) result.frequency = static_cast<double>(differing) / static_cast<double>(elements);
  return result;
}

std::vector<SubmoduleStep> submodule_steps(std::span<const Call> calls, std::span<const Call* const> errors) {
  using Key = std::tuple<std::string, Direction, std::int32_t, std::int32_t>;
  const auto key_of = [](const Call& call) { return Key{call.type, call.direction, call.iteration, call.microbatch}; };
  std::map<Key, SubmoduleStep> steps;
  for (const Call& call : calls) {
    SubmoduleStep& step = steps[key_of(call)];
    step.type = call.type;
    step.direction = call.direction;
    step.iteration = call.iteration;
    step.microbatch = call.microbatch;
    ++step.submodules;
    const Submodule measured = measure(call, step);
    step.frequency += measured.frequency;  // equation 2, divided below
    step.severity = std::max(step.severity, measured.severity);
  }
  for (const Call* call : errors) ++steps[key_of(*call)].origins;
  std::vector<SubmoduleStep> result;
  for (auto& [key, step] : steps) {
    step.frequency /= static_cast<double>(step.submodules);
    std::sort(step.ranks.begin(), step.ranks.end());
    step.ranks.erase(std::unique(step.ranks.begin(), step.ranks.end()), step.ranks.end());
    result.push_back(std::move(step));
  }
  return result;
}

struct Norms {
  double difference_square = 0, healthy_square = 0;
  bool any = false;

  void add(const Mismatch& mismatch) {
    difference_square += mismatch.difference_square;
    healthy_square += mismatch.healthy_square;
    any = true;
  }
};

std::vector<TrainingStep> training_steps(std::span<const RecordedPair> pairs) {
  std::map<std::int32_t, std::array<Norms, 2>> norms;  // gradients, parameters
  for (const RecordedPair& pair : pairs) {
    const TensorId& id = pair.healthy->id;
    if (id.kind == Kind::kMainGrad) norms[id.iteration][0].add(pair.mismatch);
    if (id.kind == Kind::kParamAfter) norms[id.iteration][1].add(pair.mismatch);
  }
  std::vector<TrainingStep> steps;
  for (const auto& [iteration, both] : norms) {
    TrainingStep& step = steps.emplace_back();
    step.iteration = iteration;
    const auto& [gradients, parameters] = both;
    if (gradients.any) {
      step.gradient_noise = std::sqrt(gradients.difference_square);
      step.gradient_norm = std::sqrt(gradients.healthy_square);
    }
    if (parameters.any) {
      step.parameter_drift = std::sqrt(parameters.difference_square);
      step.parameter_norm = std::sqrt(parameters.healthy_square);
    }
  }
  return steps;
}

// Ranks do not share a clock: of those that differ first in an iteration, the least position in its own rank.
std::optional<Origin> first_mismatch(std::span<const RecordedPair> pairs) {
  const RecordedPair* first = nullptr;
  for (const RecordedPair& pair : pairs) {
    if (pair.mismatch.differing == 0) continue;
    const auto at = [](const RecordedPair& p) { return std::pair(p.healthy->id.iteration, p.healthy->order); };
    if (first == nullptr || at(pair) < at(*first)) first = &pair;
  }
  if (first == nullptr) return std::nullopt;
  return Origin{first->healthy->id, type_of(module_of(first->healthy->id.name)), first->rank->rank, 1, first};
}

}  // namespace

std::string_view name_of(Direction direction) {
  constexpr std::array<std::string_view, 3> kNames = {"forward", "recompute", "backward"};
  return kNames[static_cast<std::size_t>(direction)];
}

std::optional<double> SdcReport::worst_noise_to_signal() const {
  std::optional<double> worst;
  for (const TrainingStep& step : steps) {
    if (!step.gradient_noise || *step.gradient_norm == 0) continue;
    worst = std::max(worst.value_or(0), *step.gradient_noise / *step.gradient_norm);
  }
  return worst;
}

SdcReport summarize_corruption(std::span<const RecordedPair> pairs) {
  SdcReport report;
  report.tensors = static_cast<std::int64_t>(pairs.size());
  for (const RecordedPair& pair : pairs) report.differing_tensors += pair.mismatch.differing > 0;
  report.first = first_mismatch(pairs);
  const std::vector<Call> calls = calls_of(pairs);
  const std::vector<const Call*> errors = innermost_errors(calls);
  for (const Call* call : errors) report.origins.push_back(origin_of(*call));
  report.submodules = submodule_steps(calls, errors);
  report.steps = training_steps(pairs);
  return report;
}

std::string nondeterminism_suspected(const SdcReport& report, std::span<const RecordedPair> pairs) {
  std::int32_t drifted = std::numeric_limits<std::int32_t>::max();  // the first iteration with other parameters
  std::set<std::pair<std::int32_t, std::int32_t>> steps;
  for (const RecordedPair& pair : pairs) {
    const TensorId& id = pair.healthy->id;
    if (id.microbatch != kNoMicrobatch) steps.emplace(id.iteration, id.microbatch);
    if (pair.mismatch.differing == 0) continue;
    if (id.kind == Kind::kParam) drifted = std::min(drifted, id.iteration);
    if (id.kind == Kind::kParamAfter) drifted = std::min(drifted, id.iteration + 1);
  }
  std::erase_if(steps, [&](const auto& step) { return step.first >= drifted; });
  if (steps.size() < 2) return {};
  std::map<std::string, std::set<std::pair<std::int32_t, std::int32_t>>> made;
  for (const Origin& origin : report.origins) {
    const std::pair step(origin.id.iteration, origin.id.microbatch);
    if (steps.contains(step)) made[origin.type].insert(step);
  }
  for (const Origin& origin : report.origins) {
    if (made[origin.type].size() == steps.size()) {
      return fmt::format("{} differs with equal inputs in every one of {} micro-steps", printable(origin.type),
                         steps.size());
    }
  }
  return {};
}

}  // namespace ttrace
