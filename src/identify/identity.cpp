// Entries become shards of groups in four steps. Roles are named, one after the other; all threads draft the groups of
// their sections; the drafts of one identity are joined, and sorted; all threads put their entries into the groups. What
// is done one after the other is for each role, and for each group of each section.
#include "identify/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/parallel_for.h"
#include "base/tensor_name.h"
#include "identify/naming.h"

namespace ttrace {
namespace {

constexpr auto kNoGroup = std::numeric_limits<std::uint32_t>::max();

// What all entries of one role have in common.
struct NamedRole {
  const CanonicalName* name = nullptr;
  Occurrence occurrence{};
  const TensorPlacement* placement = nullptr;         // null where each entry's mapping says it
  MicrobatchUse microbatches = MicrobatchUse::kNone;  // by this placement, of an entry of a micro-batch
};

// Only floating-point tensors flow from stage to stage; tokens, labels and masks are given to each stage.
Stages stages_of(const CanonicalName& name, const Entry& entry) {
  if (name.layer) return Stages::kOne;
  if (!name.spans || !is_floating(entry.dtype)) return Stages::kAny;
  const Kind kind = entry.id.kind;
  if (kind == Kind::kInput || kind == Kind::kGradInput) return Stages::kFirst;
  if (kind == Kind::kOutput || kind == Kind::kGradOutput) return Stages::kLast;
  return Stages::kAny;
}

// In the order of `Group::id`.
struct GroupKey {
  std::int32_t iteration, microbatch;
  Pass pass;
  Kind kind;
  std::uint32_t name;  // `CanonicalName::place`
  friend auto operator<=>(const GroupKey&, const GroupKey&) = default;
};

struct GroupKeyHash {
  std::size_t operator()(const GroupKey& key) const {
    std::size_t hash = key.name;
    for (const std::int64_t part : {std::int64_t{key.iteration}, std::int64_t{key.microbatch},
                                    static_cast<std::int64_t>(key.pass) * 256 + static_cast<std::int64_t>(key.kind)}) {
      hash = (hash ^ static_cast<std::size_t>(part)) * 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
      hash ^= hash >> 32;
    }
    return hash;
  }
};

TensorId id_of(const GroupKey& key, const CanonicalNames& names) {
  return {key.iteration, key.microbatch, 0, key.pass, key.kind, names.at(key.name).text};
}

// The tensors of lists, and of calls, that are of samples, as each coordinate on the micro-batch axes numbers them.
class ElementsOfSamples {
 public:
  struct Place {
    std::uint32_t name = 0;  // of the reference's tensor: `CanonicalName::place`
    bool guessed = false;
  };

  // `names` are sorted.
  ElementsOfSamples(const SampleLists& lists, const CanonicalNames& names) {
    for (const auto& [own, element] : lists.elements()) {
      const auto& [coordinate, id] = own;
      const CanonicalName* name = names.find(id.name.get());
      if (name == nullptr) continue;
      const Key key{coordinate, {id.iteration, id.microbatch, id.pass, id.kind, name->place}};
      places_[key] = {names.find(element.name)->place, element.guessed};
    }
  }

  // Null where the entry with this key, by its rank's name, is of no such list.
  const Place* find(std::int64_t coordinate, GroupKey key) const {
    if (places_.empty()) return nullptr;
    key.pass = Pass::kForward;
    key.kind = kind_of_value(key.kind);
    const auto found = places_.find({coordinate, key});
    return found == places_.end() ? nullptr : &found->second;
  }

 private:
  using Key = std::pair<std::int64_t, GroupKey>;
  std::map<Key, Place> places_;
};

// Adds the reference's names of elements that ranks number otherwise.
void add_names_of_elements(const SampleLists& lists, const ModelLayout& layout, CanonicalNames& names) {
  for (const auto& [own, element] : lists.elements()) {
    const CanonicalName* name = names.find(own.second.name.get());
    if (name != nullptr) names.add_like(*name, element.name, layout);
  }
}

// The placements that the program recorded, each worked out once. All threads ask for them.
class RecordedPlacements {
 public:
  RecordedPlacements(const ResolvedAnnotations& annotations, std::map<const RecordedMapping*, TensorPlacement>& known)
      : annotations_(annotations), known_(known) {}

  const TensorPlacement* find(const PresentRank& rank, const Entry& entry) {
    const std::lock_guard lock(busy_);
    const auto [found, is_new] = known_.try_emplace(entry.mapping.get());
    if (is_new) {
      found->second = placement_as_recorded(*entry.mapping, annotations_,
                                            fmt::format("{}: {}", rank.trace->path.string(), to_string(entry.id)));
    }
    return &found->second;
  }

