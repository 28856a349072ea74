// Annotations as they hold on the mesh of one trace. They name axes and layouts; the names are looked up here, once, and
// whoever works with the result has indexes, sizes and layouts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/annotation.h"
#include "base/layout.h"
#include "base/mesh.h"

namespace ttrace {

struct ResolvedAxis {
  std::string name;       // as somebody wrote it; it may be an alias
  int index = -1;         // in `all_axes`; -1 for one that the mesh lacks
  std::int64_t size = 1;  // 1 for one that the mesh lacks
};

ResolvedAxis resolve_axis(const Mesh& mesh, const std::string& name);

// How a tensor lies along one axis.
struct AxisUse {
  int axis = -1;  // index in `all_axes`; -1 for one that the mesh lacks, whose size is 1
  Placement placement = Placement::kReplicate;
  bool mean = false;                     // of terms: their sum is divided by their number
  bool deduced = false;                  // neither a rule nor the program says so
  int dim = 0;                           // for a shard; as written, so it may be negative
  AxisSplit split;                       // its layout is null where nobody has registered one of the name
  std::optional<std::int64_t> unpadded;  // as in AxisPlacement
  std::string cu_seqlens, cu_seqlens_padded;
  int line = 0;
};

AxisUse resolve_use(const Mesh& mesh, const AxisPlacement& axis);

// A word of the loss scale: an axis, or a number; where it is neither, it counts a rank's micro-batches.
struct ScaleWord {
  std::optional<ResolvedAxis> axis;
  std::optional<std::int64_t> number;
};

struct ResolvedScale {
  std::vector<ScaleWord> numerator, denominator;
};

struct ResolvedAnnotations {
  Annotations said;  // with the names
  Mesh mesh;
  Axes axes;                                         // `all_axes` of the mesh
  std::vector<std::vector<std::size_t>> factorings;  // `indexed_factorings_of` it

  std::vector<std::vector<AxisUse>> uses;     // by rule, in the order written: outermost first
  std::vector<ResolvedAxis> microbatch_axes;  // those of `microbatch_axes`
  ResolvedAxis stage_axis;                    // of the pipeline's stages, whether a rule names it or not
  std::optional<ResolvedAxis> expert_axis;    // the one that a rule spreads experts over
  std::vector<int> known_axes;                // as indexes
  ResolvedScale loss_scale, scale_of_some;

  // `rule` is one of `said`.
  const std::vector<AxisUse>& uses_of(const AnnotationRule& rule) const {
    return uses[static_cast<std::size_t>(&rule - said.rules.data())];
  }
};

// Looks all names up. What is not there becomes -1 or null, for `check_annotations` to refuse.
ResolvedAnnotations resolve(Annotations annotations, const Mesh& mesh);

// The axes whose ranks share the micro-batches, outermost first: those that the annotations name, or else those of
// `kDataAxes` that the mesh has with several ranks; dp where it has none, which may be an alias.
std::vector<std::string> microbatch_axes(const Annotations& annotations, const Mesh& mesh);

// The first factoring that has all of these axes.
std::optional<std::size_t> factoring_with(const ResolvedAnnotations& annotations, const std::vector<int>& axes);

}  // namespace ttrace
