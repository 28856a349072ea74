// Drafts annotations for a trace. The draft says what the shapes and values of a tensor's shards show, and how certain
// that is; a person judges whether the program means it so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

// One line of a rule, `tp_dim: 0`, and why. It is certain when the shards, put together in this way, are near the
// reference's values, and in no other way that was tried.
struct DraftLine {
  std::string text;
  bool certain = false;
  std::string why;
};

// A rule for one pattern. Without lines it is only a remark: it says what could not be found out, or looks wrong.
struct DraftRule {
  std::string pattern;
  std::optional<Kind> kind;  // empty: the parameter's own keys
  std::vector<DraftLine> lines;
  std::string remark;
};

struct Draft {
  std::vector<DraftLine> parallelism;
  std::vector<DraftRule> rules;  // in order of execution, those of one pattern next to each other
};

// Drafts rules for the tensors of `trace` that neither `given` nor the trace itself places. `reference` has the trusted
// run's tensors; without one (null), ranks can only be compared with each other. Throws InputError when a rank is
// missing or did not finish, and as `align` does.
Draft propose(const Trace& trace, const Annotations& given, const Alignment* reference);

// Returns the text of an annotation file: `given`, the text of the annotations that were given, and the draft after it.
std::string to_yaml(const Draft& draft, const std::string& given);

std::string summary_of(const Draft& draft);  // `41 placements: 38 certain, 3 guessed; 1 remark`

}  // namespace ttrace