 private:
  const ResolvedAnnotations& annotations_;
  std::map<const RecordedMapping*, TensorPlacement>& known_;
  std::mutex busy_;
};

// How the entries of a micro-batch use the axes whose ranks run different ones.
MicrobatchUse microbatch_use(const GroupingContext& context, const TensorPlacement& placement) {
  if (placement.sum_microbatches) return MicrobatchUse::kSummed;
  // The ranks along the micro-batch axes run different micro-batches, unless the rule itself says how the tensor lies
  // along one of them (as for a batch cut in parts that the reference runs as one), or the tensor lies on a factoring
  // without it.
  const Microbatches& microbatches = context.microbatches;
  const std::vector<std::size_t>& factoring = context.table.factorings[placement.factoring].axes;
  const bool selects = microbatches.order != MicrobatchOrder::kSlices && !microbatches.axes.empty() &&
                       std::all_of(microbatches.axes.begin(), microbatches.axes.end(),
                                   [&](int axis) { return has_axis(factoring, axis) && !names_axis(placement, axis); });
  return selects ? MicrobatchUse::kSelected : MicrobatchUse::kNone;
}

const TensorPlacement* find_placement(const GroupingContext& context, CanonicalName& name, Kind kind,
                                      Grouping& grouping) {
  const TensorPlacement*& known = name.placements[static_cast<std::size_t>(kind)];
  if (known == nullptr) {
    TensorPlacement placement =
        placement_by_rules(context.annotations, kind, name.text, name.expert ? context.experts.axis : -1);
    known = &grouping.placements.emplace(std::pair(name.text, kind), std::move(placement)).first->second;
  }
  return known;
}

std::vector<NamedRole> name_roles(const GroupingContext& context, const Census& census, CanonicalNames& names,
                                  Grouping& grouping) {
  std::vector<NamedRole> named;
  for (const auto& [rank, entry] : census.roles) {
    const auto [name, tied] = names.find(context, *rank, *entry);
    NamedRole& role = named.emplace_back();
    role.name = name;
    role.occurrence = {virtual_stage(context.pipeline, *rank, *entry), tied};
    const Kind kind = entry->id.kind;
    const auto shape = context.layout.shapes.find({name->text, kind});
    if (shape != context.layout.shapes.end()) name->shapes[static_cast<std::size_t>(kind)] = &shape->second;
    if (is_placed_by_program(*entry)) continue;
    role.placement = find_placement(context, *name, kind, grouping);
    role.microbatches = microbatch_use(context, *role.placement);
  }
  add_names_of_elements(context.microbatches.lists, context.layout, names);
  names.sort();
  return named;
}

// A group to be.
struct GroupDraft {
  GroupKey key;
  std::uint32_t number = 0;  // among the drafts, in the order of their first shards
  const TensorPlacement* placement = nullptr;
  std::size_t shards = 0;  // how many it has
  Stages stages = Stages::kAny;
  MicrobatchUse microbatches = MicrobatchUse::kNone;
  const ElementsOfSamples::Place* of_sample = nullptr;  // where its shards are elements of lists of samples
};

// What becomes of one section's entries.
struct DraftedSection {
  std::vector<GroupDraft> drafts;
  std::vector<std::uint32_t> draft_of;  // by entry; kNoGroup where it is in none
  std::unordered_set<GroupKey, GroupKeyHash> local;
  std::vector<RowShard> rows;
  // Of each draft, the place of its group, and of its next shard there; set by `join_drafts`.
  std::vector<std::uint32_t> group;
  std::vector<std::size_t> next;
};

class SectionDrafter {
 public:
  SectionDrafter(const GroupingContext& context, const std::vector<NamedRole>& roles, const ElementsOfSamples& elements,
                 RecordedPlacements& recorded)
      : context_(context), roles_(roles), elements_(elements), recorded_(recorded) {}

  DraftedSection draft(const Section& section) {
    drafted_.draft_of.reserve(section.roles.size());
    auto role = section.roles.begin();
    for (const RankEntries& of_rank : section.ranks) {
      const std::int64_t coordinate = coordinate_on(*of_rank.rank, context_.table, context_.microbatches);
      for (const Entry& entry : of_rank.entries) {
        drafted_.draft_of.push_back(add(*of_rank.rank, coordinate, entry, roles_[*role++]));
      }
    }
    return std::move(drafted_);
  }

