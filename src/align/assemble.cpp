#include "align/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "align/describe.h"
#include "align/dimension.h"
#include "ttrace/align/coverage.h"

namespace ttrace {
namespace {

// The shards of a group in their slots.
struct Slots {
  Frame frame;
  std::vector<const Shard*> shards;  // null where there is none
};

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

std::string shape_words(const Entry& entry) { return to_string(entry.shape); }

// The dtype, the number of dimensions, and no absurd dimension.
std::optional<Finding> check_kin(const Group& group) {
  const Entry& first = *group.shards[0].entry;
  for (const Shard& shard : group.shards) {
    const Entry& entry = *shard.entry;
    if (entry.dtype != first.dtype) {
      return disagreement(group, "shards differ in dtype",
                          [](const Entry& e) { return std::string(name_of(e.dtype)); });
    }
    if (entry.shape.size() != first.shape.size()) {
      return disagreement(group, "shards differ in their number of dimensions", shape_words);
    }
    if (std::any_of(entry.shape.begin(), entry.shape.end(), [](std::int64_t n) { return n < 0 || n > kMaxExtent; })) {
      return disagreement(group, "a shard has an absurd dimension", shape_words);
    }
  }
  return std::nullopt;
}

// A dimension's size may depend only on the coordinates that shard it. That is all there is to fitting
// together: replicas and terms have equal shapes, and so have neighbours across the other dimensions.
std::optional<Finding> measure(const Group& group, const Slots& slots, std::vector<Dimension>& dimensions) {
  for (std::size_t slot = 0; slot < slots.shards.size(); ++slot) {
    if (slots.shards[slot] == nullptr) continue;
    const Shape& shape = slots.shards[slot]->entry->shape;
    const auto digits = digits_of(slots.frame, static_cast<std::int64_t>(slot) % slots.frame.shards);
    for (std::size_t d = 0; d < dimensions.size(); ++d) {
      std::int64_t& size = dimensions[d].sizes[part_of(dimensions[d], digits)];
      if (size >= 0 && size != shape[d]) {
        return disagreement(group, fmt::format("shards do not fit together in dimension {}", d), shape_words);
      }
      size = shape[d];
    }
  }
  for (Dimension& dimension : dimensions) lay_out(dimension);
  return std::nullopt;
}

std::optional<Finding> find_omissions(const Group& group, const Slots& slots, const std::vector<Dimension>& dimensions,
                                      const RankTable& table) {
  const View& view = table.views[slots.frame.view];
  std::vector<std::int32_t> ranks;
  std::vector<std::string> words;
  for (std::size_t slot = 0; slot < slots.shards.size(); ++slot) {
    if (slots.shards[slot] != nullptr) continue;
    const auto index = static_cast<std::int64_t>(slot);
    const Place place = place_of(slots.frame, index);
    ranks.push_back(rank_at(table, view, place));
    std::vector<std::string> boxes;
    for (const auto& [local, logical] : boxes_of(dimensions, digits_of(slots.frame, index % slots.frame.shards))) {
      boxes.push_back(describe(logical));
    }
    words.push_back(fmt::format("{} of {}", fmt::join(boxes, ", "), describe_rank(table, view, place)));
  }
  if (ranks.empty()) return std::nullopt;
  return about(group, Verdict::kMissing, Reason::kOmission, "not there: " + join(words), ranks);
}

std::vector<Piece> pieces_of(const Slots& slots, const std::vector<Dimension>& dimensions) {
  std::vector<Piece> pieces;
  const Frame& frame = slots.frame;
  for (std::int64_t slot = 0; slot < frame.slots(); ++slot) {
    const Shard& shard = *slots.shards[static_cast<std::size_t>(slot)];
    for (auto& [local, logical] : boxes_of(dimensions, digits_of(frame, slot % frame.shards))) {
      Piece piece;
      piece.rank = shard.holder->trace->rank;
      piece.entry = shard.entry;
      piece.data = shard.holder->trace->bytes_of(*shard.entry);
      piece.file = shard.holder->trace->file.get();
      piece.local = std::move(local);
      piece.logical = std::move(logical);
      piece.replica = static_cast<std::int32_t>(frame.replica_of(slot));
      piece.term = static_cast<std::int32_t>(frame.term_of(slot));
      pieces.push_back(std::move(piece));
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.replica, a.term, a.logical.start) < std::tie(b.replica, b.term, b.logical.start);
  });
  return pieces;
}

// The proof: each term of replica 0 fills every element once. All shards are there and fit; what can
// still go wrong is a layout function.
std::vector<Finding> find_uncovered(const Group& group, const LogicalTensor& tensor, std::int64_t terms) {
  std::vector<Finding> findings;
  for (std::int64_t term = 0; term < terms; ++term) {
    std::vector<Box> boxes;
    std::vector<std::int32_t> ranks;
    for (const Piece& piece : tensor.pieces) {
      if (piece.replica != 0 || piece.term != term) continue;
      boxes.push_back(piece.logical);
      ranks.push_back(piece.rank);
    }
    const Coverage coverage = cover(tensor.shape, boxes);
    std::vector<std::string> gaps;
    for (const Region& gap : coverage.gaps) gaps.push_back(describe(gap.box));
    if (!gaps.empty()) {
      findings.push_back(about(group, Verdict::kMissing, Reason::kOmission,
                               fmt::format("no rank holds {} of {}", join(gaps), to_string(tensor.shape)), ranks));
    }
    std::vector<std::string> words;
    std::vector<std::int32_t> involved;
    for (const Region& overlap : coverage.overlaps) {
      std::vector<std::int32_t> holders;
      for (const std::size_t i : overlap.holders) holders.push_back(ranks[i]);
      words.push_back(fmt::format("{} by {}", describe(overlap.box), describe_ranks(holders)));
      involved.insert(involved.end(), holders.begin(), holders.end());
    }
    for (const std::size_t i : coverage.outside) {
      words.push_back(fmt::format("{}, outside {}, by rank {}", describe(boxes[i]), to_string(tensor.shape), ranks[i]));
      involved.push_back(ranks[i]);
    }
    if (!words.empty()) {
      findings.push_back(
          about(group, Verdict::kFail, Reason::kOverlap, "filled more than once: " + join(words), involved));
    }
  }
  return findings;
}

LogicalTensor describe_tensor(const Group& group, const AssemblyContext& context,
                              const std::vector<Dimension>& dimensions) {
  LogicalTensor tensor;
  tensor.id = group.id;
  tensor.dtype = group.shards[0].entry->dtype;
  for (const Dimension& dimension : dimensions) tensor.shape.push_back(dimension.layout.extent);
  tensor.order = group.shards[0].entry->order;
  for (const Shard& shard : group.shards) tensor.order = std::min(tensor.order, shard.entry->order);
  tensor.scale = scale_of(context.annotations, context.ranks.mesh, group.id.kind, group.id.name);
  tensor.module_class = group.shards[0].entry->module_class;
  tensor.annotated = group.placement->rule != nullptr;
  return tensor;
}

}  // namespace

