#include "annotate/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "annotate/close_names.h"
#include "annotate/piece_table.h"
#include "base/describe.h"
#include "base/error.h"
#include "base/mesh.h"
#include "identify/program.h"
#include "identify/resolved_annotations.h"

namespace ttrace {
namespace {

using ExplainedKey = std::tuple<std::string, Kind, Pass>;  // what all iterations and micro-batches share

ExplainedKey explained_key(const TensorId& id) { return {id.name, id.kind, id.pass}; }

// The tensors and findings of one side under one key.
struct MappedTensors {
  std::vector<const LogicalTensor*> tensors;
  std::vector<const Finding*> findings;
};

std::map<ExplainedKey, MappedTensors> select(const Alignment& alignment, const std::string& pattern) {
  std::map<ExplainedKey, MappedTensors> selected;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (matches(pattern, id.name)) selected[explained_key(id)].tensors.push_back(&tensor);
  }
  for (const Finding& finding : alignment.findings) {
    if (!finding.id.name.empty() && matches(pattern, finding.id.name)) {
      selected[explained_key(finding.id)].findings.push_back(&finding);
    }
  }
  return selected;
}

// `8 tensors: iteration 0, micro-batches 0, 1, 2, 3; iteration 1, ...`.
std::string describe_identities(const std::vector<const LogicalTensor*>& tensors) {
  std::map<std::int32_t, std::vector<std::string>> microbatches;
  for (const LogicalTensor* tensor : tensors) {
    std::vector<std::string>& words = microbatches[tensor->id.iteration];
    if (tensor->id.microbatch != kNoMicrobatch) words.push_back(std::to_string(tensor->id.microbatch));
  }
  std::vector<std::string> words;
  for (const auto& [iteration, of_iteration] : microbatches) {
    const char* noun = of_iteration.size() == 1 ? "micro-batch" : "micro-batches";
    words.push_back(of_iteration.empty()
                        ? fmt::format("iteration {}", iteration)
                        : fmt::format("iteration {}, {} {}", iteration, noun, comma_list(of_iteration)));
  }
  return fmt::format("{} tensor{}: {}", tensors.size(), tensors.size() == 1 ? "" : "s", fmt::join(words, "; "));
}

std::string describe_role(const AxisPlacement& axis) {
  if (axis.placement == Placement::kReplicate) return "replicates";
  if (axis.placement == Placement::kPartial) {
    return fmt::format("each rank holds a term of the {}", axis.mean ? "mean" : "sum");
  }
  return fmt::format("splits dimension {}, {}", axis.dim, axis.layout);
}

// Returns the placement on `axis`, by its name or an alias; null where none names it.
const AxisPlacement* find_axis(const std::vector<AxisPlacement>& axes, const Aliases& aliases,
                               const std::string& axis) {
  for (const AxisPlacement& placement : axes) {
    const auto alias = aliases.find(placement.axis);
    if (placement.axis == axis || (alias != aliases.end() && alias->second == axis)) return &placement;
  }
  return nullptr;
}

std::string describe_axis(const Annotations& annotations, const AnnotationRule* rule, const AlignedTrace& aligned,
                          const Axis& axis, const LogicalTensor& tensor) {
  const TensorId& id = tensor.id;
  const Aliases& aliases = aligned.alignment.aliases;
  if (const AxisPlacement* placement = find_axis(tensor.deduced, {}, axis.name)) {
    return describe_role(*placement) +
           (placement->placement == Placement::kPartial ? " (of slices)" : " (by its shape)");
  }
  const AxisPlacement* placement = rule == nullptr ? nullptr : find_axis(rule->axes, aliases, axis.name);
  if (placement != nullptr) {
    const bool followed = rule->kind && *rule->kind != id.kind;
    if (followed && placement->placement == Placement::kPartial) {
      return "replicates: the gradient of a sum is the same for each of its terms";
    }
    const std::string as = placement->axis == axis.name ? "" : fmt::format(" (as {})", placement->axis);
    return describe_role(*placement) + as;
  }
  const std::string stages = annotations.pipeline ? annotations.pipeline->axis : PipelineRule{}.axis;
  if (axis.name == stages) return "pipeline stages: a copy on each stage that holds it";
  const std::vector<std::string> sharing = microbatch_axes(annotations, aligned.trace->mesh);
  const bool shares = std::find(sharing.begin(), sharing.end(), axis.name) != sharing.end();
  if (shares && id.microbatch != kNoMicrobatch && !aligned.alignment.slices) {
    return fmt::format("tells micro-batches apart, {}",
                       annotations.microbatches.order == MicrobatchOrder::kBlocked ? "blocked" : "interleaved");
  }
  return "replicates (not named)";
}

std::string describe_rule(const AnnotationRule* rule) {
  return rule == nullptr ? "no rule" : "rule " + where(*rule, rule->source.line);
}

// The recorded tensors that a tensor in another program's names is made of, each with its rule.
std::string describe_sources(const Annotations& annotations, const std::vector<TensorId>& sources) {
  std::string text;
  for (const TensorId& source : sources) {
    text += fmt::format("    recorded as {}; {}\n", to_string(source),
                        describe_rule(rule_for(annotations, source.kind, source.name)));
  }
  return text;
}

std::string explain_side(const Annotations& annotations, const AnnotationRule* rule, const ExplainedSide& side,
                         const MappedTensors& mapped) {
  if (mapped.tensors.empty() && mapped.findings.empty()) return fmt::format("  {}: does not hold it\n", side.name);
  std::vector<TensorId> sources;
  if (side.recorded_as != nullptr && !mapped.tensors.empty()) {
    const auto found = side.recorded_as->find(mapped.tensors[0]->id);
    if (found != side.recorded_as->end()) sources = found->second;
    if (!sources.empty()) rule = rule_for(annotations, sources[0].kind, sources[0].name);
  }
  std::string text;
  if (!mapped.tensors.empty()) {
    const LogicalTensor& first = *mapped.tensors[0];
    text += fmt::format("  {}: {}, {}; {}\n", side.name, to_string(first.shape), name_of(first.dtype),
                        describe_identities(mapped.tensors));
    text += describe_sources(annotations, sources);
    const Annotations with_words = with_program_words(annotations, *side.aligned.trace);
    const Axes axes = factorings_of(side.aligned.trace->mesh)[first.factoring];
    for (const Axis& axis : axes) {
      text += fmt::format("    {} ({}): {}\n", axis.name, axis.size,
                          describe_axis(with_words, rule, side.aligned, axis, first));
    }
    if (!first.doubt.empty()) text += fmt::format("    {}\n", first.doubt);
    if (first.scale != 1) {
      text += fmt::format("    loss_scale: recorded = {} * logical{}\n", first.scale,
                          annotations.loss_scale ? "" : ", as the program says");
    }
    if (mapped.tensors.size() > 1) text += fmt::format("    the pieces of {}:\n", to_string(first.id));
    text += table_of_pieces(*side.aligned.trace, first, whole_box(first.shape));
  } else {
    text += fmt::format("  {}:\n", side.name);
  }
  for (const Finding* finding : mapped.findings) text += fmt::format("    not mapped: {}\n", finding->message);
  return text;
}

[[noreturn]] void refuse(std::span<const ExplainedSide> sides, const std::string& pattern) {
  std::set<std::string> names;
  for (const ExplainedSide& side : sides) {
    for (const auto& [id, tensor] : side.aligned.alignment.tensors) names.insert(id.name);
  }
  throw no_such_name(pattern, names);
}

}  // namespace