 private:
  // Returns the number of the entry's draft, or kNoGroup. `coordinate` is the rank's among those of the micro-batches.
  std::uint32_t add(const PresentRank& rank, std::int64_t coordinate, const Entry& entry, const NamedRole& role) {
    const TensorPlacement* placement = role.placement;
    MicrobatchUse use = role.microbatches;
    if (placement == nullptr) {
      placement = recorded_placement(rank, entry);
      use = microbatch_use(context_, *placement);
    }
    const TensorId& id = entry.id;
    const auto shared = context_.microbatches.microbatch_of_shared(id, coordinate, role.name->text);
    if (id.microbatch < 0 || shared) use = MicrobatchUse::kNone;
    GroupKey key{id.iteration, id.microbatch, id.pass, id.kind, role.name->place};
    if (shared) key.microbatch = *shared;
    if (use == MicrobatchUse::kSummed) key.microbatch = kNoMicrobatch;
    if (use == MicrobatchUse::kSelected) {
      key.microbatch = global_microbatch(context_.microbatches, id.iteration, coordinate, id.microbatch);
      if (context_.microbatches.is_sliced(id.iteration, key.microbatch)) use = MicrobatchUse::kNone;
    }
    const ElementsOfSamples::Place* element = elements_.find(coordinate, key);
    if (element != nullptr) key.name = element->name;
    if (placement->rule != nullptr && placement->rule->local) {
      drafted_.local.insert(key);
      return kNoGroup;
    }
    if (placement->rule != nullptr && placement->rule->rows) {
      drafted_.rows.push_back({&rank, &entry, role.name->text, placement});
      return kNoGroup;
    }
    const auto number = static_cast<std::uint32_t>(drafted_.drafts.size());
    const auto [found, is_new] = numbers_.try_emplace(key, number);
    if (is_new) drafted_.drafts.push_back({key, number, placement, 0, Stages::kAny, use, element});
    GroupDraft& draft = drafted_.drafts[found->second];
    // The first stage of a model may take integer tokens where the others take hidden states.
    if (draft.stages == Stages::kAny) draft.stages = stages_of(*role.name, entry);
    ++draft.shards;
    return found->second;
  }

  const TensorPlacement* recorded_placement(const PresentRank& rank, const Entry& entry) {
    const TensorPlacement*& known = found_[entry.mapping.get()];
    if (known == nullptr) known = recorded_.find(rank, entry);
    return known;
  }

