#include "ttrace/align/shard_mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "align/assemble.h"
#include "align/describe.h"
#include "align/identity.h"
#include "align/names.h"
#include "align/pipeline.h"

namespace ttrace {
namespace {

// A pattern counts as used when one of its rules placed some tensor: one that matches a module but says
// only where parameters lie is of no use either.
void note_unused_patterns(const Annotations& annotations, const Grouping& grouping, std::vector<std::string>& notes) {
  std::set<std::pair<int, std::string_view>> unused;
  for (const AnnotationRule& rule : annotations.rules) unused.emplace(rule.line, rule.pattern);
  for (const auto& [key, placement] : grouping.placements) {
    if (placement.rule != nullptr) unused.erase({placement.rule->line, placement.rule->pattern});
  }
  for (const auto& [line, pattern] : unused) {
    notes.push_back(fmt::format("{}:{}: '{}' places no tensor of the trace",
                                annotations.path.empty() ? "annotations" : annotations.path, line, pattern));
  }
}

void note_unmatched_tensors(const Grouping& grouping, std::vector<std::string>& notes) {
  std::vector<std::string> words;
  for (const auto& [key, placement] : grouping.placements) {
    if (placement.rule == nullptr) words.push_back(fmt::format("{} {}", key.first, name_of(key.second)));
  }
  if (words.empty()) return;
  notes.push_back(fmt::format("no rule places these, taken as replicated on every axis: {}", join(words)));
}

}  // namespace

ModelLayout layout_of(const Alignment& reference) {
  ModelLayout layout;
  for (const auto& [id, tensor] : reference.tensors) {
    for (auto number = number_in(id.name); number; number = number_in(id.name, number->end)) {
      std::int64_t& count = layout.layer_counts[std::string(number->prefix)];
      count = std::max(count, number->value + 1);
    }
  }
  return layout;
}

Alignment align(const Trace& trace, const Annotations& annotations, const ModelLayout& layout) {
  const RankTable ranks = ranks_of(trace);
  check_annotations(annotations, ranks.mesh);
  const Grouping grouping = group_shards(ranks, annotations, layout);

  Alignment alignment;
  alignment.findings = ranks.findings;
  alignment.findings.insert(alignment.findings.end(), grouping.findings.begin(), grouping.findings.end());
  const AssemblyContext context{ranks, annotations, stage_axis(ranks.mesh, annotations),
                                axis_index(ranks.mesh, annotations.microbatch_axis)};
  for (const Group& group : grouping.groups) {
    Assembly assembly = assemble(group, context);
    for (Finding& finding : assembly.findings) alignment.findings.push_back(std::move(finding));
    // The groups come in order of identity.
    if (assembly.tensor) alignment.tensors.emplace_hint(alignment.tensors.end(), group.id, std::move(*assembly.tensor));
  }
  note_unused_patterns(annotations, grouping, alignment.notes);
  note_unmatched_tensors(grouping, alignment.notes);
  return alignment;
}

}  // namespace ttrace
