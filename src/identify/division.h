// Divides the layers of a model among the stages of a pipeline, as the annotations declare it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/annotation.h"

namespace ttrace {

struct Division {
  std::string prefix;  // of the layers, for messages
  std::int64_t total = 0, stages = 1, chunks = 1;
  std::int64_t held = 0;  // how many layers the ranks hold
};

// The number of layers of each virtual stage, `total` in all. Throws InputError where the declaration does not fit;
// `at` begins its message.
std::vector<std::int64_t> divide(const PipelineRule& rule, const Division& division, const std::string& at);

// True where the program must have rounded an even division: no other one is declared, the layers do not divide evenly,
// and the ranks hold fewer than the model has.
bool must_round(const PipelineRule& rule, const Division& division);

// The first layer of each virtual stage, and the text of a note, where the program has rounded.
std::vector<std::int64_t> rounded_starts(const Division& division);
std::string describe_rounding(const Division& division, const std::string& at);

}  // namespace ttrace
