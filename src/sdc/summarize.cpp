#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/tensor_name.h"
#include "diagnose/dataflow.h"
#include "sdc/copies.h"
#include "sdc/report.h"

namespace ttrace {
namespace {

// Returns the number of the rank's pipeline stage. The ranks of a stage record the same modules under the same names.
std::int64_t stage_of(const RecordedPair& pair) {
  const auto found = pair.rank->coordinates.find("pp");
  return found == pair.rank->coordinates.end() ? 0 : found->second;
}

// One tensor as all ranks of a stage recorded it.
struct Recorded {
  std::vector<const RecordedPair*> pairs;  // in order of rank
  std::uint64_t order = 0;                 // on the first rank

  bool agrees() const {
    return std::all_of(pairs.begin(), pairs.end(),
                       [](const RecordedPair* pair) { return pair->mismatch.differing == 0; });
  }
};
using Stage = std::map<TensorId, Recorded>;

std::vector<Stage> stages_of(std::span<const RecordedPair> pairs) {
  std::map<std::int64_t, Stage> stages;
  for (const RecordedPair& pair : pairs) {
    Recorded& recorded = stages[stage_of(pair)][pair.healthy->id];
    if (recorded.pairs.empty()) recorded.order = pair.healthy->order;
    recorded.pairs.push_back(&pair);
  }
  std::vector<Stage> result;
  for (auto& [number, stage] : stages) result.push_back(std::move(stage));
  return result;
}

Origin origin_of(const Recorded& recorded) {
  Origin origin;
  for (const RecordedPair* pair : recorded.pairs) {
    if (pair->mismatch.differing == 0) continue;
    if (origin.ranks++ == 0) origin.pair = pair;
  }
  origin.id = origin.pair->healthy->id;
  origin.type = submodule_type(origin.id);
  origin.rank = origin.pair->rank->rank;
  return origin;
}

// Returns the tensors that the stage computed wrongly from equal inputs, in order of execution.
std::vector<Origin> origins_of(const Stage& stage, bool lock_step) {
  std::vector<const Recorded*> ordered;
  for (const auto& [id, recorded] : stage) ordered.push_back(&recorded);
  std::sort(ordered.begin(), ordered.end(), [](const Recorded* a, const Recorded* b) {
    const auto key = [](const Recorded* x) { return std::pair(x->pairs[0]->healthy->id.iteration, x->order); };
    return key(a) < key(b);
  });
  std::vector<Observation> observations;
  for (const Recorded* recorded : ordered) {
    observations.push_back({recorded->pairs[0]->healthy->id, recorded->agrees()});
  }
  std::vector<Origin> origins;
  for (const Root& root : find_roots(observations, {}, lock_step)) {
    if (root.made_here) origins.push_back(origin_of(*ordered[root.observation]));
  }
  return origins;
}

Direction direction_of(const TensorId& id) {
  if (id.kind == Kind::kGradInput) return Direction::kBackward;
  return id.pass == Pass::kRecompute ? Direction::kRecompute : Direction::kForward;
}

bool is_result(const TensorId& id) { return id.kind == Kind::kOutput || id.kind == Kind::kGradInput; }

using StepKey = std::tuple<std::string, Direction, std::int32_t, std::int32_t>;

StepKey step_key(const TensorId& id) { return {submodule_type(id), direction_of(id), id.iteration, id.microbatch}; }

// One submodule at one micro-step, over all ranks of its stage; equations 1 and 3.
struct Submodule {
  std::int64_t elements = 0, differing = 0;
  std::map<std::int32_t, std::pair<double, std::int64_t>> by_rank;  // sum and count of relative differences

