// Does the work of `ttrace check --follow`: checks a run that was collected with --split while it goes on.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "workflow/check.h"

namespace ttrace {

struct FollowOptions {
  std::chrono::seconds timeout{600};  // without a further iteration
  std::size_t keep = 0;               // how many iterations that are the same stay on the disk, the last; 0: all
};

// Checks each iteration that the reference has as soon as all ranks of the candidate have recorded it, in order, and
// tells `on_checked`. Ends with the first that is not the same, or the last; returns what its check gave. Traces of the
// candidate that are the same are removed where they are not to be kept. The reference holds the iterations in one
// trace, or each in its own. Throws InputError where an iteration could not be looked at, or none came in time.
Checked follow(const CheckOptions& check, const FollowOptions& options,
               const std::function<void(std::int32_t iteration, const Checked&)>& on_checked);

// Says what keeps the trace of an iteration from being whole; empty where nothing does. A rank that goes on writes its
// journal.
std::string gap_in(const std::filesystem::path& directory);

// Removes the trace at once for others: who looks at all traces just now finds it whole or not at all. Throws
// InputError.
void remove_trace(const std::filesystem::path& trace);

}  // namespace ttrace