std::string explain(const Annotations& annotations, std::span<const ExplainedSide> sides, const std::string& pattern) {
  std::vector<std::map<ExplainedKey, MappedTensors>> selected;
  std::set<ExplainedKey> subjects;
  for (const ExplainedSide& side : sides) {
    selected.push_back(select(side.aligned.alignment, pattern));
    for (const auto& [subject, mapped] : selected.back()) subjects.insert(subject);
  }
  if (subjects.empty()) refuse(sides, pattern);
  std::string text;
  // Annotations are of the candidate's own names.
  const bool is_renamed =
      std::any_of(sides.begin(), sides.end(), [](const ExplainedSide& side) { return side.recorded_as != nullptr; });
  for (const ExplainedKey& subject : subjects) {
    const auto& [name, kind, pass] = subject;
    const AnnotationRule* rule = is_renamed ? nullptr : rule_for(annotations, kind, name);
    text += fmt::format("{}{} {}{}\n", text.empty() ? "" : "\n", printable(name), name_of(kind),
                        pass == Pass::kRecompute ? ", recompute" : "");
    if (!is_renamed) text += fmt::format("  {}\n", describe_rule(rule));
    for (std::size_t i = 0; i < sides.size(); ++i) {
      text += explain_side(annotations, rule, sides[i], selected[i][subject]);
    }
  }
  return text;
}

}  // namespace ttrace
