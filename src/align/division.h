// Which layers each stage of a pipeline holds, as declared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ttrace/annotation.h"

namespace ttrace {

struct Division {
  std::string prefix;  // of the layers, for messages
  std::int64_t total = 0, stages = 1, chunks = 1;
  std::int64_t held = 0;  // by the ranks
};

// By virtual stage, how many layers, `total` in all. `at` begins a message: InputError where the declaration does not
// fit.
std::vector<std::int64_t> divide(const PipelineRule& rule, const Division& division, const std::string& at);

// Where nothing is declared but an even division, there is none, and layers are lost: the program has rounded.
bool must_round(const PipelineRule& rule, const Division& division);

// Then, by virtual stage, its first layer, and the words for a note.
std::vector<std::int64_t> rounded_starts(const Division& division);
std::string describe_rounding(const Division& division, const std::string& at);

}  // namespace ttrace
