// The canonical shard mapping (TTrace, section 4.1) answers, for every tensor of the model, which elements
// of which rank's file are which elements of the logical tensor. It is worked out in three steps.
//
// 1. Who is it? What a rank recorded gets its canonical identity, the reference's: layer numbers that are local
//    to a stage and a chunk, and experts' that are local to a rank, become global ones, local micro-batches global
//    ones, a tied parameter's names one (identity.cpp). The entries of all ranks with one identity are the shards
//    of one logical tensor.
//
// 2. Where should there be a shard? The ranks may be factored in several ways, for the experts and for all else; a
//    tensor lies on one of these factorings. The annotation gives each axis of it a role in this tensor:
//      split      the coordinate chooses a part of a dimension
//      partial    the coordinate chooses a term of a sum
//      replicate  the coordinate chooses one of several replicas; so does an axis that is not named
//      select     the micro-batch axis, where it told the micro-batches apart in step 1; an expert's axis
//      stage      the pipeline axis: a tensor need only be on some stages, and they all are replicas (of a tied
//                 parameter's gradient, terms). A rank with several model chunks is several stages.
//    Where the rule sums over micro-batches, they are terms, too. The coordinates of a rank thus are mixed-radix
//    digits of (replica, term, shard): a slot. The slots of the stages that hold the tensor must be filled, each
//    once (frame.cpp). An empty one is an omission, and because places and ranks are in one-to-one
//    correspondence, it is known whose.
//
// 3. What does each shard fill? Dimension by dimension, because a placement never mixes them: the size of a
//    dimension may depend only on the coordinates of the axes that split it. Shards for which that holds fit
//    together, and no others do: a replica of another shape, a neighbour that is longer across the split, a
//    swapped pair of uneven shards all break it. Along one dimension the axes nest, outermost first; the
//    layout of each (contiguous, or another that is registered) places the parts of its level in the whole of
//    that level, given their sizes, and the levels compose (layout.cpp). Sizes are taken from what was
//    recorded, so an uneven split needs no annotation. A shard's pieces are the products of its stretches.
//
// That every element is filled exactly once does not follow from this: a layout may be wrong. So it is
// checked for each term of the first replica, on the boxes themselves (coverage.cpp). The other replicas
// have the same parts in the same places by step 3.
//
// The cost is linear in the number of shards, up to a logarithm in the coverage of one tensor.
#include "align/shard_mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <unordered_set>

#include "align/assemble.h"
#include "align/by_shape.h"
#include "align/describe.h"
#include "align/identity.h"
#include "align/loss_scale.h"
#include "align/program.h"
#include "align/ties.h"
#include "base/parallel_for.h"
#include "base/tensor_name.h"

namespace ttrace {
namespace {

// A pattern counts as used when one of its rules placed some tensor: one that matches a module but says
// only where parameters lie is of no use either.
void note_unused_patterns(const Annotations& annotations, const Grouping& grouping, std::vector<std::string>& notes) {
  if (annotations.of_program) return;  // nobody has written them for this trace
  std::set<std::string_view> used;
  for (const auto& [key, placement] : grouping.placements) {
    if (placement.rule != nullptr) used.insert(placement.rule->pattern);
  }
  for (const AnnotationRule& rule : annotations.rules) {
    if (rule.optional || !used.insert(rule.pattern).second) continue;  // a pattern is mentioned once
    notes.push_back(fmt::format("{}: '{}' places no tensor of the trace", to_string(rule.source), rule.pattern));
  }
}

void note_unmatched_tensors(const Grouping& grouping, const Alignment& alignment, std::vector<std::string>& notes) {
  std::set<std::pair<std::string, Kind>> deduced;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (!tensor.deduced.empty()) deduced.emplace(id.name, id.kind);
  }
  std::vector<std::string> words;
  for (const auto& [key, placement] : grouping.placements) {
    if (key.second == Kind::kScalar) continue;  // a scalar needs no rule: every rank that has it has the same
    if (placement.rule == nullptr && !deduced.contains(key))
      words.push_back(fmt::format("{} {}", printable(key.first), name_of(key.second)));
  }
  if (words.empty()) return;
  notes.push_back(fmt::format("no rule places these, taken as replicated on every axis: {}", comma_list(words)));
}

// Notes the tensors that their shapes placed, by what the shapes said.
void note_deduced(const Alignment& alignment, std::vector<std::string>& notes) {
  std::map<std::string, std::set<std::string>> names;
  for (const auto& [id, tensor] : alignment.tensors) {
    std::vector<std::string> axes;
    for (const AxisPlacement& axis : tensor.deduced) {
      if (axis.placement == Placement::kShard) axes.push_back(describe_split(axis));
    }
    if (axes.empty()) continue;
    names[fmt::format("{}", fmt::join(axes, ", "))].insert(fmt::format("{} {}", printable(id.name), name_of(id.kind)));
  }
  for (const auto& [axes, of_axes] : names) {
    notes.push_back(fmt::format("placed by their shapes, {}: {}", axes,
                                comma_list(std::vector<std::string>(of_axes.begin(), of_axes.end()))));
  }
}

// Notes axes that split what the model is given as if it were a batch, and are not known to be data parallelism.
void note_batch_axes(const Alignment& alignment, const Microbatches& microbatches, const RankTable& table,
                     std::vector<std::string>& notes) {
  std::set<std::string> known, named;
  for (const int axis : microbatches.axes) known.insert(table.axes[static_cast<std::size_t>(axis)].name);
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind != Kind::kInput || TensorName(id.name).path != kRootModule) continue;
    for (const AxisPlacement& axis : tensor.deduced) {
      const bool is_of_batch = axis.placement == Placement::kShard && axis.dim == 0 && !known.contains(axis.axis);
      if (!is_of_batch || !named.insert(axis.axis).second) continue;
      notes.push_back(
          fmt::format("{0} splits the model's inputs along their first dimension: where that is the batch, and {0} is "
                      "data-parallel, write microbatches: {{axis: {0}, order: slices}}",
                      axis.axis));
    }
  }
}

