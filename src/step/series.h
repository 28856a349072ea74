// Finds what a rank recorded of one parameter's updates, iteration by iteration, and how far they can be computed
// again.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/alignment.h"
#include "base/trace.h"
#include "step/update_rule.h"

namespace ttrace {

// Elements of one tensor that are those of the update, one for one.
struct StepOperand {
  const Entry* entry = nullptr;  // null: not recorded
  const std::byte* data = nullptr;

  explicit operator bool() const { return entry != nullptr; }
};

enum class BeforeStep : std::uint8_t {
  kRecorded,  // the value that the optimizer updates, in the entry
  kCarried,   // ... as the iteration before has left it
  kRounded,   // the parameter in the entry is that value, rounded
};

// One update of one parameter on one rank.
struct RankUpdate {
  std::int32_t iteration = 0;
  const OptimizerStep* step = nullptr;  // null: none was recorded
  StepOperand delta;
  // Says why it cannot be computed again. The rest has no meaning then, but for `step`, `delta` and what says of the
  // value.
  std::string reason;
  bool has_value = false;  // the value that is updated is known, and with it what the copy must be
  UpdateRule rule{};
  bool skipped = false;  // the optimizer did not step: overflow, for example
  double count = 1;      // of the optimizer's steps, with this one
  double clip_factor = 1;
  StepOperand gradient, before, after;
  BeforeStep source = BeforeStep::kRecorded;
  Dtype updated = Dtype::kFloat32;  // the dtype of the value that is updated
  bool state_is_zero = false;       // this is the first step
  StepOperand state[3];             // recorded: exp_avg or momentum_buffer, exp_avg_sq, max_exp_avg_sq; or some
  std::int64_t rolled = 0;          // steps since the state was zero or recorded, with this one; below 0: not known
  std::vector<Kind> rests_on;       // what was read of this iteration, but for the parameter
};

struct ParameterSeries {
  const RankTrace* rank = nullptr;
  std::int32_t chunk = 0;
  std::string name;                 // canonical
  std::vector<RankUpdate> updates;  // by iteration
  std::int64_t elements = 0;        // of each update
};

// Returns the series of all ranks, by rank, chunk and name.
std::vector<ParameterSeries> find_series(const Trace& trace, const Alignment& alignment);

// The canonical name of each parameter by rank, chunk and the name that the rank recorded.
using ParameterNames = std::map<std::tuple<std::int32_t, std::int32_t, std::string>, std::string>;
ParameterNames parameter_names(const Alignment& alignment);

}  // namespace ttrace