  const GroupingContext& context_;
  const std::vector<NamedRole>& roles_;
  const ElementsOfSamples& elements_;
  RecordedPlacements& recorded_;
  std::unordered_map<const RecordedMapping*, const TensorPlacement*> found_;
  std::unordered_map<GroupKey, std::uint32_t, GroupKeyHash> numbers_;
  DraftedSection drafted_;
};

// Returns the sections' drafts, those of one identity joined, in order of identity.
std::vector<GroupDraft> join_drafts(std::vector<DraftedSection>& sections) {
  std::vector<GroupDraft> joined;
  std::unordered_map<GroupKey, std::uint32_t, GroupKeyHash> numbers;
  for (DraftedSection& section : sections) {
    for (const GroupDraft& draft : section.drafts) {
      const auto number = static_cast<std::uint32_t>(joined.size());
      const auto [found, is_new] = numbers.try_emplace(draft.key, number);
      if (is_new) {
        joined.push_back({draft.key, number, draft.placement, 0, Stages::kAny, draft.microbatches, draft.of_sample});
      }
      GroupDraft& whole = joined[found->second];
      if (whole.stages == Stages::kAny) whole.stages = draft.stages;
      section.group.push_back(whole.number);
      section.next.push_back(whole.shards);
      whole.shards += draft.shards;
    }
  }
  std::sort(joined.begin(), joined.end(), [](const GroupDraft& a, const GroupDraft& b) { return a.key < b.key; });
  std::vector<std::uint32_t> place(joined.size());
  for (std::size_t i = 0; i < joined.size(); ++i) place[joined[i].number] = static_cast<std::uint32_t>(i);
  for (DraftedSection& section : sections) {
    for (std::uint32_t& group : section.group) group = place[group];
  }
  return joined;
}

// A group as drafted, with room for its shards.
Group start_group(const GroupingContext& context, const CanonicalNames& names, const GroupDraft& draft) {
  const CanonicalName& name = names.at(draft.key.name);
  Group group;
  group.id = id_of(draft.key, names);
  group.stages = draft.stages;
  group.microbatches = draft.microbatches;
  group.placement = draft.placement;
  group.reference = name.shapes[static_cast<std::size_t>(draft.key.kind)];
  group.expert = name.expert;
  group.of_sample = draft.of_sample != nullptr;
  group.owned = group.of_sample;
  group.sum_occurrences =
      draft.key.kind == Kind::kParamGrad && (name.tied || context.pipeline.calls_before.contains(owner_of(name.text)));
  group.shards.resize(draft.shards);
  return group;
}

// Puts the section's entries into their groups.
void put_shards(const Section& section, DraftedSection& drafted, const std::vector<NamedRole>& roles,
                std::vector<Group>& groups) {
  std::size_t i = 0;
  for (const RankEntries& of_rank : section.ranks) {
    for (const Entry& entry : of_rank.entries) {
      const NamedRole& role = roles[section.roles[i]];
      const std::uint32_t draft = drafted.draft_of[i++];
      if (draft == kNoGroup) continue;
      Group& group = groups[drafted.group[draft]];
      // In a group without a number, those that have one are terms of a sum.
      const std::int32_t term = group.id.microbatch < 0 ? std::max(entry.id.microbatch, 0) : 0;
      group.shards[drafted.next[draft]++] = {of_rank.rank, &entry, role.occurrence, term};
    }
  }
}

// Keeps the shards of the first or the last stage where the tensor flows into or out of a module that spans the
// stages: on the other stages it flows between the module's layers. None are left when that stage holds none.
void keep_end_stage(Group& group, const Pipeline& pipeline) {
  if (group.stages != Stages::kFirst && group.stages != Stages::kLast) return;
  const std::int64_t end = group.stages == Stages::kFirst ? 0 : pipeline.last_stage;
  std::erase_if(group.shards, [&](const Shard& shard) { return shard.occurrence.stage != end; });
}

// True where several stages hold a parameter under one name, as an embedding and the head that is tied to it, and each has
// the gradient of its own use: these are terms, until the program adds them up.
bool stages_hold_terms(const Group& group) {
  if (group.id.kind != Kind::kParamGrad) return false;
  std::map<std::int64_t, std::set<std::uint64_t>> of_stages;
  for (const Shard& shard : group.shards) of_stages[shard.occurrence.stage].insert(shard.entry->checksum);
  return std::any_of(of_stages.begin(), of_stages.end(),
                     [&](const auto& stage) { return stage.second != of_stages.begin()->second; });
}

}  // namespace

Grouping group_shards(const RankTable& table, const Census& census, const ResolvedAnnotations& annotations,
                      const ModelLayout& layout, int threads) {
  Grouping grouping;
  grouping.pipeline = pipeline_of(table, census, annotations, layout);
  number_calls(census, layout, grouping.pipeline);
  grouping.experts = experts_of(table, census, annotations, grouping.pipeline, layout);
  grouping.microbatches = microbatches_of(table, census, annotations, layout);
  const GroupingContext context{table, annotations, grouping.pipeline, grouping.experts, grouping.microbatches, layout};
  CanonicalNames names;
  const std::vector<NamedRole> roles = name_roles(context, census, names, grouping);
  const ElementsOfSamples elements(grouping.microbatches.lists, names);
  RecordedPlacements recorded(annotations, grouping.recorded);
  std::vector<DraftedSection> sections(census.sections.size());
  parallel_for(sections.size(), threads, [&](std::size_t i) {
    sections[i] = SectionDrafter(context, roles, elements, recorded).draft(census.sections[i]);
  });
  const std::vector<GroupDraft> drafts = join_drafts(sections);
  grouping.groups.resize(drafts.size());
  parallel_for_ranges(drafts.size(), kGroupsATask, threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) grouping.groups[i] = start_group(context, names, drafts[i]);
  });
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (drafts[i].of_sample == nullptr || !drafts[i].of_sample->guessed) continue;
    TensorPlacement& placement = grouping.by_shape.emplace_back(*grouping.groups[i].placement);
    placement.guessed = true;
    grouping.groups[i].placement = &placement;
  }
  parallel_for(sections.size(), threads,
               [&](std::size_t i) { put_shards(census.sections[i], sections[i], roles, grouping.groups); });
  for (Group& group : grouping.groups) {
    keep_end_stage(group, grouping.pipeline);
    group.sum_occurrences = group.sum_occurrences || stages_hold_terms(group);
  }
  for (DraftedSection& section : sections) {
    for (const GroupKey& key : section.local) grouping.local.insert(id_of(key, names));
    std::move(section.rows.begin(), section.rows.end(), std::back_inserter(grouping.rows));
  }
  const SampleOrders& samples = grouping.microbatches.samples;
  const PackedSequences& packed = grouping.microbatches.packed;
  for (const std::set<TensorId>* own : {&samples.begin_anew, &samples.own_counts, &packed.own_numbers}) {
    grouping.local.insert(own->begin(), own->end());
  }
  std::erase_if(grouping.groups, [&](const Group& group) {
    return samples.begin_anew.contains(group.id) || samples.own_counts.contains(group.id) ||
           packed.has_own_numbers(group.id);
  });
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