// The axes whose ranks share the micro-batches, in words.
std::string describe_axes(const Microbatches& microbatches, const RankTable& table) {
  std::vector<std::string> axes;
  for (const int axis : microbatches.axes) axes.push_back(table.axes[static_cast<std::size_t>(axis)].name);
  return fmt::format("{}", fmt::join(axes, " and "));
}

// Notes which micro-batches the ranks run, where nobody said so.
void note_order(const Microbatches& microbatches, const RankTable& table, std::vector<std::string>& notes) {
  if (!microbatches.deduced) return;
  const std::string axes = describe_axes(microbatches, table);
  if (!microbatches.are_slices()) {
    notes.push_back(
        fmt::format("each of the ranks along {} runs consecutive micro-batches of the reference's, as the "
                    "integer inputs say (microbatches: {{order: blocked}})",
                    axes));
    return;
  }
  notes.push_back(
      fmt::format("the ranks along {} run slices of the reference's micro-batches{}, as counts and shapes say; along "
                  "these axes the loss and what every rank has whole of a gradient are terms of sums",
                  axes, microbatches.layout == "striped" ? ", sample by sample in turn" : ""));
}

// Notes the modules of which some stages are left out, or that no rule speaks of the pipeline.
void note_pipeline(const Grouping& grouping, const AssemblyContext& context, std::vector<std::string>& notes) {
  if (context.pipeline.virtual_stages() == 1) return;
  if (!context.annotations.pipeline) {
    const Axis& axis = context.ranks.axes[static_cast<std::size_t>(context.pipeline.axis)];
    notes.push_back(
        fmt::format("axis '{}' has {} stages and no rule numbers their layers; expected, for example, "
                    "parallelism: {{pipeline: {{layers: decoder.layers}}}}",
                    axis.name, axis.size));
    return;
  }
  std::set<std::string> names;
  for (const Group& group : grouping.groups) {
    if (group.stages == Stages::kFirst || group.stages == Stages::kLast) {
      names.insert(fmt::format("'{}' {}", printable(group.id.name), name_of(group.id.kind)));
    }
  }
  if (names.empty()) return;
  notes.push_back(
      fmt::format("modules that span the pipeline's stages, inputs taken from the first stage and outputs "
                  "from the last: {}",
                  comma_list(std::vector<std::string>(names.begin(), names.end()))));
}

