// Drafts which tensor of one program is which of another that implements the same model: a correspondence file.
#pragma once

#include <string>

#include "align/aligned_trace.h"

namespace ttrace {

struct CorrespondenceDraft {
  std::string text;          // of the file
  std::size_t rules = 0;     // that it has
  std::size_t measured = 0;  // of these, whose parameters are equal, or whose activations are near
  std::size_t odd = 0;       // matches of one layer and not of its sisters: they are no rules
  std::size_t parameters[2] = {0, 0}, found[2] = {0, 0};  // of each side, and how many of them the rules speak of
};

// True where fewer than half of the parameters of one side have the name of one of the other: two implementations, and
// not one program on other ranks.
bool names_differ(const Trace& reference, const Trace& candidate);

// Both must have been aligned by themselves. Parameters are matched by equal values alone, before the first step;
// modules by the parameters inside them, and by values near each other.
CorrespondenceDraft draft_correspondence(const AlignedTrace& reference, const AlignedTrace& candidate);

std::string summary_of(const CorrespondenceDraft& draft);

}  // namespace ttrace
