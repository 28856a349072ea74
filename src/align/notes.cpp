#include "align/notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/describe.h"
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

// Says which samples the slices are, where that is not their order; empty where it is.
std::string_view describe_samples(const Microbatches& microbatches) {
  if (microbatches.layout == "striped" || microbatches.are_striped()) return ", sample by sample in turn";
  const bool in_order =
      std::all_of(microbatches.samples.told.begin(), microbatches.samples.told.end(), [](const auto& of_microbatch) {
        return std::all_of(of_microbatch.second.begin(), of_microbatch.second.end(),
                           [](const auto& order) { return are_contiguous(order.second); });
      });
  return in_order ? "" : ", in an order that the bytes of the inputs tell";
}

// Notes losses of several micro-batches.
void note_shared_losses(const Microbatches& microbatches, const RankTable& table, std::vector<std::string>& notes) {
  if (microbatches.shared_losses.empty()) return;
  const bool is_one = microbatches.shared_losses.begin()->second.front().size() == 1;
  notes.push_back(fmt::format(
      "along {} each rank has {}, as the reference has: taken as terms of {}", describe_axes(microbatches, table),
      is_one ? "one loss, behind all of its micro-batches" : "losses that are behind several micro-batches",
      is_one ? "that" : "these"));
}

// Notes which micro-batches the ranks run, where nobody said so.
void note_order(const Microbatches& microbatches, const RankTable& table, std::vector<std::string>& notes) {
  if (!microbatches.deduced) return;
  const std::string axes = describe_axes(microbatches, table);
  if (!microbatches.sliced.empty()) {
    notes.push_back(
        fmt::format("the ranks along {} run some of the reference's micro-batches whole, and slices of others, as the "
                    "bytes and shapes of their inputs tell",
                    axes));
    return;
  }
  if (!microbatches.told.empty()) {
    notes.push_back(fmt::format(
        "the ranks along {} run the reference's micro-batches in an order that the bytes of their inputs tell", axes));
    return;
  }
  if (!microbatches.are_slices()) {
    notes.push_back(
        fmt::format("each of the ranks along {} runs consecutive micro-batches of the reference's, as their inputs say "
                    "(microbatches: {{order: blocked}})",
                    axes));
    return;
  }
  notes.push_back(
      fmt::format("the ranks along {} run slices of the reference's micro-batches{}, as counts and shapes say; along "
                  "these axes the loss and what every rank has whole of a gradient are terms of sums",
                  axes, describe_samples(microbatches)));
}

// Notes where the ranks' tensors end before the reference's, as their inputs do: those that are padded, or `truncated`.
void note_lengths(const Microbatches& microbatches, const RankTable& table, bool truncated,
                  std::vector<std::string>& notes) {
  std::size_t of = 0;
  std::string first;
  for (const auto& [microbatch, extents] : microbatches.samples.lengths) {
    if (microbatches.samples.is_truncated(microbatch.first, microbatch.second) != truncated) continue;
    ++of;
    if (!first.empty()) continue;
    for (const auto& [extent, lengths] : extents) {
      for (const std::vector<std::int64_t>& own : lengths) {
        first = fmt::format("iteration {}, micro-batch {}: {} of {}", microbatch.first, microbatch.second,
                            fmt::join(own, ", "), extent);
      }
    }
  }
  if (of == 0) return;
  notes.push_back(fmt::format(
      "the ranks along {} {} in {} micro-batch{} ({}), as the bytes of the inputs say; tensors of these lengths are "
      "compared as far as each rank has them, and {} behind it is left out",
      describe_axes(microbatches, table), truncated ? "truncate samples" : "pad to the longest of their own samples",
      of, of == 1 ? "" : "es", first, truncated ? "what the reference has" : "the reference's padding"));
}

// Notes models of which no call was seen: where the other side saw none, either, nothing is missing there.
void note_unseen_models(const RankTable& table, std::vector<std::string>& notes) {
  std::set<std::string> reasons;
  for (const PresentRank& rank : table.ranks) {
    for (const NotSeen& statement : rank.trace->not_seen) {
      const bool is_of_model = std::ranges::find(statement.modules, kRootModule) != statement.modules.end();
      if (is_of_model && !statement.by_design && statement.kinds.contains(Kind::kOutput)) {
        reasons.insert(printable(statement.reason));
      }
    }
  }
  if (reasons.empty()) return;
  notes.push_back(fmt::format(
      "what the model takes, returns and gets back was not recorded, and is not compared ({}); its parameters are",
      comma_list(std::vector<std::string>(reasons.begin(), reasons.end()))));
}

