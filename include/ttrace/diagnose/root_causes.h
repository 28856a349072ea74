// Finds the root causes of a report: wrong tensors whose sources are right.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ttrace/diagnose/diagnosis.h"
#include "ttrace/outcome.h"

namespace ttrace {

// Fills `report.roots`, and returns for each finding the index of the finding that it follows from: its own where it is a
// root, in any micro-batch, and none where it is not wrong, or not the first finding about its tensor. A tensor that is a root in several micro-batches or iterations is listed once. Five roots at
// most are diagnosed: those that differ in kind, pass or name (apart from its numbers) come first. The others get no
// diagnosis.
std::vector<std::optional<std::size_t>> add_root_causes(Report& report, const Evidence& evidence);

}  // namespace ttrace
