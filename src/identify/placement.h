// The placement of one tensor on one trace's mesh, as the annotations or the recording program give it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "identify/resolved_annotations.h"

namespace ttrace {

// Above any real dimension, and low enough that a sum over all ranks fits 64 bits.
inline constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;

struct TensorPlacement {
  const AnnotationRule* rule = nullptr;       // null: none, replicated over every axis
  const RecordedMapping* recorded = nullptr;  // then `rule` is null
  std::vector<AxisUse> uses;                  // in the order written, outermost first
  std::size_t factoring = 0;                  // whose axes it names: an index into `factorings_of` the mesh
  bool sum_microbatches = false;
  std::string doubt = {};             // as in LogicalTensor
  std::string unplaced = {};          // why nothing tells where its shards lie, whatever their shapes say
  bool guessed = false;               // as in LogicalTensor
  std::vector<std::size_t> cut = {};  // dimensions that end, on each rank, at the longest of the rank's own samples
  // Of the reference, those rows of dimension 0 that no rank holds, ascending: positions behind the ends of the ranks' own
  // samples. The samples of the split count the others.
  std::shared_ptr<const std::vector<std::int64_t>> dropped = nullptr;
  bool is_placed() const { return rule != nullptr || recorded != nullptr; }
};

// For checked annotations, which must outlive the result. The gradient of a value that is partial over an axis is the
// same on all its ranks (each term enters the sum with factor 1), so a `partial` that a gradient would take over from
// `input` or `output` becomes `replicate`. `fixed` is an axis on one coordinate of which all of the tensor is (an
// expert's); -1: none. Throws InputError when the rule names that axis, or one that lies on no factoring with it.
TensorPlacement placement_by_rules(const ResolvedAnnotations& annotations, Kind kind, const std::string& name,
                                   int fixed = -1);

// `mapping` has axes. Throws InputError where the trace's mesh lacks one of them or has it in another size;
// `at` says whose mapping it is.
TensorPlacement placement_as_recorded(const RecordedMapping& mapping, const ResolvedAnnotations& annotations,
                                      const std::string& at);

// The use as a rule has it.
AxisPlacement as_written(const AxisUse& use);

// Who says so, to begin a message: the annotation's line, or the trace.
std::string where(const TensorPlacement& placement, const AxisUse& use);

// The dimension that `use` shards, counted from the front. Throws InputError when the shape has none.
std::size_t dimension_of(const TensorPlacement& placement, const AxisUse& use, const std::string& name,
                         const Shape& shape);

// True when it is said how the tensor lies along the axis (an index in `all_axes`).
bool names_axis(const TensorPlacement& placement, int axis);

}  // namespace ttrace
