#include "align/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "align/describe.h"
#include "align/pieces.h"
#include "ttrace/align/coverage.h"

namespace ttrace {
namespace {

Finding about(const Group& group, Verdict verdict, Reason reason, std::string what, std::vector<std::int32_t> ranks) {
  Finding finding;
  finding.id = group.id;
  finding.verdict = verdict;
  finding.reason = reason;
  finding.message = fmt::format("{}: {}", to_string(group.id), what);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (!ranks.empty() && ranks.front() < 0) ranks.erase(ranks.begin());
  finding.ranks = std::move(ranks);
  finding.order = group.shards[0].entry->order;
  for (const Shard& shard : group.shards) finding.order = std::min(finding.order, shard.entry->order);
  return finding;
}

// Of a module that spans the stages only the ends count: what flows into and out of it on other stages
// flows between its layers. False when the end does not hold it.
bool keep_end(Group& group, const AssemblyContext& context) {
  if (group.stages != Stages::kFirst && group.stages != Stages::kLast) return true;
  const std::int64_t end = group.stages == Stages::kFirst ? 0 : context.pipeline.virtual_stages() - 1;
  std::erase_if(group.shards, [&](const Shard& shard) { return shard.copy.stage != end; });
  return !group.shards.empty();
}

// The shards' ranks by what `key` says of each shard: `stage 0 (rank 0) and stage 1 (rank 1)`.
template <class Key, class Words>
std::string list_by(const Group& group, const Key& key, const Words& words) {
  std::map<std::int64_t, std::set<std::int32_t>> ranks_by_key;
  for (const Shard& shard : group.shards) ranks_by_key[key(shard)].insert(shard.holder->trace->rank);
  std::vector<std::string> items;
  for (const auto& [value, ranks] : ranks_by_key) {
    const std::vector<std::int32_t> listed(ranks.begin(), ranks.end());
    items.push_back(fmt::format("{} ({})", words(value), describe_ranks(listed)));
  }
  return fmt::format("{}", fmt::join(items, " and "));
}

std::vector<std::int32_t> ranks_of(const Group& group) {
  std::vector<std::int32_t> ranks;
  for (const Shard& shard : group.shards) ranks.push_back(shard.holder->trace->rank);
  return ranks;
}

// Processes that hold one parameter under both of its tied names have recorded the same bits twice, all of them. The
// gradients of two parameters would be two terms, and not the same.
void drop_second_names(Group& group) {
  std::set<std::tuple<const PresentRank*, std::int32_t, std::uint64_t>> own;
  for (const Shard& shard : group.shards) {
    if (shard.copy.name == 0) own.emplace(shard.holder, shard.microbatch, shard.entry->checksum);
  }
  const auto is_second = [](const Shard& shard) { return shard.copy.name != 0; };
  const bool all = std::all_of(group.shards.begin(), group.shards.end(), [&](const Shard& shard) {
    return !is_second(shard) || own.contains({shard.holder, shard.microbatch, shard.entry->checksum});
  });
  if (all) std::erase_if(group.shards, is_second);
}

// A layer on two stages, an expert on two coordinates of its axis, or one rank holding the tensor twice.
std::vector<Finding> find_duplicates(const Group& group, const Frame& frame, const AssemblyContext& context) {
  std::vector<Finding> findings;
  const auto duplicate = [&](const std::string& what, std::vector<std::int32_t> ranks) {
    findings.push_back(about(group, Verdict::kFail, Reason::kDuplicateTensor, what, std::move(ranks)));
  };
  if (group.stages == Stages::kOne && frame.copies.size() > 1) {
    const std::string stages = list_by(
        group, [](const Shard& shard) { return shard.copy.stage; },
        [&](std::int64_t stage) { return describe_stage(context.pipeline, stage); });
    duplicate("a layer belongs to one pipeline stage, this one is on " + stages, ranks_of(group));
  }
  const auto expert = static_cast<std::size_t>(context.axes.expert);
  const auto other = [&](const Shard& shard) { return shard.holder->place[expert] != frame.base[expert]; };
  if (group.expert && std::any_of(group.shards.begin(), group.shards.end(), other)) {
    const std::string coordinates = list_by(
        group, [&](const Shard& shard) { return shard.holder->place[expert]; },
        [&](std::int64_t at) { return fmt::format("{}={}", context.ranks.axes[expert].name, at); });
    duplicate("an expert belongs to one part of the ranks, this one is on " + coordinates, ranks_of(group));
  }
  std::set<std::tuple<std::int32_t, Copy, std::int32_t>> seen;
  std::set<std::int32_t> twice;
  for (const Shard& shard : group.shards) {
    const std::int32_t rank = shard.holder->trace->rank;
    if (!seen.emplace(rank, shard.copy, shard.microbatch).second) twice.insert(rank);
  }
  if (const std::vector<std::int32_t> ranks(twice.begin(), twice.end()); !ranks.empty()) {
    duplicate("recorded more than once by " + describe_ranks(ranks), ranks);
  }
  return findings;
}

// `what` is a property of a shard in words; the finding lists its values and who has which.
template <class Words>
Finding disagreement(const Group& group, std::string_view rule, const Words& what) {
  std::map<std::string, std::vector<std::int32_t>> ranks_by_words;
  std::vector<std::int32_t> ranks;
  for (const Shard& shard : group.shards) {
    ranks_by_words[what(*shard.entry)].push_back(shard.holder->trace->rank);
    ranks.push_back(shard.holder->trace->rank);
  }
  std::vector<std::string> words;
  for (const auto& [value, holders] : ranks_by_words) {
    words.push_back(fmt::format("{} on {}", value, describe_ranks(holders)));
  }
  return about(group, Verdict::kFail, Reason::kShapeMismatch, fmt::format("{}: {}", rule, fmt::join(words, "; ")),
               ranks);
}

std::string shape_words(const Entry& entry) { return to_string(own_shape(entry)); }

std::string placement_words(const Entry& entry) {
  if (!entry.mapping || !entry.mapping->axes) return "no placement";
  std::vector<std::string> words;
  for (const auto& [axis, size] : *entry.mapping->axes) {
    words.push_back(axis.placement == Placement::kShard     ? fmt::format("{} shards {}", axis.axis, axis.dim)
                    : axis.placement == Placement::kPartial ? fmt::format("{} is partial", axis.axis)
                                                            : fmt::format("{} replicates", axis.axis));
  }
  return words.empty() ? "replicated" : fmt::format("{}", fmt::join(words, ", "));
}

// The dtype, the number of dimensions, no absurd dimension, and what the program said of its place.
std::optional<Finding> check_kin(const Group& group) {
  const Entry& first = *group.shards[0].entry;
  const std::string placement = placement_words(first);
  for (const Shard& shard : group.shards) {
    const Entry& entry = *shard.entry;
    const Shape& shape = own_shape(entry);
    if (entry.dtype != first.dtype) {
      return disagreement(group, "shards differ in dtype",
                          [](const Entry& e) { return std::string(name_of(e.dtype)); });
    }
    if (shape.size() != own_shape(first).size()) {
      return disagreement(group, "shards differ in their number of dimensions", shape_words);
    }
    if (std::any_of(shape.begin(), shape.end(), [](std::int64_t n) { return n < 0 || n > kMaxExtent; })) {
      return disagreement(group, "a shard has an absurd dimension", shape_words);
    }
    if (entry.mapping != first.mapping && placement_words(entry) != placement) {
      return disagreement(group, "shards were recorded with different placements", placement_words);
    }
  }
  return std::nullopt;
}

// A dimension's size may depend only on the coordinates that shard it. That is all there is to fitting
// together: replicas and terms have equal shapes, and so have neighbours across the other dimensions.
std::optional<Finding> measure(const Group& group, Plan& plan) {
  for (std::size_t slot = 0; slot < plan.shards.size(); ++slot) {
    if (plan.shards[slot].entry == nullptr) continue;
    const Shape& shape = own_shape(*plan.shards[slot].entry);
    const auto digits = digits_of(plan.frame, static_cast<std::int64_t>(slot) % plan.frame.shards);
    for (std::size_t d = 0; d < plan.dimensions.size(); ++d) {
      std::int64_t& size = plan.dimensions[d].sizes[part_of(plan.dimensions[d], digits)];
      if (size >= 0 && size != shape[d]) {
        return disagreement(group, fmt::format("shards do not fit together in dimension {}", d), shape_words);
      }
      size = shape[d];
    }
  }
  return std::nullopt;
}

// Where packed sequences begin, for the axes whose layout is one of them.
std::optional<Finding> find_sequences(const Group& group, const AssemblyContext& context, Plan& plan) {
  const Shape& shape = own_shape(*group.shards[0].entry);
  for (const AxisUse& use : group.placement->uses) {
    if (use.placement != Placement::kShard || use.cu_seqlens.empty()) continue;
    Sequences sequences = sequences_of(context.lengths, use, group);
    if (const auto* objection = std::get_if<std::string>(&sequences)) {
      return about(group, Verdict::kFail, Reason::kShapeMismatch, *objection, {});
    }
    Dimension& dimension = plan.dimensions[dimension_of(*group.placement, use, group.id.name, shape)];
    const auto split = std::find_if(dimension.splits.begin(), dimension.splits.end(),
                                    [&](const AxisSplit& s) { return s.axis == use.split.axis; });
    split->segments = std::get<std::vector<Segment>>(std::move(sequences));
  }
  return std::nullopt;
}

std::optional<Finding> lay_out_dimensions(const Group& group, Plan& plan) {
  for (std::size_t d = 0; d < plan.dimensions.size(); ++d) {
    try {
      lay_out(plan.dimensions[d]);
    } catch (const LayoutError& error) {
      return disagreement(group, fmt::format("dimension {}: {}", d, error.what()), shape_words);
    }
  }
  return std::nullopt;
}

std::string describe_boxes(const Plan& plan, std::int64_t shard, const Box& within) {
  std::vector<std::string> words;
  for (const PlacedBox& box : boxes_of(plan.dimensions, digits_of(plan.frame, shard), within)) {
    words.push_back(describe(box.logical));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

Box whole_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

// A slot without a shard.
std::optional<Finding> find_omissions(const Group& group, const Plan& plan, const RankTable& table) {
  const View& view = table.views[plan.frame.view];
  std::vector<std::int32_t> ranks;
  std::vector<std::string> words;
  for (std::size_t slot = 0; slot < plan.shards.size(); ++slot) {
    if (plan.shards[slot].entry != nullptr) continue;
    const auto index = static_cast<std::int64_t>(slot);
    const std::int64_t shard = index % plan.frame.shards;
    const Place place = place_of(plan.frame, index);
    ranks.push_back(rank_at(table, view, place));
    words.push_back(fmt::format("{} of {}", describe_boxes(plan, shard, whole_box(shard_shape(plan, shard))),
                                describe_rank(table, view, place)));
  }
  if (ranks.empty()) return std::nullopt;
  return about(group, Verdict::kMissing, Reason::kOmission, "not there: " + join(words), ranks);
}

// What none of the ranks that share a shard in fragments holds.
std::optional<Finding> find_lost_fragments(const Group& group, const Plan& plan, const RankTable& table) {
  std::vector<std::int32_t> ranks;
  std::vector<std::string> words;
  const Frame& frame = plan.frame;
  for (std::int64_t i = 0; i < frame.terms * frame.shards; ++i) {
    const std::int64_t term = i / frame.shards, shard = i % frame.shards;
    std::vector<Box> held;
    for (const LayeredBox& box : layer_fragments(plan, term, shard)) {
      if (box.layer == 0) held.push_back(box.held.box);
    }
    const Coverage coverage = cover(shard_shape(plan, shard), held);
    if (coverage.gaps.empty()) continue;
    std::vector<std::int32_t> sharers;
    for (std::int64_t replica = 0; replica < frame.replicas(); ++replica) {
      sharers.push_back(rank_at(table, table.views[frame.view], place_of(frame, frame.slot(replica, term, shard))));
    }
    for (const Region& gap : coverage.gaps) {
      words.push_back(fmt::format("{} of {}", describe_boxes(plan, shard, gap.box), describe_ranks(sharers)));
    }
    ranks.insert(ranks.end(), sharers.begin(), sharers.end());
  }
  if (ranks.empty()) return std::nullopt;
  return about(group, Verdict::kMissing, Reason::kOmission, "in no rank's fragment: " + join(words), ranks);
}

// The ranks of the first replica and term whose part of dimension `d` is one of `parts`.
std::vector<std::int32_t> holders_of(const Plan& plan, std::size_t d, const std::vector<std::size_t>& parts) {
  std::vector<std::int32_t> ranks;
  for (std::int64_t shard = 0; shard < plan.frame.shards; ++shard) {
    const std::size_t part = part_of(plan.dimensions[d], digits_of(plan.frame, shard));
    const HeldShard& holder = plan.shards[static_cast<std::size_t>(shard)];
    if (holder.entry != nullptr && std::find(parts.begin(), parts.end(), part) != parts.end()) {
      ranks.push_back(holder.rank->rank);
    }
  }
  return ranks;
}

// The proof: the first copies fill every element once. All shards are there and fit; what can still go wrong
// is a layout function. A tensor is the product of its dimensions, so each is looked at by itself.
std::vector<Finding> find_uncovered(const Group& group, const Plan& plan) {
  std::vector<Finding> findings;
  const Shape shape = extents_of(plan.dimensions);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::vector<Box> boxes;
    std::vector<std::size_t> parts;
    const AxisLayout& layout = plan.dimensions[d].layout;
    for (std::size_t part = 0; part < layout.parts.size(); ++part) {
      for (const Stretch& stretch : layout.parts[part]) {
        if (stretch.copy != 0) continue;
        boxes.push_back({{stretch.logical}, {stretch.size}});
        parts.push_back(part);
      }
    }
    const auto across = [&](const Box& range) {
      Box box = whole_box(shape);
      box.start[d] = range.start[0];
      box.size[d] = range.size[0];
      return describe(box);
    };
    const Coverage coverage = cover({shape[d]}, boxes);
    std::vector<std::string> gaps, words;
    std::vector<std::int32_t> involved;
    for (const Region& gap : coverage.gaps) gaps.push_back(across(gap.box));
    if (!gaps.empty()) {
      findings.push_back(about(group, Verdict::kMissing, Reason::kOmission,
                               fmt::format("no rank holds {} of {}", join(gaps), to_string(shape)),
                               holders_of(plan, d, parts)));
    }
    for (const Region& overlap : coverage.overlaps) {
      std::vector<std::size_t> holding;
      for (const std::size_t i : overlap.holders) holding.push_back(parts[i]);
      const std::vector<std::int32_t> ranks = holders_of(plan, d, holding);
      words.push_back(fmt::format("{} by {}", across(overlap.box), describe_ranks(ranks)));
      involved.insert(involved.end(), ranks.begin(), ranks.end());
    }
    for (const std::size_t i : coverage.outside) {
      const std::vector<std::int32_t> ranks = holders_of(plan, d, {parts[i]});
      words.push_back(fmt::format("{}, outside {}, by {}", across(boxes[i]), to_string(shape), describe_ranks(ranks)));
      involved.insert(involved.end(), ranks.begin(), ranks.end());
    }
    if (!words.empty()) {
      findings.push_back(
          about(group, Verdict::kFail, Reason::kOverlap, "filled more than once: " + join(words), involved));
    }
  }
  return findings;
}

// The program said which shape the logical tensor has.
std::optional<Finding> check_recorded_shape(const Group& group, const Shape& shape) {
  for (const Shard& shard : group.shards) {
    const auto& mapping = shard.entry->mapping;
    if (!mapping || !mapping->shape || *mapping->shape == shape) continue;
    return disagreement(
        group, fmt::format("the shards make {}, and were recorded as parts of another tensor", to_string(shape)),
        [](const Entry& e) { return e.mapping && e.mapping->shape ? to_string(*e.mapping->shape) : "-"; });
  }
  return std::nullopt;
}

LogicalTensor describe_tensor(const Group& group, const AssemblyContext& context, Plan plan) {
  LogicalTensor tensor;
  tensor.id = group.id;
  tensor.dtype = group.shards[0].entry->dtype;
  tensor.shape = extents_of(plan.dimensions);
  tensor.order = group.shards[0].entry->order;
  for (const Shard& shard : group.shards) {
    tensor.order = std::min(tensor.order, shard.entry->order);
    tensor.bytes += shard.entry->bytes;
  }
  tensor.scale = scale_of(context.annotations, context.ranks.mesh, group.id.kind, group.id.name);
  tensor.module_class = group.shards[0].entry->module_class;
  tensor.annotated = group.placement->is_placed();
  tensor.factoring = plan.frame.view;
  tensor.pieces = [plan = std::make_shared<const Plan>(std::move(plan))] { return make_pieces(*plan); };
  return tensor;
}

// The slots filled, the dimensions not yet laid out.
Plan plan_of(const Group& group, Frame frame, const AssemblyContext& context) {
  Plan plan;
  plan.frame = std::move(frame);
  plan.shards.resize(static_cast<std::size_t>(plan.frame.slots()));
  for (const Shard& shard : group.shards) {
    plan.shards[static_cast<std::size_t>(slot_of(plan.frame, shard))] = {shard.holder->trace, shard.entry};
    plan.fragments = plan.fragments || (shard.entry->mapping && shard.entry->mapping->fragment);
  }
  const auto known = context.layout.shapes.find({group.id.name, group.id.kind});
  plan.dimensions = dimensions_of(*group.placement, group.id.name, own_shape(*group.shards[0].entry),
                                  known == context.layout.shapes.end() ? nullptr : &known->second);
  const Kind kind = group.id.kind;
  plan.copies_are_terms = kind == Kind::kGradOutput || kind == Kind::kGradInput || kind == Kind::kParamGrad;
  return plan;
}

}  // namespace

Assembly assemble(Group group, const AssemblyContext& context) {
  if (!keep_end(group, context)) return {};
  drop_second_names(group);
  Frame frame = frame_of(group, context.ranks, context.axes);
  if (auto findings = find_duplicates(group, frame, context); !findings.empty()) return {{}, std::move(findings)};
  if (auto finding = check_kin(group)) return {{}, {*finding}};
  Plan plan = plan_of(group, std::move(frame), context);
  if (auto finding = measure(group, plan)) return {{}, {*finding}};
  if (auto finding = find_sequences(group, context, plan)) return {{}, {*finding}};
  if (auto finding = lay_out_dimensions(group, plan)) return {{}, {*finding}};
  const auto find_lost = plan.fragments ? find_lost_fragments : find_omissions;
  if (auto finding = find_lost(group, plan, context.ranks)) return {{}, {*finding}};
  if (auto findings = find_uncovered(group, plan); !findings.empty()) return {{}, std::move(findings)};
  if (auto finding = check_recorded_shape(group, extents_of(plan.dimensions))) return {{}, {*finding}};
  return {describe_tensor(group, context, std::move(plan)), {}};
}

}  // namespace ttrace
