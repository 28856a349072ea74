// What a draft has to say something about: the tensors of a trace, the layers of a model taken together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ttrace/annotation.h"
#include "ttrace/trace.h"

namespace ttrace {

// The name with `*` for each number of the path and without its call: `layers.*.attn:1`. What a stage calls a
// tensor and what the reference calls it have the same pattern.
std::string pattern_of(const std::string& name);

// The shapes of several tensors: all have as many dimensions, or `ragged` is true.
struct ShapeRange {
  Shape smallest, largest;
  bool ragged = false;
  void add(const Shape& shape);
  bool empty() const { return !ragged && !known_; }

 private:
  bool known_ = false;
};

struct HeldEntry {
  const RankTrace* rank = nullptr;
  const Entry* entry = nullptr;
};

struct Subject {
  std::vector<HeldEntry> shards;
  ShapeRange local;      // of the shards
  ShapeRange reference;  // of the reference's tensors
  Dtype dtype = Dtype::kFloat32;
  std::uint64_t order = 0;  // the smallest; the reference's, where it has such tensors
  bool in_microbatches = false;
};
using SubjectKey = std::pair<std::string, Kind>;  // pattern, kind
using Subjects = std::map<SubjectKey, Subject>;

// Those that neither a rule of `settings` nor the trace itself places. What flows between the layers of a module
// that spans the pipeline's stages is none of its tensors.
Subjects unplaced_subjects(const Trace& trace, const Annotations& settings);

}  // namespace ttrace
