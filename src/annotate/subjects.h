// The subjects of a draft: the tensors of a trace that want a rule, with the layers of a model taken together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/annotation.h"
#include "base/trace.h"

namespace ttrace {

// Returns the name with `*` for each number of the path and without its call: `layers.*.attn:1`. A tensor has the same
// pattern under a stage's local layer numbers and under the reference's.
std::string pattern_of(const std::string& name);

// The smallest and largest sizes of several tensors; `ragged` where they differ in their number of dimensions.
struct ShapeRange {
  Shape smallest, largest;
  bool ragged = false;
  void add(const Shape& shape);
  bool empty() const { return !ragged && !known_; }

 private:
  bool known_ = false;
};

// One rank's entry of a tensor.
struct RecordedShard {
  const RankTrace* rank = nullptr;
  const Entry* entry = nullptr;
};

// The tensors of one pattern and kind.
struct Subject {
  std::vector<RecordedShard> shards;
  ShapeRange local;      // of the shards
  ShapeRange reference;  // of the reference's tensors
  Dtype dtype = Dtype::kFloat32;
  std::uint64_t order = 0;  // of the first entry in order of execution; the reference's, where it has such tensors
  bool in_microbatches = false;
  bool packed = false;  // packed sequences, in the order that the numbers beside them tell
};
using SubjectKey = std::pair<std::string, Kind>;  // pattern, kind
using Subjects = std::map<SubjectKey, Subject>;

// Returns the subjects that neither a rule of `settings` nor the trace itself places. Leaves out what a pipeline stage
// records as input or output of a module that spans the stages, unless it flows into or out of the whole module.
Subjects unplaced_subjects(const Trace& trace, const Annotations& settings);

}  // namespace ttrace
