#include "align/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "align/microbatch.h"
#include "align/names.h"
#include "align/pipeline.h"

namespace ttrace {
namespace {

struct CanonicalName {
  std::string text;
  bool layer = false;  // renumbered
  bool spans = false;  // of a module that spans the stages
  std::array<const TensorPlacement*, kKindLast + 1> placements{};
};

// A trace has few names and many entries: what depends on a name alone is found once.
struct Names {
  std::unordered_map<std::string, CanonicalName> canonical;
  // Stage and chunk, then the local name; the views are into the entries.
  std::map<std::pair<std::int64_t, std::int32_t>, std::unordered_map<std::string_view, CanonicalName*>> local;
};

CanonicalName canonical_name(const Pipeline& pipeline, std::int64_t stage, const TensorId& local) {
  CanonicalName name;
  name.text = local.name;
  if (local.chunk != 0) {
    name.text = fmt::format("model{}.{}", local.chunk, local.name);
  } else if (pipeline.axis >= 0) {
    name.spans = pipeline.spanning.contains(module_path(local.name));
    if (const auto number = layer_number(local.name, pipeline.layers)) {
      const std::int64_t per_stage = pipeline.per_stage.find(number->prefix)->second;
      name.text = with_number(local.name, *number, stage * per_stage + number->value);
      name.layer = true;
    }
  }
  return name;
}

CanonicalName& find_name(Names& names, const Pipeline& pipeline, std::int64_t stage, const TensorId& id) {
  CanonicalName*& known = names.local[{stage, id.chunk}][id.name];
  if (known == nullptr) {
    CanonicalName name = canonical_name(pipeline, stage, id);
    known = &names.canonical.try_emplace(name.text, std::move(name)).first->second;
  }
  return *known;
}

// Between stages flow floating-point numbers; tokens, labels and masks are given to each.
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

// What stays the same while the entries of all ranks are sorted into groups.
struct Rules {
  const RankTable& table;
  const Annotations& annotations;
  Pipeline pipeline;
  Microbatches microbatches;
};

std::int64_t coordinate(const PresentRank& rank, int axis) {
  return axis < 0 ? 0 : rank.place[static_cast<std::size_t>(axis)];
}

const TensorPlacement* find_placement(const Rules& rules, CanonicalName& name, const PresentRank& rank,
                                      const Entry& entry, Grouping& grouping) {
  const Kind kind = entry.id.kind;
  if (entry.mapping && entry.mapping->axes) {
    const auto [found, is_new] = grouping.recorded.try_emplace(entry.mapping.get());
    if (is_new) {
      found->second = place(*entry.mapping, rules.table.mesh,
                            fmt::format("{}: {}", rank.trace->path.string(), to_string(entry.id)));
    }
    return &found->second;
  }
  const TensorPlacement*& known = name.placements[static_cast<std::size_t>(kind)];
  if (known == nullptr) {
    TensorPlacement placement = place(rules.annotations, rules.table.mesh, kind, name.text);
    known = &grouping.placements.emplace(std::pair(name.text, kind), std::move(placement)).first->second;
  }
  return known;
}

// The canonical identity of an entry, and how the group it belongs to starts out.
Group start_group(const Rules& rules, const PresentRank& rank, const Entry& entry, const CanonicalName& name,
                  const TensorPlacement* placement) {
  Group group;
  group.id = {entry.id.iteration, entry.id.microbatch, 0, entry.id.pass, entry.id.kind, {}};
  group.stages = stages_of(name, entry);
  group.placement = placement;
  // Where the rule itself says how the tensor lies along the axis, as for a batch cut in parts that the
  // reference runs as one, the micro-batch is the same on all.
  const Microbatches& microbatches = rules.microbatches;
  if (entry.id.microbatch >= 0 && microbatches.axis >= 0 && !names_axis(*placement, microbatches.axis)) {
    group.selected = true;
    group.id.microbatch =
        global_microbatch(microbatches, entry.id.iteration, coordinate(rank, microbatches.axis), entry.id.microbatch);
  }
  return group;
}

}  // namespace

Grouping group_shards(const RankTable& table, const Annotations& annotations, const ModelLayout& layout) {
  const Rules rules{table, annotations, pipeline_of(table, annotations, layout), microbatches_of(table, annotations)};
  Grouping grouping;
  Names names;
  std::unordered_map<GroupKey, std::size_t, GroupKeyHash> index;
  for (const PresentRank& rank : table.ranks) {
    for (const Entry& entry : rank.trace->entries) {
      CanonicalName& name = find_name(names, rules.pipeline, coordinate(rank, rules.pipeline.axis), entry.id);
      const TensorPlacement* placement = find_placement(rules, name, rank, entry, grouping);
      Group group = start_group(rules, rank, entry, name, placement);
      if (placement->rule != nullptr && placement->rule->local) {
        group.id.name = name.text;
        grouping.local.insert(std::move(group.id));
        continue;
      }
      if (placement->rule != nullptr && placement->rule->rows) {
        grouping.rows.push_back({&rank, &entry, name.text, placement});
        continue;
      }
      const GroupKey key{&name, group.id.iteration, group.id.microbatch, group.id.pass, group.id.kind};
      const auto [found, is_new] = index.try_emplace(key, grouping.groups.size());
      if (is_new) {
        group.id.name = name.text;
        grouping.groups.push_back(std::move(group));
      }
      grouping.groups[found->second].shards.push_back({&rank, &entry});
    }
  }
  std::sort(grouping.groups.begin(), grouping.groups.end(), [](const Group& a, const Group& b) { return a.id < b.id; });
  const bool selected =
      std::any_of(grouping.groups.begin(), grouping.groups.end(), [](const Group& g) { return g.selected; });
  if (selected) grouping.findings = find_holes(table, rules.microbatches);
  return grouping;
}

}  // namespace ttrace
