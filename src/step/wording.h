// Words for wrong steps: which slice of the parameter is wrong, and how.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/alignment.h"
#include "base/trace.h"
#include "step/replay.h"

namespace ttrace {

// One rank's part of a wrong update.
struct WrongPart {
  const ParameterSeries* series = nullptr;
  std::size_t update = 0;  // index into the series' `updates`
  const UpdateTally* tally = nullptr;
};

// Says what is wrong with an update of `tensor`, a param_delta: "rows 128-255 not updated, on rank 1 (tp=1)". `parts`
// are of one update, not empty, by rank. Reads the parts again where `look_closely`.
std::string describe_wrong_update(const LogicalTensor& tensor, std::span<const WrongPart> parts, bool look_closely);

// Says the same of what was copied to the parameter; `tensor` is the param_delta of the step.
std::string describe_wrong_copy(const LogicalTensor& tensor, std::span<const WrongPart> parts, bool look_closely);

}  // namespace ttrace
