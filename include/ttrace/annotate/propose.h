// Drafts annotations for a trace. What a tensor's shards say by their shapes and values is written down,
// together with how far it can be believed; what it means is for a person to judge.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

// `tp_dim: 0`, and why. Certain: the shards, put together in this way, are near the reference's values, and
// in no other way that was tried.
struct DraftLine {
  std::string text;
  bool certain = false;
  std::string why;
};

// Under one pattern. Without lines it is only a remark: what could not be found out, or looks wrong.
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

// For the tensors of `trace` that neither `given` nor the trace itself places. `reference` is the trusted
// run's tensors, null when there is none; then ranks can only be held against each other. Throws InputError
// when a rank is missing or did not finish, and as `align` does.
Draft propose(const Trace& trace, const Annotations& given, const Alignment* reference);

// An annotation file: `given`, the text of the annotations that were given, and the draft after it.
std::string to_yaml(const Draft& draft, const std::string& given);

std::string summary_of(const Draft& draft);  // `41 placements: 38 certain, 3 guessed; 1 remark`

}  // namespace ttrace
