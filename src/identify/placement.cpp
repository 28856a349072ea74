#include "identify/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "identify/check_annotations.h"

namespace ttrace {

TensorPlacement placement_by_rules(const ResolvedAnnotations& annotations, Kind kind, const std::string& name,
                                   int fixed) {
  TensorPlacement placement;
  placement.rule = rule_for(annotations.said, kind, name);
  if (placement.rule == nullptr) {
    if (fixed >= 0) placement.factoring = *factoring_with(annotations, {fixed});
    return placement;
  }
  const AnnotationRule& rule = *placement.rule;
  placement.factoring = check_one_factoring(annotations, rule, fixed);
  placement.sum_microbatches = rule.sum_microbatches;
  placement.uses = annotations.uses_of(rule);
  const bool followed = rule.kind && *rule.kind != kind;
  for (AxisUse& use : placement.uses) {
    if (fixed >= 0 && use.axis == fixed) {
      throw InputError(fmt::format("{}: {} is an expert, on one rank of '{}'; expected no '{}' in its rule",
                                   where(rule, use.line), printable(name), use.split.axis, use.split.axis));
    }
    if (followed && use.placement == Placement::kPartial) {
      use.placement = Placement::kReplicate;
      use.mean = false;
    }
  }
  return placement;
}

TensorPlacement placement_as_recorded(const RecordedMapping& mapping, const ResolvedAnnotations& annotations,
                                      const std::string& at) {
  const Mesh& mesh = annotations.mesh;
  TensorPlacement placement;
  placement.recorded = &mapping;
  std::vector<int> axes;
  for (const RecordedMapping::Axis& axis : *mapping.axes) {
    AxisUse use = resolve_use(mesh, axis.placement);
    if (use.split.size != axis.size) {
      throw InputError(fmt::format("{}: recorded on an axis '{}' of {} ranks; the trace's axes are '{}'", at,
                                   axis.placement.axis, axis.size, to_string(mesh)));
    }
    if (names_axis(placement, use.axis)) {
      throw InputError(fmt::format("{}: axis '{}' appears twice in its recorded mapping; expected it once", at,
                                   axis.placement.axis));
    }
    if (use.axis >= 0) axes.push_back(use.axis);
    placement.uses.push_back(std::move(use));
  }
  const auto factoring = factoring_with(annotations, axes);
  if (!factoring) {
    throw InputError(fmt::format("{}: recorded on axes of two factorings of the ranks, '{}'; expected those of one", at,
                                 to_string(mesh)));
  }
  placement.factoring = *factoring;
  return placement;
}

AxisPlacement as_written(const AxisUse& use) {
  AxisPlacement axis;
  axis.axis = use.split.axis;
  axis.placement = use.placement;
  axis.mean = use.mean;
  axis.dim = use.dim;
  axis.layout = use.split.samples.empty() ? name_of(*use.split.layout) : "dealt as the inputs are";
  axis.options = use.split.options;
  axis.unpadded = use.unpadded;
  return axis;
}

std::string where(const TensorPlacement& placement, const AxisUse& use) {
  return placement.rule != nullptr ? where(*placement.rule, use.line) : "the recorded mapping";
}

std::size_t dimension_of(const TensorPlacement& placement, const AxisUse& use, const std::string& name,
                         const Shape& shape) {
  const int ndim = static_cast<int>(shape.size());
  if (use.dim < -ndim || use.dim >= ndim) {
    const std::string expected = ndim == 0 ? "no sharding of a scalar" : fmt::format("{} to {}", -ndim, ndim - 1);
    throw InputError(fmt::format("{}: dim {} is out of range for {} of shape {}; expected {}", where(placement, use),
                                 use.dim, printable(name), to_string(shape), expected));
  }
  return static_cast<std::size_t>(use.dim < 0 ? use.dim + ndim : use.dim);
}

bool names_axis(const TensorPlacement& placement, int axis) {
  return axis >= 0 && std::any_of(placement.uses.begin(), placement.uses.end(),
                                  [axis](const AxisUse& use) { return use.axis == axis; });
}

}  // namespace ttrace