  double frequency() const {
    return elements == 0 ? 0 : static_cast<double>(differing) / static_cast<double>(elements);
  }
  // Returns the largest severity of all ranks, and raises that of each rank in `ranks` to at least its own.
  double severity(std::map<std::int32_t, RankMismatch>& ranks) const {
    double largest = 0;
    for (const auto& [rank, relative] : by_rank) {
      if (relative.second == 0) continue;
      const double severity = relative.first / static_cast<double>(relative.second);
      ranks[rank].severity = std::max(ranks[rank].severity, severity);
      largest = std::max(largest, severity);
    }
    return largest;
  }
};

void add_pair(const RecordedPair& pair, Submodule& submodule, SubmoduleStep& step) {
  const Mismatch& mismatch = pair.mismatch;
  submodule.elements += mismatch.elements;
  submodule.differing += mismatch.differing;
  auto& [sum, count] = submodule.by_rank[pair.rank->rank];
  sum += mismatch.relative_sum;
  count += mismatch.relative_count;
  step.differing += mismatch.differing;
  step.unbounded += mismatch.unbounded;
  step.ranks[pair.rank->rank].elements += mismatch.elements;
  step.ranks[pair.rank->rank].differing += mismatch.differing;
}

void add_stage(const Stage& stage, std::map<StepKey, SubmoduleStep>& steps) {
  // Within a step, submodules are keyed by chunk and call.
  std::map<StepKey, std::map<std::pair<std::int32_t, std::string>, Submodule>> submodules;
  for (const auto& [id, recorded] : stage) {
    if (!is_result(id)) continue;
    SubmoduleStep& step = steps[step_key(id)];
    Submodule& submodule = submodules[step_key(id)][{id.chunk, TensorName(id.name).without_member()}];
    for (const RecordedPair* pair : recorded.pairs) add_pair(*pair, submodule, step);
  }
  for (const auto& [key, of_step] : submodules) {
    SubmoduleStep& step = steps[key];
    step.submodules += static_cast<std::int64_t>(of_step.size());
    for (const auto& [path, submodule] : of_step) {
      step.frequency += submodule.frequency();  // the sum of equation 2; `submodule_steps` divides it
      step.severity = std::max(step.severity, submodule.severity(step.ranks));
    }
  }
}

std::vector<SubmoduleStep> submodule_steps(std::span<const Stage> stages, std::span<const Origin> origins) {
  std::map<StepKey, SubmoduleStep> steps;
  for (const Stage& stage : stages) add_stage(stage, steps);
  for (const Origin& origin : origins) {
    if (is_result(origin.id)) ++steps[step_key(origin.id)].origins;
  }
  std::vector<SubmoduleStep> result;
  for (auto& [key, step] : steps) {
    std::tie(step.type, step.direction, step.iteration, step.microbatch) = key;
    step.frequency /= static_cast<double>(step.submodules);
    result.push_back(std::move(step));
  }
  return result;
}

struct Norms {
  double difference_square = 0, healthy_square = 0;
  std::int64_t nonfinite = 0;
  bool any = false;

