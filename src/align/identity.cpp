#include "align/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "align/input_names.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

// Everything that stays the same while the entries of all ranks are sorted into groups.
struct GroupingContext {
  const RankTable& table;
  const Annotations& annotations;
  const Pipeline& pipeline;
  const Experts& experts;
  const Microbatches& microbatches;
  const ModelLayout& layout;
};

struct CanonicalName {
  std::string text;
  bool layer = false;   // it has a layer's number, now global
  bool spans = false;   // its module spans the stages
  bool expert = false;  // it belongs to one of the experts that are spread over ranks
  bool tied = false;    // it is a parameter that the program has under several names
  std::array<const TensorPlacement*, kKindLast + 1> placements{};
};

struct LocalName {
  CanonicalName* name = nullptr;
  std::size_t tied = 0;  // `Occurrence::name`
};

// The part of the model that a rank's names are local to.
struct Part {
  std::int64_t stage = 0, chunk = 0, experts = 0;
  friend auto operator<=>(const Part&, const Part&) = default;
};

bool is_input(Kind kind) { return kind == Kind::kInput || kind == Kind::kGradInput; }

// Caches everything that depends on a name alone: a trace has few names and many entries.
struct Names {
  std::unordered_map<std::string, CanonicalName> canonical;
  // By part, and whether they are names of inputs. The keys inside point into the entries.
  std::map<std::pair<Part, bool>, std::unordered_map<std::string_view, LocalName>> local;
};

bool is_in_divided_layer(const Pipeline& pipeline, const std::string& name) {
  if (pipeline.divided.empty()) return false;
  for (auto number = number_in(name); number; number = number_in(name, number->end)) {
    if (pipeline.divided.contains(number->prefix)) return true;
  }
  return false;
}

CanonicalName canonical_name(const GroupingContext& context, const Part& part, Kind kind, const std::string& local) {
  CanonicalName name;
  name.text = local;
  name.spans = context.pipeline.spanning.contains(TensorName(local).path);
  if (auto text = renumbered(context.pipeline.layers, name.text, part.stage)) {
    name.text = std::move(*text);
    name.layer = true;
  }
  name.text = with_global_call(context.pipeline, name.text, part.stage);
  name.layer = name.layer || is_in_divided_layer(context.pipeline, name.text);
  if (auto text = renumbered(context.experts.experts, name.text, part.experts)) {
    name.text = std::move(*text);
    name.expert = true;
  }
  if (!context.pipeline.ruled && part.chunk != 0) name.text = fmt::format("model{}.{}", part.chunk, name.text);
  name.text = name_of_input(name.text, kind, context.layout);
  return name;
}

LocalName& find_name(Names& names, const GroupingContext& context, const PresentRank& rank, const Entry& entry) {
  const Part part{virtual_stage(context.pipeline, rank, entry), entry.id.chunk,
                  coordinate_on(rank, context.experts.axis)};
  LocalName& known = names.local[{part, is_input(entry.id.kind)}][entry.id.name];
  if (known.name == nullptr) {
    CanonicalName name = canonical_name(context, part, entry.id.kind, entry.id.name);
    std::tie(name.text, known.tied) = tied_name(context.annotations, name.text);
    name.tied = std::any_of(context.annotations.tied.begin(), context.annotations.tied.end(),
                            [&](const TiedRule& rule) { return matches(rule.of, name.text); });
    known.name = &names.canonical.try_emplace(name.text, std::move(name)).first->second;
  }
  return known;
}

// Only floating-point tensors flow from stage to stage; tokens, labels and masks are given to each stage.
Stages stages_of(const CanonicalName& name, const Entry& entry) {
  if (name.layer) return Stages::kOne;
  if (!name.spans || !is_floating(entry.dtype)) return Stages::kAny;
  const Kind kind = entry.id.kind;
  if (kind == Kind::kInput || kind == Kind::kGradInput) return Stages::kFirst;
  if (kind == Kind::kOutput || kind == Kind::kGradOutput) return Stages::kLast;
  return Stages::kAny;
}

struct GroupKey {
  const CanonicalName* name;
  std::int32_t iteration, microbatch;
  Pass pass;
  Kind kind;
  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};

