#include "align/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "align/ranks.h"
#include "base/error.h"
#include "base/factor.h"

namespace ttrace {
namespace {

// One annotation file serves programs with and without each of these.
constexpr std::array<std::string_view, 10> kWellKnownAxes = {"tp",       "sp", "cp",  "dp", "dp_replicate",
                                                             "dp_shard", "ep", "etp", "pp", "edp"};

void check_axis(const Mesh& mesh, const std::string& axis, const std::string& at) {
  const bool known = std::find(kWellKnownAxes.begin(), kWellKnownAxes.end(), axis) != kWellKnownAxes.end();
  if (known || mesh.axes.empty() || axis_index(mesh, axis) >= 0) return;
  std::set<std::string> names;
  for (const Axis& candidate : all_axes(mesh)) names.insert(candidate.name);
  for (const auto& [alias, target] : mesh.aliases) names.insert(alias);
  throw InputError(fmt::format("{}: axis '{}' is not an axis of the trace [{}]", at, axis, fmt::join(names, ", ")));
}

// The layout is there and has the options that it takes, no others.
void check_layout(const AxisPlacement& axis, const std::string& at) {
  const Layout* layout = find_layout(axis.layout);
  if (layout == nullptr) {
    throw InputError(fmt::format("{}: {}: there is no layout '{}'; expected one of {}", at, axis.axis, axis.layout,
                                 fmt::join(layout_names(), ", ")));
  }
  const std::string takes =
      layout->options.empty() ? "takes no options" : fmt::format("takes {}", fmt::join(layout->options, " and "));
  for (const auto& [name, numbers] : axis.options) {
    if (std::find(layout->options.begin(), layout->options.end(), name) == layout->options.end()) {
      throw InputError(
          fmt::format("{}: {}: unknown key '{}'; layout '{}' {}", at, axis.axis, name, axis.layout, takes));
    }
  }
  for (const std::string& name : layout->options) {
    if (!axis.options.contains(name)) {
      throw InputError(fmt::format("{}: {}: no '{}'; layout '{}' {}", at, axis.axis, name, axis.layout, takes));
    }
  }
}

// The first factoring that has all of these axes.
std::optional<std::size_t> factoring_with(const Mesh& mesh, const std::vector<int>& axes) {
  const auto factorings = indexed_factorings_of(mesh);
  for (std::size_t factoring = 0; factoring < factorings.size(); ++factoring) {
    if (std::all_of(axes.begin(), axes.end(), [&](int axis) { return has_axis(factorings[factoring], axis); }))
      return factoring;
  }
  return std::nullopt;
}

// The factoring on which the rule's axes, and `fixed` (-1: none), lie.
std::size_t check_one_factoring(const AnnotationRule& rule, const Mesh& mesh, int fixed) {
  std::vector<int> axes;
  if (fixed >= 0) axes.push_back(fixed);
  for (const AxisPlacement& axis : rule.axes) {
    const int index = axis_index(mesh, axis.axis);
    if (index < 0) continue;
    axes.push_back(index);
    if (factoring_with(mesh, axes)) continue;
    throw InputError(fmt::format("{}: '{}' and '{}' are axes of two factorings of the ranks, {}; expected those of one",
                                 where(rule, axis.line), all_axes(mesh)[static_cast<std::size_t>(axes[0])].name,
                                 axis.axis, to_string(mesh)));
  }
  return *factoring_with(mesh, axes);
}

void check_rule(const AnnotationRule& rule, const Mesh& mesh) {
  std::vector<const AxisPlacement*> seen;
  for (const AxisPlacement& axis : rule.axes) {
    const std::string at = where(rule, axis.line);
    check_axis(mesh, axis.axis, at);
    if (axis.placement == Placement::kShard) check_layout(axis, at);
    for (const AxisPlacement* other : seen) {
      const int index = axis_index(mesh, axis.axis);
      if (axis.axis == other->axis || (index >= 0 && index == axis_index(mesh, other->axis))) {
        throw InputError(
            fmt::format("{}: '{}' and '{}' are one axis of the trace; expected it once", at, other->axis, axis.axis));
      }
    }
    seen.push_back(&axis);
  }
  check_one_factoring(rule, mesh, -1);
}

AxisUse use_of(const AxisPlacement& axis, const Mesh& mesh) {
  AxisUse use;
  use.axis = axis_index(mesh, axis.axis);
  use.placement = axis.placement;
  use.mean = axis.mean;
  use.dim = axis.dim;
  use.split.size = size_of_axis(mesh, axis.axis);
  use.split.axis = axis.axis;
  use.split.layout = find_layout(axis.layout);
  use.split.options = axis.options;
  use.unpadded = axis.unpadded;
  use.cu_seqlens = axis.cu_seqlens;
  use.cu_seqlens_padded = axis.cu_seqlens_padded;
  use.line = axis.line;
  return use;
}

std::string at_line(const SourceLine& source, std::string_view key) {
  return fmt::format("{}: 'parallelism': {}", to_string(source), key);
}

}  // namespace

void check_annotations(const Annotations& annotations, const Mesh& mesh) {
  for (const AnnotationRule& rule : annotations.rules) check_rule(rule, mesh);
  for (const std::string& axis : annotations.microbatches.axes) {
    check_axis(mesh, axis, at_line(annotations.microbatches.source, "microbatches"));
  }
  if (annotations.pipeline) {
    const std::string at = at_line(annotations.pipeline->source, "pipeline");
    check_axis(mesh, annotations.pipeline->axis, at);
    const int axis = axis_index(mesh, annotations.pipeline->axis);
    for (const auto& factoring : indexed_factorings_of(mesh)) {
      if (size_of_axis(mesh, annotations.pipeline->axis) == 1 || has_axis(factoring, axis)) continue;
      throw InputError(fmt::format("{}: axis '{}' is not in all factorings of the ranks, {}; expected it in each", at,
                                   annotations.pipeline->axis, to_string(mesh)));
    }
  }
  if (annotations.experts) {
    check_axis(mesh, annotations.experts->axis, at_line(annotations.experts->source, "experts"));
  }
  if (annotations.loss_scale) {
    const std::string at = at_line(annotations.loss_scale->source, "loss_scale");
    for (const auto* names : {&annotations.loss_scale->numerator, &annotations.loss_scale->denominator}) {
      for (const std::string& name : *names) {
        if (name != kMicrobatchCount && !factor_number(name)) check_axis(mesh, name, at);
      }
    }
  }
}

TensorPlacement placement_by_rules(const Annotations& annotations, const Mesh& mesh, Kind kind, const std::string& name,
                                   int fixed) {
  TensorPlacement placement;
  placement.rule = rule_for(annotations, kind, name);
  if (placement.rule == nullptr) {
    if (fixed >= 0) placement.factoring = *factoring_with(mesh, {fixed});
    return placement;
  }
  placement.factoring = check_one_factoring(*placement.rule, mesh, fixed);
  placement.sum_microbatches = placement.rule->sum_microbatches;
  const bool followed = placement.rule->kind && *placement.rule->kind != kind;
  for (const AxisPlacement& axis : placement.rule->axes) {
    AxisUse use = use_of(axis, mesh);
    if (fixed >= 0 && use.axis == fixed) {
      throw InputError(fmt::format("{}: {} is an expert, on one rank of '{}'; expected no '{}' in its rule",
                                   where(*placement.rule, axis.line), printable(name), axis.axis, axis.axis));
    }
    if (followed && use.placement == Placement::kPartial) {
      use.placement = Placement::kReplicate;
      use.mean = false;
    }
    placement.uses.push_back(std::move(use));
  }
  return placement;
}

TensorPlacement placement_as_recorded(const RecordedMapping& mapping, const Mesh& mesh, const std::string& at) {
  TensorPlacement placement;
  placement.recorded = &mapping;
  for (const RecordedMapping::Axis& axis : *mapping.axes) {
    AxisUse use = use_of(axis.placement, mesh);
    if (use.split.size != axis.size) {
      throw InputError(fmt::format("{}: recorded on an axis '{}' of {} ranks; the trace's axes are '{}'", at,
                                   axis.placement.axis, axis.size, to_string(mesh)));
    }
    if (names_axis(placement, use.axis)) {
      throw InputError(fmt::format("{}: axis '{}' appears twice in its recorded mapping; expected it once", at,
                                   axis.placement.axis));
    }
    placement.uses.push_back(std::move(use));
  }
  std::vector<int> axes;
  for (const AxisUse& use : placement.uses) {
    if (use.axis >= 0) axes.push_back(use.axis);
  }
  const auto factoring = factoring_with(mesh, axes);
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
  axis.layout = name_of(*use.split.layout);
  axis.options = use.split.options;
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