  // Adds what all ranks hold of a tensor: of copies the worst, lest a faulty one be diluted by those that are right.
  void add(const Recorded& recorded) {
    for (const Copies& copies : parts_of(recorded.pairs)) {
      const auto is_better = [](const RecordedPair* a, const RecordedPair* b) {
        return a->mismatch.noise_square() < b->mismatch.noise_square();
      };
      const Mismatch& worst = (*std::max_element(copies.begin(), copies.end(), is_better))->mismatch;
      difference_square += worst.noise_square();
      healthy_square += worst.healthy_square;
      nonfinite += worst.nonfinite;
    }
    any = true;
  }
};

std::vector<TrainingStep> training_steps(std::span<const Stage> stages) {
  std::map<std::int32_t, std::array<Norms, 2>> norms;  // gradients, parameters
  for (const Stage& stage : stages) {
    for (const auto& [id, recorded] : stage) {
      if (id.kind == Kind::kMainGrad) norms[id.iteration][0].add(recorded);
      if (id.kind == Kind::kParamAfter) norms[id.iteration][1].add(recorded);
    }
  }
  std::vector<TrainingStep> steps;
  for (const auto& [iteration, both] : norms) {
    TrainingStep& step = steps.emplace_back();
    step.iteration = iteration;
    const auto& [gradients, parameters] = both;
    if (gradients.any) {
      step.gradient_noise = std::sqrt(gradients.difference_square);
      step.gradient_norm = std::sqrt(gradients.healthy_square);
      step.gradient_nonfinite = gradients.nonfinite;
    }
    if (parameters.any) {
      step.parameter_drift = std::sqrt(parameters.difference_square);
      step.parameter_norm = std::sqrt(parameters.healthy_square);
      step.parameter_nonfinite = parameters.nonfinite;
    }
  }
  return steps;
}

std::vector<FaultyCopies> faulty_copies(std::span<const Stage> stages) {
  std::vector<FaultyCopies> faulty;
  for (const Stage& stage : stages) {
    for (const auto& [id, recorded] : stage) {
      if (id.kind != Kind::kMainGrad && id.kind != Kind::kParamAfter) continue;
      for (const Copies& copies : parts_of(recorded.pairs)) {
        if (!disagree(copies)) continue;
        FaultyCopies& found = faulty.emplace_back();
        found.id = id;
        found.copies = std::ssize(copies);
        for (const RecordedPair* copy : copies) {
          if (copy->mismatch.differing > 0) found.ranks.push_back(copy->rank->rank);
        }
      }
    }
  }
  std::stable_sort(faulty.begin(), faulty.end(),
                   [](const FaultyCopies& a, const FaultyCopies& b) { return a.id.iteration < b.id.iteration; });
  return faulty;
}

// Says which iterations' noise or drift no number can hold.
std::vector<std::string> nonfinite_notes(std::span<const TrainingStep> steps) {
  std::vector<std::string> notes;
  const auto add = [&](const TrainingStep& step, std::string_view what, std::int64_t elements) {
    if (elements == 0) return;
    notes.push_back(fmt::format(
        "iteration {}: {} element{} of the {} differ{} and {} not finite in one of the runs: no difference is larger",
        step.iteration, elements, elements == 1 ? "" : "s", what, elements == 1 ? "s" : "",
        elements == 1 ? "is" : "are"));
  };
  for (const TrainingStep& step : steps) {
    add(step, "gradients", step.gradient_nonfinite);
    add(step, "parameters", step.parameter_nonfinite);
  }
  return notes;
}

// Returns the first tensor that differs, by iteration and then by its position in the rank's own order: ranks do not
// share a clock.
std::optional<Origin> first_mismatch(std::span<const RecordedPair> pairs) {
  const RecordedPair* first = nullptr;
  for (const RecordedPair& pair : pairs) {
    if (pair.mismatch.differing == 0) continue;
    const auto at = [](const RecordedPair& p) { return std::pair(p.healthy->id.iteration, p.healthy->order); };
    if (first == nullptr || at(pair) < at(*first)) first = &pair;
  }
  if (first == nullptr) return std::nullopt;
  return Origin{first->healthy->id, submodule_type(first->healthy->id), first->rank->rank, 1, first};
}

}  // namespace

std::string submodule_type(const TensorId& id) {
  std::vector<std::string> components = components_of(TensorName(id.name).path);
  for (std::string& component : components) {
    const bool is_number = !component.empty() && component.find_first_not_of("0123456789") == component.npos;
    if (is_number) component = "*";
  }
  return fmt::format("{}", fmt::join(components, "."));
}

std::string_view name_of(Direction direction) {
  constexpr std::array<std::string_view, 3> kNames = {"forward", "recompute", "backward"};
  return kNames[static_cast<std::size_t>(direction)];
}

std::optional<double> SdcReport::worst_noise_to_signal() const {
  std::optional<double> worst;
  for (const TrainingStep& step : steps) {
    if (!step.gradient_noise) continue;
    worst = std::max(worst.value_or(0), noise_to_signal(*step.gradient_noise, *step.gradient_norm));
  }
  return worst;
}

double noise_to_signal(double difference, double norm) { return difference == 0 ? 0 : difference / norm; }

SdcReport summarize_corruption(std::span<const RecordedPair> pairs, bool lock_step) {
  SdcReport report;
  report.lock_step = lock_step;
  report.tensors = static_cast<std::int64_t>(pairs.size());
  for (const RecordedPair& pair : pairs) report.differing_tensors += pair.mismatch.differing > 0;
  report.first = first_mismatch(pairs);
  const std::vector<Stage> stages = stages_of(pairs);
  for (const Stage& stage : stages) {
    for (Origin& origin : origins_of(stage, lock_step)) report.origins.push_back(std::move(origin));
  }
  report.submodules = submodule_steps(stages, report.origins);
  report.steps = training_steps(stages);
  report.faulty_copies = faulty_copies(stages);
  report.notes = nonfinite_notes(report.steps);
  return report;
}

std::string nondeterminism_suspected(const SdcReport& report, std::span<const RecordedPair> pairs) {
  // The first iteration that begins with different parameters.
  std::int32_t first_drifted = std::numeric_limits<std::int32_t>::max();
  std::set<std::pair<std::int32_t, std::int32_t>> steps;
  for (const RecordedPair& pair : pairs) {
    const TensorId& id = pair.healthy->id;
    if (id.microbatch != kNoMicrobatch) steps.emplace(id.iteration, id.microbatch);
    if (pair.mismatch.differing == 0) continue;
    if (id.kind == Kind::kParam) first_drifted = std::min(first_drifted, id.iteration);
    if (id.kind == Kind::kParamAfter) first_drifted = std::min(first_drifted, id.iteration + 1);
  }
  std::erase_if(steps, [&](const auto& step) { return step.first >= first_drifted; });
  if (steps.size() < 2) return {};
  std::map<std::string, std::set<std::pair<std::int32_t, std::int32_t>>> steps_with_error;
  for (const Origin& origin : report.origins) {
    const std::pair step(origin.id.iteration, origin.id.microbatch);
    if (steps.contains(step)) steps_with_error[origin.type].insert(step);
  }
  for (const Origin& origin : report.origins) {
    if (steps_with_error[origin.type].size() == steps.size()) {
      return fmt::format("{} differs with equal inputs in every one of {} micro-steps", printable(origin.type),
                         steps.size());
    }
  }
  return {};
}

}  // namespace ttrace
