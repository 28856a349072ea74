#include "align/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "align/names.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

using StageCounts = std::map<std::string, std::vector<std::int64_t>, std::less<>>;

// For each prefix ("decoder.layers"), how many layers each stage holds.
StageCounts count_layers(const RankTable& table, std::size_t axis, std::string_view layers) {
  StageCounts counts;
  for (const PresentRank& rank : table.ranks) {
    for (const Entry& entry : rank.trace->entries) {
      if (entry.id.chunk != 0) continue;
      const auto number = layer_number(entry.id.name, layers);
      if (!number) continue;
      auto found = counts.find(number->prefix);
      if (found == counts.end()) {
        const auto stages = static_cast<std::size_t>(table.mesh.axes[axis].size);
        found = counts.emplace(number->prefix, std::vector<std::int64_t>(stages, 0)).first;
      }
      std::int64_t& count = found->second[static_cast<std::size_t>(rank.place[axis])];
      count = std::max(count, number->value + 1);
    }
  }
  return counts;
}

// A stage all of whose ranks are missing is taken to hold as many as the fullest.
std::int64_t sum_over_stages(const RankTable& table, std::size_t axis, std::vector<std::int64_t> counts) {
  std::vector<bool> present(counts.size(), false);
  for (const PresentRank& rank : table.ranks) present[static_cast<std::size_t>(rank.place[axis])] = true;
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    if (!present[stage]) counts[stage] = most;
  }
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

int stage_axis(const Mesh& mesh, const Annotations& annotations) {
  return axis_index(mesh, annotations.pipeline ? annotations.pipeline->axis : PipelineRule{}.axis);
}

Pipeline pipeline_of(const RankTable& table, const Annotations& annotations, const ModelLayout& layout) {
  Pipeline pipeline;
  const int axis = stage_axis(table.mesh, annotations);
  if (!annotations.pipeline || axis < 0) return pipeline;
  const std::int64_t stages = table.mesh.axes[static_cast<std::size_t>(axis)].size;
  if (stages == 1) return pipeline;
  pipeline.axis = axis;
  pipeline.layers = annotations.pipeline->layers;
  for (const auto& [prefix, counts] : count_layers(table, static_cast<std::size_t>(axis), pipeline.layers)) {
    const auto known = layout.layer_counts.find(prefix);
    const std::int64_t total = known != layout.layer_counts.end()
                                   ? known->second
                                   : sum_over_stages(table, static_cast<std::size_t>(axis), counts);
    if (total % stages != 0) {
      throw InputError(
          fmt::format("{}:{}: 'parallelism': pipeline: {} layers of {} do not divide into {} stages; "
                      "expected a multiple of {}",
                      annotations.path.empty() ? "annotations" : annotations.path, annotations.pipeline->line, total,
                      printable(prefix), stages, stages));
    }
    pipeline.per_stage.emplace(prefix, total / stages);
    pipeline.spanning.emplace(kRootModule);
    for (std::size_t dot = prefix.find('.'); dot != prefix.npos; dot = prefix.find('.', dot + 1)) {
      pipeline.spanning.insert(prefix.substr(0, dot));
    }
    pipeline.spanning.insert(prefix);
  }
  return pipeline;
}

}  // namespace ttrace
