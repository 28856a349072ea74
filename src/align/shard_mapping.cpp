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

#include <iterator>
#include <utility>

#include "align/assemble.h"
#include "align/by_shape.h"
#include "align/notes.h"
#include "align/rows.h"
#include "align/sequence_alias.h"
#include "base/parallel_for.h"
#include "identify/check_annotations.h"
#include "identify/identify.h"
#include "identify/loss_scale.h"
#include "identify/own_steps.h"
#include "identify/owned.h"
#include "identify/program.h"

namespace ttrace {
namespace {

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

// Tells who the tensors are, and sets the aliases. Presets say what sp splits; whether the program has sequence
// parallelism is not known before the shards of a tensor are seen together. Where the shapes say otherwise than the
// mesh, sp is another axis, and all that follows from names of axes is worked out again.
Identification identify_with_aliases(RankTable& ranks, const Annotations& said, const ModelLayout& layout, int threads,
                                     Alignment& alignment) {
  ResolvedAnnotations annotations = resolve(said, ranks.mesh);
  check_annotations(annotations);
  Identification who = identify(ranks, std::move(annotations), layout, threads);
  alignment.aliases = aliases_by_shape(who.grouping, ranks, layout, alignment.notes);
  if (alignment.aliases == ranks.mesh.aliases) return who;
  ranks.mesh.aliases = alignment.aliases;
  return identify(ranks, resolve(said, ranks.mesh), layout, threads);
}

// The ranks whose part of some input is shorter than the reference's.
std::set<std::int32_t> padded_shorter(const std::map<std::int64_t, std::set<std::vector<std::int64_t>>>& of_inputs,
                                      const RankTable& table, const Microbatches& microbatches) {
  std::set<std::int32_t> shorter;
  for (const auto& [extent, lengths] : of_inputs) {
    for (const std::vector<std::int64_t>& own : lengths) {
      for (const PresentRank& rank : table.ranks) {
        const auto place = static_cast<std::size_t>(coordinate_on(rank, table, microbatches));
        if (place < own.size() && own[place] < extent) shorter.insert(rank.trace->rank);
      }
    }
  }
  return shorter;
}

// Takes over what is known of the tensors before any of them is assembled.
void add_identities(Identification& who, const RankTable& ranks, Alignment& alignment) {
  Grouping& grouping = who.grouping;
  alignment.of_one_rank = ranks.ranks.size() == 1 && ranks.missing.empty() && ranks.crashed.empty();
  alignment.slices = grouping.microbatches.are_slices();
  const SampleOrders& samples = grouping.microbatches.samples;
  for (const auto& [microbatch, of_inputs] : samples.lengths) {
    if (samples.is_truncated(microbatch.first, microbatch.second)) continue;  // what ranks lack is no padding
    alignment.padded_shorter[microbatch] = padded_shorter(of_inputs, ranks, grouping.microbatches);
  }
  if (grouping.microbatches.open) alignment.open_order = describe_axes(grouping.microbatches, ranks);
  alignment.findings = ranks.findings;
  alignment.findings.insert(alignment.findings.end(), grouping.findings.begin(), grouping.findings.end());
  alignment.local = std::move(grouping.local);
  alignment.not_seen = std::move(grouping.not_seen);
}

void append(std::vector<std::string>& notes, const std::vector<std::string>& more) {
  notes.insert(notes.end(), more.begin(), more.end());
}

}  // namespace

Alignment align(const Trace& trace, const Annotations& given, const ModelLayout& layout, int threads) {
  Alignment alignment;
  alignment.notes = notes_of_program_words(given, trace);

  // 1. Who is it?
  RankTable ranks = rank_table_of(trace);
  Identification who = identify_with_aliases(ranks, with_program_words(given, trace), layout, threads, alignment);
  Grouping& grouping = who.grouping;
  add_identities(who, ranks, alignment);
  // From here on the mesh, its aliases and the annotations on it do not change, and each recorded tensor is in the one
  // group of its canonical identity.

  // 2. Where should there be a shard?
  find_losses(grouping, ranks, layout);
  find_owned(grouping, ranks, layout);
  find_own_steps(grouping, ranks);
  append(alignment.notes, find_own_copies(grouping, ranks));
  find_own_gradients(grouping, ranks);
  place_by_shape(grouping, ranks, who.annotations, layout);
  append(alignment.notes, notes_of_pipeline(grouping, ranks, who.annotations));
  // From here on the placement of a group says what each axis does to its tensor, whoever said it: a rule, the program
  // or the shapes. An axis that is not in it replicates.

  // 3. What does each shard fill?
  DimensionPool dimensions;
  const AssemblyContext context{ranks,
                                who.annotations,
                                find_length_tensors(who.census, who.annotations.said),
                                grouping.pipeline,
                                grouping.microbatches,
                                {grouping.pipeline.axis, grouping.experts.axis, grouping.microbatches.axes},
                                dimensions};
  assemble_all(grouping.groups, context, threads, alignment);
  // From here on the groups are spent. All tensors are there but those of routed tokens, which look for their tokens in
  // the others.
  align_rows(ranks, who.annotations, grouping.microbatches, grouping.rows, alignment);

  append(alignment.notes, notes_of_placements(grouping, ranks, who.annotations, alignment));
  return alignment;
}

}  // namespace ttrace
