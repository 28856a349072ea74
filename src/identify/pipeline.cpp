#include "identify/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/describe.h"
#include "base/error.h"
#include "base/tensor_name.h"
#include "identify/division.h"

namespace ttrace {
namespace {

constexpr std::int64_t kMaxVirtualStages = 1 << 20;  // keeps a trace that claims more from making us allocate memory

// Counts the chunks, and finds ranks that ran fewer than others. Ranks that crashed have a finding already.
void count_chunks(const RankTable& table, const Census& census, Pipeline& pipeline) {
  std::vector<std::int64_t> counts(table.ranks.size(), 1);
  for (const Section& section : census.sections) {
    for (const RankEntries& of_rank : section.ranks) {
      std::int64_t& count = counts[static_cast<std::size_t>(of_rank.rank - table.ranks.data())];
      count = std::max(count, std::int64_t{of_rank.last_chunk} + 1);
    }
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > kMaxVirtualStages / pipeline.stages) {
      throw InputError(fmt::format("{}: {} model chunks on {} pipeline stages; expected at most {} in all",
                                   table.ranks[i].trace->path.string(), counts[i], pipeline.stages, kMaxVirtualStages));
    }
    pipeline.chunks = std::max(pipeline.chunks, counts[i]);
  }
  std::vector<std::int32_t> behind;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const RankTrace& rank = *table.ranks[i].trace;
    if (counts[i] < pipeline.chunks && rank.is_whole()) behind.push_back(rank.rank);
  }
  if (behind.empty()) return;
  Finding finding;
  finding.verdict = Verdict::kMissing;
  finding.reason = Reason::kOmission;
  finding.message =
      fmt::format("{} ran fewer than the {} model chunks of the others", describe_ranks(behind), pipeline.chunks);
  finding.ranks = std::move(behind);
  pipeline.findings.push_back(std::move(finding));
}

// Makes the count of a virtual stage no less than `least`.
void raise_count(PartCounts& counts, std::string_view what, const Pipeline& pipeline, std::int64_t stage,
                 std::int64_t least) {
  auto found = counts.find(what);
  if (found == counts.end()) {
    const auto parts = static_cast<std::size_t>(pipeline.virtual_stages());
    found = counts.emplace(what, std::vector<std::int64_t>(parts, 0)).first;
  }
  std::int64_t& count = found->second[static_cast<std::size_t>(stage)];
  count = std::max(count, least);
}

PartCounts count_layers(const Census& census, const Pipeline& pipeline) {
  PartCounts counts;
  for (const auto& [rank, entry] : census.roles) {
    const auto number = layer_number(entry->id.name, pipeline.layers.layers);
    if (!number) continue;
    raise_count(counts, number->prefix, pipeline, virtual_stage(pipeline, *rank, *entry), number->value + 1);
  }
  return counts;
}

// Tells for each virtual stage whether one of its ranks left a file.
std::vector<bool> present_stages(const RankTable& table, const Pipeline& pipeline) {
  std::vector<bool> present(static_cast<std::size_t>(pipeline.virtual_stages()), false);
  for (const PresentRank& rank : table.ranks) {
    const std::int64_t stage = coordinate_on(rank, pipeline.axis);
    for (std::int64_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
      present[static_cast<std::size_t>(chunk * pipeline.stages + stage)] = true;
    }
  }
  return present;
}

// Adds the modules around the layers, which span the stages.
void add_spanning_modules(std::string_view prefix, Pipeline& pipeline) {
  for (std::string_view module = prefix; module != kRootModule; module = owner_of(module)) {
    pipeline.spanning.emplace(module);
  }
  pipeline.spanning.emplace(kRootModule);
}

// With global names, the layers of a prefix are divided where two virtual stages hold different ones. A module that
// only one of them has, such as a layer's experts, is not.
void find_divided_layers(const Census& census, Pipeline& pipeline) {
  std::map<std::string, std::map<std::int64_t, std::set<std::int64_t>>, std::less<>> held;  // by prefix, then stage
  for (const auto& [rank, entry] : census.roles) {
    for (auto number = number_in(entry->id.name); number; number = number_in(entry->id.name, number->end)) {
      held[std::string(number->prefix)][virtual_stage(pipeline, *rank, *entry)].insert(number->value);
    }
  }
  for (const auto& [prefix, by_stage] : held) {
    const auto& layers = by_stage.begin()->second;
    const bool same =
        std::all_of(by_stage.begin(), by_stage.end(), [&](const auto& stage) { return stage.second == layers; });
    if (same) continue;
    pipeline.divided.insert(prefix);
    add_spanning_modules(prefix, pipeline);
  }
}

// Returns the chunks that one stage alone runs, where the stages run several: models of their own.
std::set<std::int64_t> find_undivided(const Census& census, const Pipeline& pipeline) {
  std::map<std::int32_t, std::set<std::int64_t>> stages;  // by chunk
  for (const auto& [rank, entry] : census.roles) {
    stages[entry->id.chunk].insert(virtual_stage(pipeline, *rank, *entry));
  }
  std::set<std::int64_t> undivided;
  for (const auto& [chunk, of_chunk] : stages) {
    if (stages.size() > 1 && of_chunk.size() == 1) undivided.insert(chunk);
  }
  return undivided;
}

