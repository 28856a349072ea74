// Says what to do next after a check: make what the check lacks, or look closer at what differs. A case is a function
// of its own (advice/cases.h), and the first that applies is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "align/aligned_trace.h"
#include "base/outcome.h"

namespace ttrace {

// Holds the findings about tensors that differ by more than the closed form allows (tolerance/default_tolerance.h).
struct BeyondDefault {
  std::int64_t tensors = 0;
  std::size_t first = 0;  // index in `Report::findings` of the first, where there is one
  double allowed = 0;     // of its rel_err
};

// Holds what the user gave a check, and what it was made of.
struct Situation {
  const AlignedTrace& reference;  // both as they were recorded
  const AlignedTrace& candidate;
  bool is_mapping_known = false;        // annotations, the program or its tensors say how the ranks hold these
  bool has_tolerances = false;          // measured, or the default; or none are wanted
  std::string correspondence;           // empty: both sides have the same names
  std::string axes;                     // that the check was told, as --axes has them; or empty
  std::string check;                    // the command that makes this check again
  std::optional<std::string> localize;  // the command of its second run; none: that would be of another check
  std::optional<BeyondDefault> beyond = std::nullopt;  // where there are no tolerances, and the closed form has some
  // The command of the check that allows for rounding to a narrower dtype; none: nothing looks like that, or it is allowed.
  std::optional<std::string> rounded_check = std::nullopt;
  bool is_saved = false;  // a side is no run, but what another program saved: no command makes it again
};

// Fills `report.advice` by the judged and explained report. Where ranks are missing, unfinished or there twice, that is
// said before anything else: what the check lacks becomes a note.
void add_advice(const Situation& situation, Report& report);

}  // namespace ttrace