std::string list_of_names(const std::set<TensorId>& ids) {
  std::set<std::string> names;
  for (const TensorId& id : ids) names.insert(printable(id.name));
  return comma_list(std::vector<std::string>(names.begin(), names.end()));
}

// Notes inputs that count within what the rank was given.
void note_numbers_anew(const Microbatches& microbatches, const RankTable& table, std::vector<std::string>& notes) {
  if (microbatches.samples.begin_anew.empty()) return;
  notes.push_back(
      fmt::format("the numbers in these begin anew on each of the ranks along {}: they are the reference's less "
                  "one number on each, and are not compared, while what is computed with them is: {}",
                  describe_axes(microbatches, table), list_of_names(microbatches.samples.begin_anew)));
}

// Notes inputs that count what the rank was given.
void note_own_counts(const Microbatches& microbatches, const RankTable& table, std::vector<std::string>& notes) {
  if (microbatches.samples.own_counts.empty()) return;
  notes.push_back(
      fmt::format("these count what each of the ranks along {} was given, or say where it ends: they add up to the "
                  "reference's, and are not compared, while what is computed with them is: {}",
                  describe_axes(microbatches, table), list_of_names(microbatches.samples.own_counts)));
}

// Notes lists of which each rank numbers the elements of its own samples from 0.
void note_lists(const Microbatches& microbatches, const RankTable& table, std::vector<std::string>& notes) {
  const std::set<std::string>& told = microbatches.lists.told();
  if (told.empty()) return;
  std::vector<std::string> names;
  for (const std::string& name : told) names.push_back(printable(name));
  notes.push_back(fmt::format(
      "each of the ranks along {} numbers the elements of its own samples in lists from 0: they are compared "
      "with the reference's of the same samples, as their bytes say: {}",
      describe_axes(microbatches, table), comma_list(names)));
}

// Notes packed sequences, whose numbers count within what the rank was given.
void note_packed(const Microbatches& microbatches, const RankTable& table, std::vector<std::string>& notes) {
  if (microbatches.packed.own_numbers.empty()) return;
  notes.push_back(fmt::format(
      "the ranks along {} pack the sequences of their own samples: the numbers that say how are not compared, and "
      "where the samples are known each row is, with the reference's of the same sample and step: {}",
      describe_axes(microbatches, table), list_of_names(microbatches.packed.own_numbers)));
}

}  // namespace

std::vector<std::string> notes_of_pipeline(const Grouping& grouping, const RankTable& ranks,
                                           const ResolvedAnnotations& annotations) {
  std::vector<std::string> notes = grouping.pipeline.notes;
  if (grouping.pipeline.virtual_stages() == 1) return notes;
  if (!annotations.said.pipeline) {
    const Axis& axis = ranks.axes[static_cast<std::size_t>(grouping.pipeline.axis)];
    notes.push_back(
        fmt::format("axis '{}' has {} stages and no rule numbers their layers; expected, for example, "
                    "parallelism: {{pipeline: {{layers: decoder.layers}}}}",
                    axis.name, axis.size));
    return notes;
  }
  std::set<std::string> names;
  for (const Group& group : grouping.groups) {
    if (group.stages == Stages::kFirst || group.stages == Stages::kLast) {
      names.insert(fmt::format("'{}' {}", printable(group.id.name), name_of(group.id.kind)));
    }
  }
  if (names.empty()) return notes;
  notes.push_back(
      fmt::format("modules that span the pipeline's stages, inputs taken from the first stage and outputs "
                  "from the last: {}",
                  comma_list(std::vector<std::string>(names.begin(), names.end()))));
  return notes;
}

std::vector<std::string> notes_of_placements(const Grouping& grouping, const RankTable& ranks,
                                             const ResolvedAnnotations& annotations, const Alignment& alignment) {
  std::vector<std::string> notes;
  note_unused_patterns(annotations.said, grouping, notes);
  note_unseen_models(ranks, notes);
  note_order(grouping.microbatches, ranks, notes);
  note_shared_losses(grouping.microbatches, ranks, notes);
  for (const bool truncated : {false, true}) note_lengths(grouping.microbatches, ranks, truncated, notes);
  note_numbers_anew(grouping.microbatches, ranks, notes);
  note_own_counts(grouping.microbatches, ranks, notes);
  note_lists(grouping.microbatches, ranks, notes);
  note_packed(grouping.microbatches, ranks, notes);
  note_deduced(alignment, notes);
  note_batch_axes(alignment, grouping.microbatches, ranks, notes);
  note_unmatched_tensors(grouping, alignment, notes);
  return notes;
}

}  // namespace ttrace
