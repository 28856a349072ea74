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

Stages stages_of(const CanonicalName& name, Kind kind) {
  if (name.layer) return Stages::kOne;
  if (!name.spans) return Stages::kAny;
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

}  // namespace

Grouping group_shards(const RankTable& table, const Annotations& annotations, const ModelLayout& layout) {
  const Pipeline pipeline = pipeline_of(table, annotations, layout);
  const Microbatches microbatches = microbatches_of(table, annotations);
  const auto coordinate = [](const PresentRank& rank, int axis) {
    return axis < 0 ? 0 : rank.place[static_cast<std::size_t>(axis)];
  };
  Grouping grouping;
  Names names;
  std::unordered_map<GroupKey, std::size_t, GroupKeyHash> index;
  bool any_selected = false;
  for (const PresentRank& rank : table.ranks) {
    for (const Entry& entry : rank.trace->entries) {
      const TensorId& local = entry.id;
      CanonicalName& name = find_name(names, pipeline, coordinate(rank, pipeline.axis), local);
      const TensorPlacement*& placement = name.placements[static_cast<std::size_t>(local.kind)];
      if (placement == nullptr) {
        placement =
            &grouping.placements
                 .emplace(std::pair(name.text, local.kind), place(annotations, table.mesh, local.kind, name.text))
                 .first->second;
      }
      // Where the rule itself says how the tensor lies along the axis, as for a batch cut in parts that
      // the reference runs as one, the micro-batch is the same on all.
      const bool selected =
          local.microbatch >= 0 && microbatches.axis >= 0 && !names_axis(*placement, microbatches.axis);
      any_selected = any_selected || selected;
      const std::int32_t microbatch =
          selected
              ? global_microbatch(microbatches, local.iteration, coordinate(rank, microbatches.axis), local.microbatch)
              : std::max(local.microbatch, kNoMicrobatch);
      const auto [found, is_new] =
          index.try_emplace({&name, local.iteration, microbatch, local.pass, local.kind}, grouping.groups.size());
      if (is_new) {
        Group group;
        group.id = {local.iteration, microbatch, 0, local.pass, local.kind, name.text};
        group.stages = stages_of(name, local.kind);
        group.selected = selected;
        group.placement = placement;
        grouping.groups.push_back(std::move(group));
      }
      grouping.groups[found->second].shards.push_back({&rank, &entry});
    }
  }
  std::sort(grouping.groups.begin(), grouping.groups.end(), [](const Group& a, const Group& b) { return a.id < b.id; });
  if (any_selected) grouping.findings = find_holes(table, microbatches);
  return grouping;
}

}  // namespace ttrace