// Adds the tensors that the groups make up, which come in order of identity, and what is found about them.
void assemble_all(std::vector<Group>& groups, const AssemblyContext& context, int threads, Alignment& alignment) {
  struct Assembled {
    std::map<TensorId, LogicalTensor> tensors;
    std::vector<Finding> findings;
  };
  std::vector<Assembled> parts(groups.size() / kGroupsATask + 1);
  parallel_for_ranges(groups.size(), kGroupsATask, threads, [&](std::size_t begin, std::size_t end) {
    auto& [tensors, findings] = parts[begin / kGroupsATask];
    for (std::size_t i = begin; i < end; ++i) {
      if (groups[i].shards.empty()) continue;
      Assembly assembly = assemble(std::move(groups[i]), context);
      std::move(assembly.findings.begin(), assembly.findings.end(), std::back_inserter(findings));
      if (auto& tensor = assembly.tensor) tensors.emplace_hint(tensors.end(), tensor->id, std::move(*tensor));
    }
  });
  for (Assembled& part : parts) {
    std::move(part.findings.begin(), part.findings.end(), std::back_inserter(alignment.findings));
    while (!part.tensors.empty()) {
      alignment.tensors.insert(alignment.tensors.end(), part.tensors.extract(part.tensors.begin()));
    }
  }
}

}  // namespace

bool is_not_seen(const Alignment& alignment, const Finding& finding) {
  return finding.verdict == Verdict::kMissing && !finding.id.name.empty() &&
         alignment.not_seen.reason_of(finding.id) != nullptr;
}

ModelLayout layout_of(const Alignment& reference) {
  ModelLayout layout;
  layout.reference = &reference;
  // A large trace has many tensors of one name and kind, of which the first counts.
  std::array<std::unordered_set<std::string_view>, kKindLast + 1> known;
  for (const auto& [id, tensor] : reference.tensors) {
    std::int64_t& microbatches = layout.microbatches[id.iteration];
    microbatches = std::max(microbatches, std::int64_t{id.microbatch} + 1);
    if (!known[static_cast<std::size_t>(id.kind)].insert(id.name).second) continue;
    layout.shapes.emplace(std::pair(id.name, id.kind), tensor.shape);
    for (auto number = number_in(id.name); number; number = number_in(id.name, number->end)) {
      std::int64_t& count = layout.layer_counts[std::string(number->prefix)];
      count = std::max(count, number->value + 1);
    }
  }
  return layout;
}

Alignment align(const Trace& trace, const Annotations& given, const ModelLayout& layout, int threads) {
  RankTable ranks = rank_table_of(trace);
  const Annotations said = with_program_words(given, trace);
  const auto take_census = [&] {
    return census_of(ranks, stage_axis(ranks.mesh, said), expert_axis(ranks.mesh, said), threads);
  };
  Census census = take_census();
  const Annotations annotations = with_ties_that_hold(said, census, layout);
  check_annotations(annotations, ranks.mesh);
  Grouping grouping = group_shards(ranks, census, annotations, layout, threads);

  Alignment alignment;
  alignment.notes = notes_of_program_words(given, trace);
  alignment.aliases = aliases_by_shape(grouping, ranks, layout, alignment.notes);
  if (alignment.aliases != ranks.mesh.aliases) {
    ranks.mesh.aliases = alignment.aliases;
    census = take_census();
    grouping = group_shards(ranks, census, annotations, layout, threads);
  }
  alignment.slices = grouping.microbatches.are_slices();
  if (grouping.microbatches.open) alignment.open_order = describe_axes(grouping.microbatches, ranks);
  find_losses(grouping, layout);
  place_by_shape(grouping, ranks, layout, grouping.pipeline.axis);

  alignment.findings = ranks.findings;
  alignment.findings.insert(alignment.findings.end(), grouping.findings.begin(), grouping.findings.end());
  DimensionPool dimensions;
  const AssemblyContext context{ranks,
                                annotations,
                                find_length_tensors(census, annotations),
                                grouping.pipeline,
                                grouping.microbatches,
                                {grouping.pipeline.axis, grouping.experts.axis, grouping.microbatches.axes},
                                dimensions};
  alignment.notes.insert(alignment.notes.end(), grouping.pipeline.notes.begin(), grouping.pipeline.notes.end());
  note_pipeline(grouping, context, alignment.notes);
  alignment.local = std::move(grouping.local);
  alignment.not_seen = std::move(grouping.not_seen);
  assemble_all(grouping.groups, context, threads, alignment);
  align_rows(ranks, annotations, grouping.microbatches, grouping.rows, alignment);
  note_unused_patterns(annotations, grouping, alignment.notes);
  note_order(grouping.microbatches, ranks, alignment.notes);
  note_deduced(alignment, alignment.notes);
  note_batch_axes(alignment, grouping.microbatches, ranks, alignment.notes);
  note_unmatched_tensors(grouping, alignment, alignment.notes);
  return alignment;
}

}  // namespace ttrace