struct GroupKeyHash {
  std::size_t operator()(const GroupKey& key) const {
    std::size_t hash = std::hash<const void*>()(key.name);
    for (const std::int64_t part : {std::int64_t{key.iteration}, std::int64_t{key.microbatch},
                                    static_cast<std::int64_t>(key.pass) * 256 + static_cast<std::int64_t>(key.kind)}) {
      hash = (hash ^ static_cast<std::size_t>(part)) * 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
      hash ^= hash >> 32;
    }
    return hash;
  }
};

const TensorPlacement* find_placement(const GroupingContext& context, CanonicalName& name, const PresentRank& rank,
                                      const Entry& entry, Grouping& grouping) {
  const Kind kind = entry.id.kind;
  if (entry.mapping && entry.mapping->axes) {
    const auto [found, is_new] = grouping.recorded.try_emplace(entry.mapping.get());
    if (is_new) {
      found->second = placement_as_recorded(*entry.mapping, context.table.mesh,
                                            fmt::format("{}: {}", rank.trace->path.string(), to_string(entry.id)));
    }
    return &found->second;
  }
  const TensorPlacement*& known = name.placements[static_cast<std::size_t>(kind)];
  if (known == nullptr) {
    TensorPlacement placement = placement_by_rules(context.annotations, context.table.mesh, kind, name.text,
                                                   name.expert ? context.experts.axis : -1);
    known = &grouping.placements.emplace(std::pair(name.text, kind), std::move(placement)).first->second;
  }
  return known;
}

// Keeps the shards of the first or the last stage where the tensor flows into or out of a module that spans the
// stages: on the other stages it flows between the module's layers. None are left when that stage holds none.
void keep_end_stage(Group& group, const Pipeline& pipeline) {
  if (group.stages != Stages::kFirst && group.stages != Stages::kLast) return;
  const std::int64_t end = group.stages == Stages::kFirst ? 0 : pipeline.last_stage;
  std::erase_if(group.shards, [&](const Shard& shard) { return shard.occurrence.stage != end; });
}

// An empty group with the canonical identity of the entry, but for its name.
Group start_group(const GroupingContext& context, const PresentRank& rank, const Entry& entry,
                  const CanonicalName& name, const TensorPlacement* placement) {
  Group group;
  group.id = {entry.id.iteration, entry.id.microbatch, 0, entry.id.pass, entry.id.kind, {}};
  group.stages = stages_of(name, entry);
  group.placement = placement;
  group.expert = name.expert;
  const bool is_shared = name.tied || context.pipeline.calls_before.contains(owner_of(name.text));
  group.sum_occurrences = is_shared && entry.id.kind == Kind::kParamGrad;
  const Microbatches& microbatches = context.microbatches;
  if (entry.id.microbatch < 0) return group;
  if (placement->sum_microbatches) {
    group.microbatches = MicrobatchUse::kSummed;
    group.id.microbatch = kNoMicrobatch;
    return group;
  }
  // The ranks along the micro-batch axes run different micro-batches, unless the rule itself says how the tensor lies
  // along one of them (as for a batch cut in parts that the reference runs as one), or the tensor lies on a factoring
  // without it.
  const std::vector<std::size_t>& factoring = context.table.factorings[placement->factoring].axes;
  const bool selects = microbatches.order != MicrobatchOrder::kSlices && !microbatches.axes.empty() &&
                       std::all_of(microbatches.axes.begin(), microbatches.axes.end(), [&](int axis) {
                         return has_axis(factoring, axis) && !names_axis(*placement, axis);
                       });
  if (selects) {
    group.microbatches = MicrobatchUse::kSelected;
    group.id.microbatch = global_microbatch(microbatches, entry.id.iteration,
                                            coordinate_on(rank, context.table, microbatches), entry.id.microbatch);
  }
  return group;
}

