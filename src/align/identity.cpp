#include "align/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "align/microbatch.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

// What stays the same while the entries of all ranks are sorted into groups.
struct Rules {
  const RankTable& table;
  const Annotations& annotations;
  const Pipeline& pipeline;
  const Experts& experts;
  Microbatches microbatches;
};

struct CanonicalName {
  std::string text;
  bool layer = false;   // renumbered
  bool spans = false;   // of a module that spans the stages
  bool expert = false;  // of one of the experts that are spread over ranks
  bool tied = false;    // a parameter that several names stand for
  std::array<const TensorPlacement*, kKindLast + 1> placements{};
};

struct LocalName {
  CanonicalName* name = nullptr;
  std::size_t tied = 0;  // as in Copy::name
};

// Which part of the model a rank's names are local to.
struct Part {
  std::int64_t stage = 0, chunk = 0, experts = 0;
  friend auto operator<=>(const Part&, const Part&) = default;
};

// A trace has few names and many entries: what depends on a name alone is found once.
struct Names {
  std::unordered_map<std::string, CanonicalName> canonical;
  std::map<Part, std::unordered_map<std::string_view, LocalName>> local;  // the views are into the entries
};

std::int64_t coordinate(const PresentRank& rank, int axis) {
  return axis < 0 ? 0 : rank.place[static_cast<std::size_t>(axis)];
}

CanonicalName canonical_name(const Rules& rules, const Part& part, const std::string& local) {
  CanonicalName name;
  name.text = local;
  name.spans = rules.pipeline.spanning.contains(TensorName(local).path);
  if (auto text = renumbered(rules.pipeline.layers, name.text, part.stage)) {
    name.text = std::move(*text);
    name.layer = true;
  }
  if (auto text = renumbered(rules.experts.experts, name.text, part.experts)) {
    name.text = std::move(*text);
    name.expert = true;
  }
  if (!rules.pipeline.ruled && part.chunk != 0) name.text = fmt::format("model{}.{}", part.chunk, name.text);
  return name;
}

LocalName& find_name(Names& names, const Rules& rules, const PresentRank& rank, const Entry& entry) {
  const Part part{virtual_stage(rules.pipeline, rank, entry), entry.id.chunk, coordinate(rank, rules.experts.axis)};
  LocalName& known = names.local[part][entry.id.name];
  if (known.name == nullptr) {
    CanonicalName name = canonical_name(rules, part, entry.id.name);
    std::tie(name.text, known.tied) = tied_name(rules.annotations, name.text);
    name.tied = std::any_of(rules.annotations.tied.begin(), rules.annotations.tied.end(),
                            [&](const TiedRule& rule) { return matches(rule.of, name.text); });
    known.name = &names.canonical.try_emplace(name.text, std::move(name)).first->second;
  }
  return known;
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
    TensorPlacement placement =
        place(rules.annotations, rules.table.mesh, kind, name.text, name.expert ? rules.experts.axis : -1);
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
  group.expert = name.expert;
  group.sum_copies = name.tied && entry.id.kind == Kind::kParamGrad;
  const Microbatches& microbatches = rules.microbatches;
  if (entry.id.microbatch < 0) return group;
  if (placement->sum_microbatches) {
    group.microbatches = MicrobatchUse::kSummed;
    group.id.microbatch = kNoMicrobatch;
    return group;
  }
  // Where the rule itself says how the tensor lies along the axis, as for a batch cut in parts that the
  // reference runs as one, the micro-batch is the same on all; and so it is on a view without that axis.
  const bool on_view = has_axis(rules.table.views[placement->view].axes, microbatches.axis);
  if (on_view && !names_axis(*placement, microbatches.axis)) {
    group.microbatches = MicrobatchUse::kSelected;
    group.id.microbatch =
        global_microbatch(microbatches, entry.id.iteration, coordinate(rank, microbatches.axis), entry.id.microbatch);
  }
  return group;
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
  grouping.experts = experts_of(table, annotations, grouping.pipeline, layout);
  const Rules rules{table, annotations, grouping.pipeline, grouping.experts, microbatches_of(table, annotations)};
  Names names;
  std::unordered_map<GroupKey, std::size_t, GroupKeyHash> index;
  for (const PresentRank& rank : table.ranks) {
    for (const Entry& entry : rank.trace->entries) {
      const auto& [name, tied] = find_name(names, rules, rank, entry);
      const TensorPlacement* placement = find_placement(rules, *name, rank, entry, grouping);
      Group group = start_group(rules, rank, entry, *name, placement);
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
      const Copy copy{virtual_stage(rules.pipeline, rank, entry), tied};
      const std::int32_t term = group.microbatches == MicrobatchUse::kSummed ? entry.id.microbatch : 0;
      const auto [found, is_new] = index.try_emplace(key, grouping.groups.size());
      if (is_new) {
        group.id.name = name->text;
        grouping.groups.push_back(std::move(group));
      }
      Group& known = grouping.groups[found->second];
      // The first stage of a model may take tokens where the others take hidden states.
      if (known.stages == Stages::kAny) known.stages = stages_of(*name, entry);
      known.shards.push_back({&rank, &entry, copy, term});
    }
  }
  std::sort(grouping.groups.begin(), grouping.groups.end(), [](const Group& a, const Group& b) { return a.id < b.id; });
  grouping.findings = grouping.pipeline.findings;
  const bool counted = std::any_of(grouping.groups.begin(), grouping.groups.end(),
                                   [](const Group& g) { return g.microbatches != MicrobatchUse::kNone; });
  if (counted) {
    for (Finding& finding : find_holes(table, rules.microbatches)) grouping.findings.push_back(std::move(finding));
  }
  return grouping;
}

}  // namespace ttrace
