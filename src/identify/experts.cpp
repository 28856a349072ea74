#include "identify/experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/tensor_name.h"

namespace ttrace {
namespace {

// Counts the experts of each coordinate of the axis. The prefixes have global layer numbers, which are worked out last:
// there are many roles for each prefix.
PartCounts count_experts(const RankTable& table, const Census& census, const Experts& experts,
                         const Pipeline& pipeline) {
  const std::size_t axis = static_cast<std::size_t>(experts.axis);
  const auto parts = static_cast<std::size_t>(table.axes[axis].size);
  std::map<std::int64_t, PartCounts> by_stage;
  for (const auto& [rank, entry] : census.roles) {
    const auto number = layer_number(entry->id.name, experts.experts.layers);
    if (!number) continue;
    PartCounts& counts = by_stage[virtual_stage(pipeline, *rank, *entry)];
    auto found = counts.find(number->prefix);
    if (found == counts.end()) {
      found = counts.emplace(number->prefix, std::vector<std::int64_t>(parts, 0)).first;
    }
    std::int64_t& count = found->second[static_cast<std::size_t>(rank->coordinates[axis])];
    count = std::max(count, number->value + 1);
  }
  PartCounts global;
  for (const auto& [stage, counts] : by_stage) {
    for (const auto& [prefix, of_prefix] : counts) {
      const std::string name = renumbered(pipeline.layers, prefix, stage).value_or(prefix);
      std::vector<std::int64_t>& sums = global.try_emplace(name, parts, 0).first->second;
      for (std::size_t part = 0; part < parts; ++part) sums[part] = std::max(sums[part], of_prefix[part]);
    }
  }
  return global;
}

}  // namespace

Experts experts_of(const RankTable& table, const Census& census, const ResolvedAnnotations& annotations,
                   const Pipeline& pipeline, const ModelLayout& layout) {
  Experts experts;
  const std::int64_t parts = annotations.expert_axis.value_or(ResolvedAxis()).size;
  if (parts == 1) return experts;
  const ExpertRule& rule = *annotations.said.experts;
  experts.axis = annotations.expert_axis->index;
  experts.experts.layers = rule.layers;
  for (const auto& [prefix, counts] : count_experts(table, census, experts, pipeline)) {
    const auto known = layout.layer_counts.find(prefix);
    if (known != layout.layer_counts.end() && known->second % parts != 0) {
      throw InputError(
          fmt::format("{}: 'parallelism': experts: {} experts of {} do not divide into {} parts along {}; "
                      "expected a multiple of {}",
                      to_string(rule.source), known->second, printable(prefix), parts, rule.axis, parts));
    }
    const std::int64_t share =
        known != layout.layer_counts.end() ? known->second / parts : *std::max_element(counts.begin(), counts.end());
    experts.experts.starts.emplace(prefix, starts_of(std::vector<std::int64_t>(counts.size(), share)));
  }
  return experts;
}

}  // namespace ttrace