Assembly assemble(Group group, const AssemblyContext& context) {
  if (!keep_end(group, context)) return {};
  Slots slots{frame_of(group, context.ranks, context.axes), {}};
  if (auto findings = find_duplicates(group, slots.frame, context); !findings.empty()) return {{}, std::move(findings)};
  if (auto finding = check_kin(group)) return {{}, {*finding}};
  slots.shards.assign(static_cast<std::size_t>(slots.frame.slots()), nullptr);
  for (const Shard& shard : group.shards) {
    slots.shards[static_cast<std::size_t>(slot_of(slots.frame, shard))] = &shard;
  }
  std::vector<Dimension> dimensions =
      dimensions_of(context.annotations, *group.placement, group.id.name, group.shards[0].entry->shape);
  if (auto finding = measure(group, slots, dimensions)) return {{}, {*finding}};
  if (auto finding = find_omissions(group, slots, dimensions, context.ranks)) return {{}, {*finding}};
  LogicalTensor tensor = describe_tensor(group, context, dimensions);
  tensor.pieces = pieces_of(slots, dimensions);
  if (auto findings = find_uncovered(group, tensor, slots.frame.terms); !findings.empty()) {
    return {{}, std::move(findings)};
  }
  return {std::move(tensor), {}};
}

}  // namespace ttrace
