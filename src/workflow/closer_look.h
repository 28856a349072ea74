// Looks closer at what a check of sketches has found: both runs are made again, the modules of the root causes recorded
// whole, so that elements are there to be shown and diagnosed.
#pragma once

#include <filesystem>
#include <vector>

#include "workflow/check.h"
#include "workflow/collect.h"

namespace ttrace {

struct CloserLook {
  std::vector<CollectOptions> runs;  // each must repeat the run that `again` names; empty: there is nothing to look at
  CheckOptions check;                // of what they leave
};

// Returns what to run after the check that gave `first`, of which a side was recorded as sketches: into `output`, by
// the commands that the traces name, in the same directories; `command` in place of the candidate's where it is not
// empty. A side that was recorded whole is not run again. Throws InputError where a trace does not name its command,
// with what to type.
CloserLook plan_closer_look(const CheckOptions& check, const Report& first, const std::filesystem::path& output,
                            const std::vector<std::string>& command);

// Gives the examined root causes of `report` what `closer`, the report on the same tensors recorded whole, says of
// them: the measured difference and the diagnosis. The verdicts stay.
void add_closer_look(Report& report, const Report& closer);

// True where a rank recorded a sketch.
bool has_sketches(const Trace& trace);

}  // namespace ttrace
