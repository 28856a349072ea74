// Drafts annotations for a trace. The draft says what the shapes and values of a tensor's shards show, and how certain
// that is; a person judges whether the program means it so.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// One line of a rule, `tp_dim: 0`, and why. It is certain when the shards, put together in this way, are near the
// reference's values, and in no other way that was tried.
struct DraftLine {
  std::string text;
  bool certain = false;
  // False for a guess that would excuse a wrong tensor, a sum, or a factor, that nothing shows to be meant, and for one
  // that the values contradict, or that is one of several orders which fit alike: these may make a right tensor wrong.
  // It is written as a comment (`Guess`).
  bool counts = true;
  std::string why;  // what it was seen on, and how near the values came
};

// A rule for one pattern. Without lines it is only remarks, or says that the tensor is whole on every rank.
struct DraftRule {
  std::string pattern;
  std::optional<Kind> kind;  // empty: the parameter's own keys
  std::vector<DraftLine> lines;
  std::vector<std::string> remarks;  // what could not be found out, looks wrong, or contradicts itself
  // Each rank has the whole tensor, as it is taken to have where no rule says otherwise.
  bool whole = false;
};

struct Draft {
  std::vector<std::string> candidates;  // directory and axes of each
  std::vector<std::string> known_axes;  // that some candidate has
  std::vector<DraftLine> parallelism;
  std::vector<std::string> remarks;  // about `parallelism`
  std::vector<DraftRule> rules;      // in order of execution, those of one pattern next to each other
  std::int64_t without_rule = 0;     // number of patterns and kinds that lie whole on every rank
};

// Drafts rules for the tensors of the candidates that neither `given` nor the traces themselves place. One draft holds
// for all of them: what they say of different axes is put together, and where they contradict each other the draft says
// so. An axis that replicates is not written down, so that a rule holds on other meshes, too. `reference` has the
// trusted run's tensors; without one (null), ranks can only be compared with each other. Throws InputError when a rank
// is missing or did not finish, and as `align` does.
Draft propose(std::span<const Trace* const> candidates, const Annotations& given, const Alignment* reference);

// Returns the text of an annotation file: `given`, the text of the annotations that were given, and the draft after it.
std::string to_yaml(const Draft& draft, const std::string& given);

std::string summary_of(const Draft& draft);  // `41 placements: 38 certain, 3 guessed; 20 need no rule; 1 remark`

}  // namespace ttrace
