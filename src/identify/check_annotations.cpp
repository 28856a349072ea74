#include "identify/check_annotations.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/axis_names.h"
#include "base/error.h"
#include "identify/ranks.h"

namespace ttrace {
namespace {

void check_axis(const Mesh& mesh, const std::string& name, int index, const std::string& at) {
  if (index >= 0 || is_optional_axis(name) || mesh.axes.empty()) return;
  std::set<std::string> names;
  for (const Axis& candidate : all_axes(mesh)) names.insert(candidate.name);
  for (const auto& [alias, target] : mesh.aliases) names.insert(alias);
  throw InputError(fmt::format("{}: axis '{}' is not an axis of the trace [{}]", at, name, fmt::join(names, ", ")));
}

void check_axis(const Mesh& mesh, const ResolvedAxis& axis, const std::string& at) {
  check_axis(mesh, axis.name, axis.index, at);
}

// The layout is there and has the options that it takes, no others.
void check_layout(const AxisPlacement& axis, const Layout* layout, const std::string& at) {
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

void check_rule(const ResolvedAnnotations& annotations, const AnnotationRule& rule) {
  const std::vector<AxisUse>& uses = annotations.uses_of(rule);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const AxisPlacement& axis = rule.axes[i];
    const std::string at = where(rule, axis.line);
    check_axis(annotations.mesh, axis.axis, uses[i].axis, at);
    if (axis.placement == Placement::kShard) check_layout(axis, uses[i].split.layout, at);
    for (std::size_t earlier = 0; earlier < i; ++earlier) {
      const std::string& other = rule.axes[earlier].axis;
      if (axis.axis == other || (uses[i].axis >= 0 && uses[i].axis == uses[earlier].axis)) {
        throw InputError(
            fmt::format("{}: '{}' and '{}' are one axis of the trace; expected it once", at, other, axis.axis));
      }
    }
  }
  check_one_factoring(annotations, rule);
}

// Every factoring of the ranks has the stages, unless there is only one.
void check_stages(const ResolvedAnnotations& annotations, const std::string& at) {
  const ResolvedAxis& stages = annotations.stage_axis;
  check_axis(annotations.mesh, stages, at);
  for (const auto& factoring : annotations.factorings) {
    if (stages.size == 1 || has_axis(factoring, stages.index)) continue;
    throw InputError(fmt::format("{}: axis '{}' is not in all factorings of the ranks, {}; expected it in each", at,
                                 stages.name, to_string(annotations.mesh)));
  }
}

std::string at_line(const SourceLine& source, std::string_view key) {
  return fmt::format("{}: 'parallelism': {}", to_string(source), key);
}

}  // namespace

void check_annotations(const ResolvedAnnotations& annotations) {
  const Annotations& said = annotations.said;
  for (const AnnotationRule& rule : said.rules) check_rule(annotations, rule);
  for (const ResolvedAxis& axis : annotations.microbatch_axes) {
    check_axis(annotations.mesh, axis, at_line(said.microbatches.source, "microbatches"));
  }
  if (said.pipeline) check_stages(annotations, at_line(said.pipeline->source, "pipeline"));
  if (said.experts) {
    check_axis(annotations.mesh, *annotations.expert_axis, at_line(said.experts->source, "experts"));
  }
  for (const auto* words : {&annotations.loss_scale.numerator, &annotations.loss_scale.denominator}) {
    for (const ScaleWord& word : *words) {
      if (word.axis) check_axis(annotations.mesh, *word.axis, at_line(said.loss_scale->source, "loss_scale"));
    }
  }
}

std::size_t check_one_factoring(const ResolvedAnnotations& annotations, const AnnotationRule& rule, int fixed) {
  const std::vector<AxisUse>& uses = annotations.uses_of(rule);
  std::vector<int> axes;
  if (fixed >= 0) axes.push_back(fixed);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].axis < 0) continue;
    axes.push_back(uses[i].axis);
    if (factoring_with(annotations, axes)) continue;
    throw InputError(fmt::format("{}: '{}' and '{}' are axes of two factorings of the ranks, {}; expected those of one",
                                 where(rule, rule.axes[i].line),
                                 annotations.axes[static_cast<std::size_t>(axes[0])].name, rule.axes[i].axis,
                                 to_string(annotations.mesh)));
  }
  return *factoring_with(annotations, axes);
}

}  // namespace ttrace
