#include "identify/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/factor.h"
#include "identify/arrangement.h"

namespace ttrace {
namespace {

MissingAxes missing_axes(const Trace& trace) {
  const std::string axes = axes_to_propose(trace);
  return {fmt::format("{}: nothing says how its {} ranks are arranged; expected --axes, as in --axes {}, or "
                      "`parallelism: {{axes: {}}}` in the annotations",
                      trace.directory.string(), trace.world_size, axes, axes),
          axes};
}

// Each axis of the trace is one of the mesh, on which each rank has the coordinate that it recorded. Axes of one rank
// say nothing.
void check_agreement(const Trace& trace, const Mesh& mesh, const DeclaredAxes& declared) {
  for (const Axis& axis : all_axes(trace.mesh)) {
    const bool agrees = axis.size == 1 || std::all_of(trace.ranks.begin(), trace.ranks.end(), [&](const auto& rank) {
                          const Coordinates coordinates = coordinates_of(mesh, rank.rank);
                          const auto found = coordinates.find(axis.name);
                          return found != coordinates.end() && found->second == rank.coordinates.at(axis.name);
                        });
    if (agrees && size_of_axis(mesh, axis.name) == axis.size) continue;
    throw InputError(fmt::format("{}: {}; {} recorded {}; expected axes that only add to these", declared.where,
                                 declared.text, trace.directory.string(), to_string(trace.mesh)));
  }
}

// True where the annotations have this key of the section `parallelism`, and so overrule the program.
bool is_said(const Annotations& annotations, const std::string& key) {
  if (annotations.of_program) return false;
  return (key == kPresetWord && !annotations.path.empty()) ||
         (key == "microbatches" && annotations.microbatches.source.line != 0) ||
         (key == "pipeline" && annotations.pipeline) || (key == "experts" && annotations.experts) ||
         (key == "tied" && !annotations.tied.empty()) || (key == "loss_scale" && annotations.loss_scale) ||
         (key == "narrower" && !annotations.narrower.empty());
}

}  // namespace

void settle_axes(Trace& trace, const Annotations& annotations, AxesOf whose) {
  if (trace.world_size == 1) return;
  const bool knows = !trace.mesh.axes.empty();
  if (!annotations.axes) {
    if (!knows) throw missing_axes(trace);
    return;
  }
  if (knows && whose == AxesOf::kAnother) return;
  Mesh mesh = parse_mesh(annotations.axes->text, trace.world_size,
                         fmt::format("{}: {}", trace.directory.string(), annotations.axes->where));
  if (knows) check_agreement(trace, mesh, *annotations.axes);
  for (const auto& [alias, axis] : trace.mesh.aliases) {
    if (size_of_axis(mesh, alias) == 1 && size_of_axis(mesh, axis) > 1) mesh.aliases.try_emplace(alias, axis);
  }
  for (RankTrace& rank : trace.ranks) rank.coordinates = coordinates_of(mesh, rank.rank);
  trace.mesh = std::move(mesh);
}

Annotations with_program_words(Annotations annotations, const Trace& trace) {
  if (trace.program == nullptr) return annotations;
  const Annotations& words = trace.program->words;
  for (const auto& [key, value] : trace.program->values) {
    if (is_said(annotations, key)) continue;
    if (key == "microbatches") annotations.microbatches = words.microbatches;
    if (key == "pipeline") annotations.pipeline = words.pipeline;
    if (key == "experts") annotations.experts = words.experts;
    if (key == "tied") annotations.tied = words.tied;
    if (key == "loss_scale") annotations.loss_scale = words.loss_scale;
    if (key == "narrower") annotations.narrower = words.narrower;
  }
  return annotations;
}

std::vector<std::string> notes_of_program_words(const Annotations& annotations, const Trace& trace) {
  if (trace.program == nullptr) return {};
  std::vector<std::string> notes, said;
  for (const auto& [key, value] : trace.program->values) {
    if (is_said(annotations, key)) continue;
    if (is_unknown_scale(key, value)) {
      notes.emplace_back(
          "the program divides the gradients that it adds up by what nobody knows (a communication hook, or divisors "
          "of its own): taken as not divided; `parallelism: {loss_scale: ...}` says it");
    } else {
      said.push_back(fmt::format("{}: {}", key, value));
    }
  }
  if (!said.empty()) notes.push_back(fmt::format("as the program says: {}", fmt::join(said, ", ")));
  notes.insert(notes.end(), trace.program->notes.begin(), trace.program->notes.end());
  return notes;
}

}  // namespace ttrace
