// Calls of modules, put together from what was recorded of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttrace/sdc/report.h"

namespace ttrace {

// One call, forward or backward, on all ranks of one pipeline stage.
struct Call {
  std::int32_t iteration = 0, microbatch = 0;
  std::string module;  // the path, with `#2` for a later call
  std::string type;
  Direction direction = Direction::kForward;
  std::vector<const RecordedPair*> outputs;  // in order of rank, then of execution
  bool has_inputs = false;                   // some were recorded
  bool inputs_agree = true;                  // and they, and the parameters inside the module, on every rank
  bool outputs_agree = true;
};

// The module that a tensor `name` was seen at: without the member of a tuple, with the number of the call.
std::string module_of(std::string_view name);

// A path with `*` for each number in it; a later call of a module is of the same type as the first.
std::string type_of(std::string_view module);

// In order of execution of their outputs.
std::vector<Call> calls_of(std::span<const RecordedPair> pairs);

}  // namespace ttrace