// Gives what the ranks say of their own names the canonical ones.
NotSeenTensors not_seen_by(const GroupingContext& context) {
  NotSeenTensors all;
  for (const PresentRank& rank : context.table.ranks) {
    for (const NotSeen& statement : rank.trace->not_seen) {
      if (statement.everything) {
        all.add_everything(statement);
        continue;
      }
      Entry entry;
      entry.id.chunk = statement.chunk;
      const Part part{virtual_stage(context.pipeline, rank, entry), statement.chunk,
                      coordinate_on(rank, context.experts.axis)};
      // Of several kinds, which share a name, those of inputs go by the name that the others have.
      const Kind kind =
          std::all_of(statement.kinds.begin(), statement.kinds.end(), is_input) ? Kind::kInput : Kind::kOutput;
      const auto canonical = [&](const std::string& name, Kind of) {
        return tied_name(context.annotations, canonical_name(context, part, of, name).text).first;
      };
      for (const std::string& name : statement.tensors) all.add_tensor(statement, canonical(name, kind));
      // What is called as a module's input has one name or another; the module has one.
      for (const std::string& name : statement.modules) all.add_module(statement, canonical(name, Kind::kOutput));
    }
  }
  return all;
}

}  // namespace

std::pair<std::string, std::size_t> tied_name(const Annotations& annotations, const std::string& name) {
  for (std::size_t i = 0; i < annotations.tied.size(); ++i) {
    const TiedRule& rule = annotations.tied[i];
    if (matches(rule.name, name)) return {name.substr(0, name.size() - rule.name.size()) + rule.of, i + 1};
  }
  return {name, 0};
}

Grouping group_shards(const RankTable& table, const Annotations& annotations, const ModelLayout& layout) {
  Grouping grouping;
  grouping.pipeline = pipeline_of(table, annotations, layout);
  number_calls(table, layout, grouping.pipeline);
  grouping.experts = experts_of(table, annotations, grouping.pipeline, layout);
  grouping.microbatches = microbatches_of(table, annotations, layout);
  grouping.known_axes = annotations.known_axes;
  const GroupingContext context{table, annotations, grouping.pipeline, grouping.experts, grouping.microbatches, layout};
  Names names;
  std::unordered_map<GroupKey, std::size_t, GroupKeyHash> index;
  for (const PresentRank& rank : table.ranks) {
    for (const Entry& entry : rank.trace->entries) {
      const auto& [name, tied] = find_name(names, context, rank, entry);
      const TensorPlacement* placement = find_placement(context, *name, rank, entry, grouping);
      Group group = start_group(context, rank, entry, *name, placement);
      if (placement->rule != nullptr && placement->rule->local) {
        group.id.name = name->text;
        grouping.local.insert(std::move(group.id));
        continue;
      }
      if (placement->rule != nullptr && placement->rule->rows) {
        grouping.rows.push_back({&rank, &entry, name->text, placement});
        continue;
      }
      const GroupKey key{name, group.id.iteration, group.id.microbatch, group.id.pass, group.id.kind};
      const Occurrence occurrence{virtual_stage(context.pipeline, rank, entry), tied};
      const std::int32_t term = group.microbatches == MicrobatchUse::kSummed ? entry.id.microbatch : 0;
      const auto [found, is_new] = index.try_emplace(key, grouping.groups.size());
      if (is_new) {
        group.id.name = name->text;
        grouping.groups.push_back(std::move(group));
      }
      Group& known = grouping.groups[found->second];
      // The first stage of a model may take integer tokens where the others take hidden states.
      if (known.stages == Stages::kAny) known.stages = stages_of(*name, entry);
      known.shards.push_back({&rank, &entry, occurrence, term});
    }
  }
  std::sort(grouping.groups.begin(), grouping.groups.end(), [](const Group& a, const Group& b) { return a.id < b.id; });
  for (Group& group : grouping.groups) keep_end_stage(group, grouping.pipeline);
  grouping.not_seen = not_seen_by(context);
  grouping.findings = grouping.pipeline.findings;
  const bool counted = std::any_of(grouping.groups.begin(), grouping.groups.end(),
                                   [](const Group& g) { return g.microbatches != MicrobatchUse::kNone; });
  if (counted) {
    for (Finding& finding : find_skipped_microbatches(table, context.microbatches))
      grouping.findings.push_back(std::move(finding));
  }
  return grouping;
}

}  // namespace ttrace
