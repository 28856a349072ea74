// How many layers each stage of a pipeline holds, as declared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ttrace/annotation.h"

namespace ttrace {

struct Division {
  std::string prefix;  // of the layers, for messages
  std::int64_t total = 0, stages = 1, chunks = 1;
};

// By virtual stage, `total` in all. `at` begins a message: InputError where the declaration does not fit.
std::vector<std::int64_t> divide(const PipelineRule& rule, const Division& division, const std::string& at);

}  // namespace ttrace
