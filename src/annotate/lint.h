// Finds what looks like a mistake in an annotation file, by a trace that the file is meant for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "align/aligned_trace.h"

namespace ttrace {

// The words are part of the stable interface of `ttrace lint --json`.
enum class LintCheck : std::uint8_t {
  kMisfit,                 // "misfit": the shards of a tensor do not fit together as its rule says
  kUnplaced,               // "unplaced": no rule places a tensor
  kPlacedByShape,          // "placed-by-shape": no rule places a tensor, and its shape says how it lies
  kUnusedRule,             // "unused-rule": a rule places no tensor
  kAmbiguous,              // "ambiguous": two equally specific patterns fit a tensor, so that the later one places it
  kAbsentAxis,             // "absent-axis": a rule names an axis that the trace lacks
  kUnevenSplit,            // "uneven-split": the parts of a dimension differ in size
  kMisplaced,              // "misplaced": a rule splits what is whole, or another dimension than the one that is split
  kUntied,                 // "untied": a parameter has the bits of another, of which it is a copy on another stage
  kNoSequenceParallelism,  // "no-sequence-parallelism": the axes say that there is, and no tensor is split so
};
std::string_view name_of(LintCheck check);

// False for what shapes say, an absent axis and an uneven split, which may well be meant.
bool is_mistake(LintCheck check);

struct LintMessage {
  LintCheck check = LintCheck::kMisfit;
  SourceLine source;  // line 0 where it is about none
  std::string text;   // `gpt.yaml:14: 'linear_qkv': output: places no tensor of the trace`
};

// Returns the messages by file and line, those about no line first. `aligned` was aligned with these annotations, and
// measured against the trusted run `reference`, where there is one (else null): its shapes tell more.
std::vector<LintMessage> lint(const AlignedTrace& aligned, const Annotations& annotations,
                              const Alignment* reference = nullptr);

}  // namespace ttrace