// The name of what a module outside all layers is given or returns; nothing for another tensor. Both are looked at,
// because a rule may declare one of them local.
std::optional<TensorName> call_outside_layers(const TensorId& id) {
  if ((id.kind != Kind::kInput && id.kind != Kind::kOutput) || id.pass != Pass::kForward) return std::nullopt;
  const TensorName name(id.name);
  return number_in(name.path) ? std::nullopt : std::optional(name);
}

}  // namespace

void number_calls(const Census& census, const ModelLayout& layout, Pipeline& pipeline) {
  if (pipeline.virtual_stages() == 1 || layout.reference == nullptr) return;
  PartCounts counts;
  for (const auto& [rank, entry] : census.roles) {
    const auto name = call_outside_layers(entry->id);
    if (!name) continue;
    raise_count(counts, name->path, pipeline, virtual_stage(pipeline, *rank, *entry), number_of_call(*name) + 1);
  }
  std::map<std::string, std::int64_t, std::less<>> calls;  // of the reference
  for (const auto& [id, tensor] : layout.reference->tensors) {
    const auto name = call_outside_layers(id);
    if (!name) continue;
    std::int64_t& count = calls[std::string(name->path)];
    count = std::max(count, number_of_call(*name) + 1);
  }
  for (const auto& [module, by_stage] : counts) {
    const auto whole = calls.find(module);
    const std::int64_t all = std::accumulate(by_stage.begin(), by_stage.end(), std::int64_t{0});
    const bool is_shared = *std::max_element(by_stage.begin(), by_stage.end()) < all;
    if (whole != calls.end() && whole->second == all && is_shared) {
      pipeline.calls_before.emplace(module, starts_of(by_stage));
    }
  }
}

std::string with_global_call(const Pipeline& pipeline, const std::string& text, std::int64_t virtual_stage) {
  if (pipeline.calls_before.empty()) return text;
  const TensorName name(text);
  const auto found = pipeline.calls_before.find(name.path);
  if (found == pipeline.calls_before.end()) return text;
  const std::int64_t call = found->second[static_cast<std::size_t>(virtual_stage)] + number_of_call(name);
  return call_of(std::string(name.path) + std::string(name.member), static_cast<std::size_t>(call));
}

Pipeline pipeline_of(const RankTable& table, const Census& census, const ResolvedAnnotations& annotations,
                     const ModelLayout& layout) {
  Pipeline pipeline;
  pipeline.axis = annotations.stage_axis.index;
  pipeline.stages = annotations.stage_axis.size;
  // The whole model spans the stages, whatever its layers are called.
  if (pipeline.stages > 1) pipeline.spanning.emplace(kRootModule);
  pipeline.last_stage = pipeline.stages - 1;
  if (!annotations.said.pipeline) {
    if (pipeline.stages > 1) pipeline.undivided = find_undivided(census, pipeline);
    return pipeline;
  }
  const PipelineRule& rule = *annotations.said.pipeline;
  pipeline.ruled = true;
  count_chunks(table, census, pipeline);
  const bool ends_on_first = rule.v_shaped && pipeline.chunks % 2 == 0;
  pipeline.last_stage = ends_on_first ? (pipeline.chunks - 1) * pipeline.stages : pipeline.virtual_stages() - 1;
  if (pipeline.virtual_stages() == 1) return pipeline;
  if (rule.global_names) {
    find_divided_layers(census, pipeline);
    return pipeline;
  }
  pipeline.layers.layers = rule.layers;
  const std::string at = fmt::format("{}: 'parallelism': pipeline", to_string(rule.source));
  const std::vector<bool> present = present_stages(table, pipeline);
  for (const auto& [prefix, counts] : count_layers(census, pipeline)) {
    const auto known = layout.layer_counts.find(prefix);
    const std::int64_t held = sum_of_parts(counts, present);
    const std::int64_t total = known != layout.layer_counts.end() ? known->second : held;
    const Division division{prefix, total, pipeline.stages, pipeline.chunks, held};
    if (must_round(rule, division)) {
      pipeline.layers.starts.emplace(prefix, rounded_starts(division));
      pipeline.notes.push_back(describe_rounding(division, at));
    } else {
      pipeline.layers.starts.emplace(prefix, starts_of(divide(rule, division, at)));
    }
    add_spanning_modules(prefix, pipeline);
  }
  return pipeline;
}

std::int64_t virtual_stage(const Pipeline& pipeline, const PresentRank& rank, const Entry& entry) {
  const std::int64_t stage = coordinate_on(rank, pipeline.axis);
  return pipeline.ruled ? entry.id.chunk * pipeline.stages + stage : stage;
}

std::string describe_stage(const Pipeline& pipeline, std::int64_t virtual_stage) {
  const std::string stage = fmt::format("stage {}", virtual_stage % pipeline.stages);
  return pipeline.chunks == 1 ? stage : fmt::format("{}, chunk {}", stage, virtual_stage / pipeline.stages);
}

}  // namespace ttrace
