// Reports what silent data corruption did to a run ("Understanding silent data corruption in LLM training", sections 3
// to 6).
//
// The study compares a healthy and a suspect node in lock step, and overwrites the suspect's tensors so that errors
// do not accumulate. Recorded runs need no lock step for the question where an error was made: a call of a module
// whose recorded inputs and parameters have the healthy run's bits on every rank, and whose outputs do not, made it.
// The frequency and severity of submodules (equations 1 to 4) include errors that came in from other modules, unless
// the suspect ran on the healthy run's tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"
#include "sdc/pair.h"

namespace ttrace {

enum class Direction : std::uint8_t { kForward, kRecompute, kBackward };
std::string_view name_of(Direction direction);  // "forward", "recompute", "backward"

// A tensor that differs, while on all ranks of its pipeline stage all that it was computed from agrees
// (diagnose/dataflow.h): an output, a gradient, a parameter after the step.
struct Origin {
  TensorId id;
  std::string type;
  std::int32_t rank = 0;
  std::int64_t ranks = 0;  // the number of ranks on which it differs
  const RecordedPair* pair = nullptr;
};

// Returns the module's path, or the parameter's, with `*` for each number. All calls of a module are of one type.
std::string submodule_type(const TensorId& id);

// The mismatch of one rank's part of all submodules of a type.
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
  std::map<std::int32_t, RankMismatch> ranks;  // of the ranks that recorded it
};

// Norms over the model's tensors: what several ranks hold copies of counts once, as the worst of them. A difference that
// is not finite makes them infinite.
struct TrainingStep {
  std::int32_t iteration = 0;
  std::optional<double> gradient_noise, gradient_norm;           // ||g' - g||, ||g||: main gradients
  std::optional<double> parameter_drift, parameter_norm;         // ||p' - p||, ||p||: after the step
  std::int64_t gradient_nonfinite = 0, parameter_nonfinite = 0;  // elements whose difference is not finite
};

// `difference` of a tensor in units of its norm: infinite where the healthy one is 0 and the other is not.
double noise_to_signal(double difference, double norm);

// A gradient or parameter of which several ranks hold copies that agree in the healthy run, and not in the suspect one.
struct FaultyCopies {
  TensorId id;
  std::vector<std::int32_t> ranks;  // whose copies are not the healthy run's
  std::int64_t copies = 0;
};

struct SdcReport {
  std::string healthy, suspect;  // directories, as the user gave them
  std::int64_t tensors = 0, differing_tensors = 0;
  std::optional<Origin> first;  // the first tensor that differs; the error may come from before it, see `origins`
  std::vector<Origin> origins;  // stage by stage, in order of execution
  std::vector<SubmoduleStep> submodules;  // by type, direction, micro-step
  std::vector<TrainingStep> steps;
  std::vector<FaultyCopies> faulty_copies;  // by iteration
  std::vector<std::string> notes;
  bool lock_step = false;  // the suspect's modules were given the healthy run's tensors

  bool same() const { return differing_tensors == 0; }
  // Equation 5: the largest ||g' - g|| / ||g|| over the steps; none without gradients, infinite where
  // one of them is not finite.
  std::optional<double> worst_noise_to_signal() const;
};

// `pairs` must outlive the report. `lock_step` says that the suspect's modules were given the healthy run's tensors
// (`collect --inject`), whatever arrived at them.
SdcReport summarize_corruption(std::span<const RecordedPair> pairs, bool lock_step = false);

// Returns why the program itself, rather than a node, may be to blame, because it does not repeat itself: one type of
// submodule made an error in every one of several micro-steps that began with equal parameters. Empty if none did.
std::string nondeterminism_suspected(const SdcReport& report, std::span<const RecordedPair> pairs);

std::string sentence_of(const SdcReport& report);  // what stands behind the verdict
std::string to_text(const SdcReport& report);
std::string to_json(const SdcReport& report);
std::string submodules_csv(const SdcReport& report);  // one line for each type, direction and micro-step
std::string ranks_csv(const SdcReport& report);       // the same, for each rank
std::string steps_csv(const SdcReport& report);       // one line for each iteration

}  // namespace ttrace
