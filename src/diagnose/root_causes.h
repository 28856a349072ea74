// Finds the root causes of a report: wrong tensors whose sources are right.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/outcome.h"
#include "diagnose/diagnosis.h"

namespace ttrace {

// Fills `report.explanation`, and returns for each finding the index of the finding that it follows from: its own where
// it is a root, in any micro-batch, and none where it is not wrong, or not the first finding about its tensor. A tensor
// that is a root in several micro-batches or iterations is listed once. Five roots at most are diagnosed: those that
// differ in kind, pass or name (apart from its numbers) come first. The others get no diagnosis. What differs and may be
// right all the same is set aside before that (questions.h).
std::vector<std::optional<std::size_t>> add_root_causes(Report& report, const Evidence& evidence);

// Fills the roots of a report of which each finding holds a tensor against its own recorded operands (`ttrace abft`):
// what is wrong in one module does not make another's findings wrong, so that the first of every module is a root. Only
// copies that differ between ranks may follow from an earlier wrong tensor: they are a root where they come first.
// Modules that differ in their names' numbers alone, and are wrong in the same way, are one root.
void add_root_of_each_module(Report& report);

}  // namespace ttrace
