// What silent data corruption did to a run ("Understanding silent data corruption in LLM training", sections 3 to 6).
//
// The study compares a healthy and a suspect node in lock step, and overwrites the suspect's tensors so that errors
// do not accumulate. Recorded runs need no lock step for the question where an error was made: a call of a module
// whose recorded inputs and parameters have the healthy run's bits on every rank, and whose outputs do not, made it.
// How often and how much submodules differ (equations 1 to 4) does contain what came in from elsewhere, unless the
// suspect ran on the healthy run's tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttrace/sdc/pair.h"
#include "ttrace/trace.h"

namespace ttrace {

enum class Direction : std::uint8_t { kForward, kRecompute, kBackward };
std::string_view name_of(Direction direction);  // "forward", "recompute", "backward"

// A tensor that differs, while on all ranks of its pipeline stage all that it was computed from agrees
// (ttrace/diagnose/dataflow.h): an output, a gradient, a parameter after the step.
struct Origin {
  TensorId id;
  std::string type;
  std::int32_t rank = 0;
  std::int64_t ranks = 0;  // on which it differs
  const RecordedPair* pair = nullptr;
};

// The module's path, or the parameter's, with `*` for each number; a later call of a module is of the same type.
std::string type_of(const TensorId& id);

// What one rank holds of all submodules of a type.
struct RankMismatch {
  std::int64_t elements = 0, differing = 0;
  double severity = 0;  // equation 3 on this rank, largest over the submodules
};

// One type of submodule at one micro-step. A type is a module path with `*` for its numbers: all layers' MLPs.
struct SubmoduleStep {
  std::string type;
  Direction direction = Direction::kForward;
  std::int32_t iteration = 0, microbatch = 0;
  std::int64_t submodules = 0;  // |F|: paths of the type, on all pipeline stages
  std::int64_t differing = 0;   // elements, on all ranks
  std::int64_t unbounded = 0;
  double frequency = 0;  // equation 2
  double severity = 0;   // equation 4
  std::int64_t origins = 0;
  std::map<std::int32_t, RankMismatch> ranks;  // that recorded it
};

// Norms over all ranks' tensors; what several ranks hold counts for each.
struct TrainingStep {
  std::int32_t iteration = 0;
  std::optional<double> gradient_noise, gradient_norm;    // ||g' - g||, ||g||: main gradients
  std::optional<double> parameter_drift, parameter_norm;  // ||p' - p||, ||p||: after the step
};

struct SdcReport {
  std::string healthy, suspect;  // directories, as the user gave them
  std::int64_t tensors = 0, differing_tensors = 0;
  std::optional<Origin> first;            // the first tensor that differs; whether it was made there, `origins` say
  std::vector<Origin> origins;            // stage by stage, in order of execution
  std::vector<SubmoduleStep> submodules;  // by type, direction, micro-step
  std::vector<TrainingStep> steps;
  std::vector<std::string> notes;

  bool same() const { return differing_tensors == 0; }
  // Equation 5: the largest ||g' - g|| / ||g|| over the steps; none without gradients.
  std::optional<double> worst_noise_to_signal() const;
};

// `pairs` must outlive the report.
SdcReport summarize_corruption(std::span<const RecordedPair> pairs);

// Why `report` may be that of a program that does not repeat itself, rather than of a node that computes wrongly: one
// type of submodule made an error in every one of several micro-steps that began with equal parameters. Empty: no
// reason to think so.
std::string nondeterminism_suspected(const SdcReport& report, std::span<const RecordedPair> pairs);

std::string to_text(const SdcReport& report);
std::string to_json(const SdcReport& report);
std::string submodules_csv(const SdcReport& report);  // a line per type, direction and micro-step
std::string ranks_csv(const SdcReport& report);       // the same for each rank
std::string steps_csv(const SdcReport& report);       // a line per iteration

}  // namespace ttrace
