// Collects what the reports of `sdc` show in common.
#pragma once

#include <string>
#include <vector>

#include "sdc/report.h"

namespace ttrace {

// The first element that differs: its index, and its value and bits on both sides.
struct Element {
  Shape index;
  double healthy = 0, suspect = 0;
  std::string healthy_bits, suspect_bits;  // hexadecimal, most significant first
};

// Reads it from both traces.
Element first_element(const RecordedPair& pair);

// One type of submodule over all micro-steps: a row of the study's tables 1 and 2.
struct TypeRow {
  std::string type;
  Direction direction = Direction::kForward;
  std::int64_t steps = 0, steps_hit = 0, origins = 0, unbounded = 0;
  double frequency_sum = 0, frequency_max = 0, severity_max = 0;
};

// Returns a row for each type and direction, in their order.
std::vector<TypeRow> rows_by_type(const SdcReport& report);

}  // namespace ttrace
