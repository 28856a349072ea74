#include "identify/resolved_annotations.h"

#include <algorithm>
#include <utility>

#include "base/axis_names.h"
#include "base/factor.h"
#include "identify/ranks.h"

namespace ttrace {
namespace {

std::vector<ResolvedAxis> resolve_axes(const Mesh& mesh, const std::vector<std::string>& names) {
  std::vector<ResolvedAxis> axes;
  for (const std::string& name : names) axes.push_back(resolve_axis(mesh, name));
  return axes;
}

std::vector<ScaleWord> resolve_words(const Mesh& mesh, const std::vector<std::string>& words) {
  std::vector<ScaleWord> resolved;
  for (const std::string& word : words) {
    ScaleWord& item = resolved.emplace_back();
    item.number = factor_number(word);
    if (!item.number && word != kMicrobatchCount) item.axis = resolve_axis(mesh, word);
  }
  return resolved;
}

ResolvedScale resolve_scale(const Mesh& mesh, const Factor& factor) {
  return {resolve_words(mesh, factor.numerator), resolve_words(mesh, factor.denominator)};
}

}  // namespace

ResolvedAxis resolve_axis(const Mesh& mesh, const std::string& name) {
  const auto alias = mesh.aliases.find(name);
  const std::string& own = alias == mesh.aliases.end() ? name : alias->second;
  const Axes axes = all_axes(mesh);
  const auto found = std::find_if(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.name == own; });
  if (found == axes.end()) return {name};
  return {name, static_cast<int>(found - axes.begin()), found->size};
}

AxisUse resolve_use(const Mesh& mesh, const AxisPlacement& axis) {
  const ResolvedAxis resolved = resolve_axis(mesh, axis.axis);
  AxisUse use;
  use.axis = resolved.index;
  use.placement = axis.placement;
  use.mean = axis.mean;
  use.dim = axis.dim;
  use.split.size = resolved.size;
  use.split.axis = axis.axis;
  use.split.layout = find_layout(axis.layout);
  use.split.options = axis.options;
  use.unpadded = axis.unpadded;
  use.cu_seqlens = axis.cu_seqlens;
  use.cu_seqlens_padded = axis.cu_seqlens_padded;
  use.line = axis.line;
  return use;
}

ResolvedAnnotations resolve(Annotations annotations, const Mesh& mesh) {
  ResolvedAnnotations resolved;
  resolved.mesh = mesh;
  resolved.axes = all_axes(mesh);
  resolved.factorings = indexed_factorings_of(mesh);
  for (const AnnotationRule& rule : annotations.rules) {
    std::vector<AxisUse>& uses = resolved.uses.emplace_back();
    for (const AxisPlacement& axis : rule.axes) uses.push_back(resolve_use(mesh, axis));
  }
  resolved.microbatch_axes = resolve_axes(mesh, microbatch_axes(annotations, mesh));
  resolved.stage_axis = resolve_axis(mesh, annotations.pipeline.value_or(PipelineRule()).axis);
  if (annotations.experts) resolved.expert_axis = resolve_axis(mesh, annotations.experts->axis);
  for (const ResolvedAxis& axis : resolve_axes(mesh, annotations.known_axes)) resolved.known_axes.push_back(axis.index);
  if (annotations.loss_scale) resolved.loss_scale = resolve_scale(mesh, *annotations.loss_scale);
  if (annotations.scale_of_some) {
    resolved.scale_of_some = resolve_scale(mesh, annotations.scale_of_some->loss_scale);
  }
  resolved.said = std::move(annotations);
  return resolved;
}

std::vector<std::string> microbatch_axes(const Annotations& annotations, const Mesh& mesh) {
  if (!annotations.microbatches.axes.empty()) return annotations.microbatches.axes;
  const Axes own = all_axes(mesh);
  std::vector<std::string> axes;
  for (const char* name : kDataAxes) {
    // Programs name axes of one rank, too: torchtitan has a dp_replicate in any case.
    if (std::any_of(own.begin(), own.end(), [&](const Axis& axis) { return axis.name == name && axis.size > 1; })) {
      axes.emplace_back(name);
    }
  }
  return axes.empty() ? std::vector<std::string>{"dp"} : axes;
}

std::optional<std::size_t> factoring_with(const ResolvedAnnotations& annotations, const std::vector<int>& axes) {
  for (std::size_t factoring = 0; factoring < annotations.factorings.size(); ++factoring) {
    const std::vector<std::size_t>& own = annotations.factorings[factoring];
    if (std::all_of(axes.begin(), axes.end(), [&](int axis) { return has_axis(own, axis); })) return factoring;
  }
  return std::nullopt;
}

}  // namespace ttrace
