#include "align/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "align/completeness.h"
#include "align/group_finding.h"
#include "align/pieces.h"
#include "align/token_rows.h"
#include "base/describe.h"
#include "identify/loss_scale.h"

namespace ttrace {
namespace {

// Lists the ranks by the key of their shards: `stage 0 (rank 0) and stage 1 (rank 1)`. `describe` puts a key into
// words.
template <class Key, class Describe>
std::string list_ranks_by(const Group& group, const Key& key, const Describe& describe) {
  std::map<std::int64_t, std::set<std::int32_t>> ranks_by_key;
  for (const Shard& shard : group.shards) ranks_by_key[key(shard)].insert(shard.holder->trace->rank);
  std::vector<std::string> items;
  for (const auto& [value, ranks] : ranks_by_key) {
    const std::vector<std::int32_t> listed(ranks.begin(), ranks.end());
    items.push_back(fmt::format("{} ({})", describe(value), describe_ranks(listed)));
  }
  return fmt::format("{}", fmt::join(items, " and "));
}

std::vector<std::int32_t> ranks_holding(const Group& group) {
  std::vector<std::int32_t> ranks;
  for (const Shard& shard : group.shards) ranks.push_back(shard.holder->trace->rank);
  return ranks;
}

// A process that holds one parameter under both of its tied names records the same bits twice. Where all shards under
// the second name repeat others, they are dropped; they would otherwise count as further terms of the gradient. Where
// the stages hold two parameters, their gradients differ, and all shards stay.
void drop_repeats_by_second_name(Group& group) {
  const auto is_second = [](const Shard& shard) { return shard.occurrence.name != 0; };
  if (std::none_of(group.shards.begin(), group.shards.end(), is_second)) return;
  std::set<std::tuple<const PresentRank*, std::int32_t, std::uint64_t>> own;
  for (const Shard& shard : group.shards) {
    if (!is_second(shard)) own.emplace(shard.holder, shard.microbatch, shard.entry->checksum);
  }
  const bool all = std::all_of(group.shards.begin(), group.shards.end(), [&](const Shard& shard) {
    return !is_second(shard) || own.contains({shard.holder, shard.microbatch, shard.entry->checksum});
  });
  if (all) std::erase_if(group.shards, is_second);
}

// Finds a layer on two stages, an expert on two coordinates of its axis, and ranks that hold the tensor twice.
std::vector<Finding> find_duplicates(const Group& group, const Frame& frame, const AssemblyContext& context) {
  std::vector<Finding> findings;
  const auto duplicate = [&](const std::string& what, std::vector<std::int32_t> ranks) {
    findings.push_back(finding_of(group, Verdict::kFail, Reason::kDuplicateTensor, what, std::move(ranks)));
  };
  if (group.stages == Stages::kOne && frame.occurrences.size() > 1) {
    const std::string stages = list_ranks_by(
        group, [](const Shard& shard) { return shard.occurrence.stage; },
        [&](std::int64_t stage) { return describe_stage(context.pipeline, stage); });
    duplicate("a layer belongs to one pipeline stage, this one is on " + stages, ranks_holding(group));
  }
  const auto expert = static_cast<std::size_t>(context.axes.expert);
  const auto other = [&](const Shard& shard) { return shard.holder->coordinates[expert] != frame.base[expert]; };
  if (group.expert && std::any_of(group.shards.begin(), group.shards.end(), other)) {
    const std::string coordinates = list_ranks_by(
        group, [&](const Shard& shard) { return shard.holder->coordinates[expert]; },
        [&](std::int64_t at) { return fmt::format("{}={}", context.ranks.axes[expert].name, at); });
    duplicate("an expert belongs to one part of the ranks, this one is on " + coordinates, ranks_holding(group));
  }
  std::vector<std::tuple<std::int32_t, Occurrence, std::int32_t>> held;
  for (const Shard& shard : group.shards) {
    held.emplace_back(shard.holder->trace->rank, shard.occurrence, shard.microbatch);
  }
  std::sort(held.begin(), held.end());
  std::set<std::int32_t> twice;
  for (std::size_t i = 1; i < held.size(); ++i) {
    if (held[i] == held[i - 1]) twice.insert(std::get<0>(held[i]));
  }
  if (const std::vector<std::int32_t> ranks(twice.begin(), twice.end()); !ranks.empty()) {
    duplicate("recorded more than once by " + describe_ranks(ranks), ranks);
  }
  return findings;
}

// Puts the placement that the recording program gave into words.
std::string placement_text(const Entry& entry) {
  if (!entry.mapping || !entry.mapping->axes) return "no placement";
  std::vector<std::string> words;
  for (const auto& [axis, size] : *entry.mapping->axes) {
    if (axis.placement == Placement::kShard) {
      const auto blocks = axis.options.find("blocks");
      words.push_back(fmt::format(
          "{} shards {}{}", axis.axis, axis.dim,
          blocks == axis.options.end() ? "" : fmt::format(" in blocks of {}", fmt::join(blocks->second, ":"))));
    } else if (axis.placement == Placement::kPartial) {
      words.push_back(fmt::format("{} is {}", axis.axis, axis.mean ? "a mean" : "partial"));
    } else {
      words.push_back(fmt::format("{} replicates", axis.axis));
    }
  }
  return words.empty() ? "replicated" : fmt::format("{}", fmt::join(words, ", "));
}

// Finds shards that differ in dtype, in number of dimensions or in recorded placement, and absurd sizes.
std::optional<Finding> check_shards_agree(const Group& group) {
  const Entry& first = *group.shards[0].entry;
  std::optional<std::string> placement;  // of the first, once somebody asks for it
  for (const Shard& shard : group.shards) {
    const Entry& entry = *shard.entry;
    const Shape& shape = own_shape(entry);
    if (entry.dtype != first.dtype) {
      return disagreement(group, "shards differ in dtype",
                          [](const Entry& e) { return std::string(name_of(e.dtype)); });
    }
    if (shape.size() != own_shape(first).size()) {
      return disagreement(group, "shards differ in their number of dimensions", own_shape_text);
    }
    if (std::any_of(shape.begin(), shape.end(), [](std::int64_t n) { return n < 0 || n > kMaxExtent; })) {
      return disagreement(group, "a shard has an absurd dimension", own_shape_text);
    }
    if (entry.mapping == first.mapping) continue;
    if (!placement) placement = placement_text(first);
    if (placement_text(entry) != *placement) {
      return disagreement(group, "shards were recorded with different placements", placement_text);
    }
  }
  return std::nullopt;
}

// Takes the sizes of the dimensions' parts from the shards, or finds that the shards do not fit together. They do when
// a dimension's size depends only on the coordinates that shard it: replicas and terms then have equal shapes, and so
// have neighbours across the other dimensions. `sizes` are those of the blank dimensions.
std::optional<Finding> take_sizes(const Group& group, const ShardGrid& grid, const std::vector<Dimension>& blank,
                                  DimensionPool::Sizes& sizes) {
  for (std::size_t slot = 0; slot < grid.shards.size(); ++slot) {
    if (grid.shards[slot].entry == nullptr) continue;
    const Shape& shape = own_shape(*grid.shards[slot].entry);
    const auto digits = digits_of(blank, grid.slots.shard_of(static_cast<std::int64_t>(slot)));
    for (std::size_t d = 0; d < blank.size(); ++d) {
      std::int64_t& size = sizes[d][part_index(blank[d], digits)];
      const std::vector<std::size_t>& cut = group.placement->cut;
      if (std::find(cut.begin(), cut.end(), d) != cut.end()) {
        size = std::max(size, shape[d]);
        continue;
      }
      if (size >= 0 && size != shape[d]) {
        return disagreement(group, fmt::format("shards do not fit together in dimension {}", d), own_shape_text);
      }
      size = shape[d];
    }
  }
  return std::nullopt;
}

bool is_packed(const AxisUse& use) { return use.placement == Placement::kShard && !use.cu_seqlens.empty(); }

// Sets the segments of the axes that split packed sequences, or finds that the recorded lengths are wrong.
std::optional<Finding> find_sequences(const Group& group, const AssemblyContext& context,
                                      std::vector<Dimension>& dimensions) {
  const Shape& shape = own_shape(*group.shards[0].entry);
  for (const AxisUse& use : group.placement->uses) {
    if (!is_packed(use)) continue;
    Sequences sequences = sequences_of(context.lengths, use, group);
    if (const auto* objection = std::get_if<std::string>(&sequences)) {
      return finding_of(group, Verdict::kFail, Reason::kShapeMismatch, *objection, {});
    }
    Dimension& dimension = dimensions[dimension_of(*group.placement, use, group.id.name, shape)];
    const auto split = std::find_if(dimension.splits.begin(), dimension.splits.end(),
                                    [&](const AxisSplit& s) { return s.axis == use.split.axis; });
    split->segments = std::get<std::vector<Segment>>(std::move(sequences));
  }
  return std::nullopt;
}

std::optional<Finding> lay_out_all(const Group& group, std::vector<Dimension>& dimensions) {
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    try {
      lay_out(dimensions[d]);
    } catch (const LayoutError& error) {
      return disagreement(group, fmt::format("dimension {}: {}", d, error.what()), own_shape_text);
    }
  }
  return std::nullopt;
}

// Sets the grid's dimensions, or finds that the shards do not make them up.
std::optional<Finding> set_dimensions(const Group& group, const AssemblyContext& context, ShardGrid& grid) {
  DimensionPool::Alike& alike =
      context.dimensions.find(*group.placement, group.id.name, own_shape(*group.shards[0].entry), group.reference);
  DimensionPool::Sizes sizes;
  for (const Dimension& dimension : alike.blank()) sizes.push_back(dimension.sizes);
  if (auto finding = take_sizes(group, grid, alike.blank(), sizes)) return finding;
  // Packed sequences differ from one micro-batch to the next.
  const bool packed = std::any_of(group.placement->uses.begin(), group.placement->uses.end(), is_packed);
  if (!packed) grid.dimensions = alike.find(sizes);
  if (grid.dimensions) return std::nullopt;
  std::vector<Dimension> dimensions = alike.blank();
  for (std::size_t d = 0; d < dimensions.size(); ++d) dimensions[d].sizes = sizes[d];
  if (auto finding = find_sequences(group, context, dimensions)) return finding;
  if (auto finding = lay_out_all(group, dimensions)) return finding;
  grid.dimensions = packed ? std::make_shared<const std::vector<Dimension>>(std::move(dimensions))
                           : alike.add(std::move(sizes), std::move(dimensions));
  return std::nullopt;
}

// The shape that the shards' program recorded of the logical tensor. What it did not know of, slices of the batch along
// other axes than it recorded, it has one shape for each of: in the dimensions that these split, its sizes are added up.
// Nothing where shards of one slice differ, or where there is none.
std::optional<Shape> recorded_shape(const Group& group, std::size_t dims) {
  std::vector<const AxisUse*> slices;
  for (const AxisUse& use : group.placement->uses) {
    if (use.deduced && use.placement == Placement::kShard) slices.push_back(&use);
  }
  std::map<std::vector<std::int64_t>, Shape> shapes;  // by the coordinates along these axes
  for (const Shard& shard : group.shards) {
    const auto& mapping = shard.entry->mapping;
    if (!mapping || !mapping->shape) continue;
    std::vector<std::int64_t> coordinates;
    for (const AxisUse* use : slices) coordinates.push_back(coordinate_on(*shard.holder, use->axis));
    const auto [found, is_new] = shapes.try_emplace(coordinates, *mapping->shape);
    if (mapping->shape->size() != dims || found->second != *mapping->shape) return std::nullopt;
  }
  if (shapes.empty()) return std::nullopt;
  Shape whole = shapes.begin()->second;
  for (std::size_t d = 0; d < dims; ++d) {
    const bool is_sliced =
        std::any_of(slices.begin(), slices.end(), [&](const AxisUse* use) { return use->dim == static_cast<int>(d); });
    if (!is_sliced) continue;
    // Slices along axes that split other dimensions repeat the sizes of this one.
    std::map<std::vector<std::int64_t>, std::int64_t> sizes;
    for (const auto& [coordinates, shape] : shapes) {
      std::vector<std::int64_t> own;
      for (std::size_t i = 0; i < slices.size(); ++i) {
        if (slices[i]->dim == static_cast<int>(d)) own.push_back(coordinates[i]);
      }
      sizes.emplace(own, shape[d]);
    }
    whole[d] = 0;
    for (const auto& [coordinates, size] : sizes) whole[d] += size;
  }
  return whole;
}

// Finds shards whose program recorded another shape of the logical tensor than the one that they make up.
std::optional<Finding> check_recorded_shape(const Group& group, const Shape& shape) {
  const bool is_as_recorded = std::all_of(group.shards.begin(), group.shards.end(), [&](const Shard& shard) {
    const auto& mapping = shard.entry->mapping;
    return !mapping || !mapping->shape || *mapping->shape == shape;
  });
  if (is_as_recorded || recorded_shape(group, shape.size()) == shape) return std::nullopt;
  return disagreement(
      group, fmt::format("the shards make {}, and were recorded as parts of another tensor", to_string(shape)),
      [](const Entry& e) { return e.mapping && e.mapping->shape ? to_string(*e.mapping->shape) : "-"; });
}

LogicalTensor logical_tensor(const Group& group, const AssemblyContext& context, std::size_t factoring,
                             ShardGrid grid) {
  LogicalTensor tensor;
  tensor.id = group.id;
  tensor.dtype = group.shards[0].entry->dtype;
  tensor.shape = extents_of(*grid.dimensions);
  tensor.order = group.shards[0].entry->order;
  for (const Shard& shard : group.shards) {
    tensor.order = std::min(tensor.order, shard.entry->order);
    tensor.bytes += shard.entry->bytes;
    tensor.sketched |= shard.entry->sketch != nullptr;
    tensor.light |= shard.holder->trace->light.contains(group.id.iteration);
  }
  tensor.scale = scale_of(context.annotations, context.microbatches, group.id, *group.placement, group.loss);
  tensor.module_class = group.shards[0].entry->module_class;
  tensor.annotated = group.placement->is_placed();
  for (const AxisUse& use : group.placement->uses) {
    if (use.deduced) tensor.deduced.push_back(as_written(use));
  }
  tensor.guessed = group.placement->guessed;
  tensor.doubt = group.placement->doubt;
  tensor.factoring = factoring;
  tensor.pieces = [grid = std::make_shared<const ShardGrid>(std::move(grid))] { return make_pieces(*grid); };
  return tensor;
}

// Puts each shard into its slot. The grid has no dimensions yet.
ShardGrid grid_of(const Group& group, const Frame& frame) {
  ShardGrid grid;
  grid.slots = frame.slots;
  grid.shards.resize(static_cast<std::size_t>(grid.slots.size()));
  for (const Shard& shard : group.shards) {
    grid.shards[static_cast<std::size_t>(slot_of(frame, shard))] = {shard.holder->trace, shard.entry};
    grid.fragments = grid.fragments || (shard.entry->mapping && shard.entry->mapping->fragment);
  }
  const Kind kind = group.id.kind;
  grid.occurrences_are_terms = kind == Kind::kGradOutput || kind == Kind::kGradInput || kind == Kind::kParamGrad;
  return grid;
}

const Truncation* truncation_of(const Group& group, const AssemblyContext& context) {
  const auto& truncated = context.microbatches.samples.truncated;
  const auto found = truncated.find(group.id);
  return found == truncated.end() ? nullptr : &found->second;
}

// Returns a finding about an input of samples that some ranks have the beginning of, as the bytes say. That this is a
// mistake is a guess: what they lack may count for nothing, which the rest of training shows.
Finding truncated_finding(const Group& group, const Truncation& truncation, const AssemblyContext& context) {
  std::set<std::int32_t> ranks;
  std::set<std::int64_t> ends;
  for (const Shard& shard : group.shards) {
    const std::int64_t coordinate = coordinate_on(*shard.holder, context.ranks, context.microbatches);
    if (!truncation.coordinates.contains(coordinate)) continue;
    ranks.insert(shard.holder->trace->rank);
    ends.insert(shard.entry->shape[truncation.dim]);
  }
  const std::vector<std::int32_t> lacking(ranks.begin(), ranks.end());
  Finding finding = finding_of(
      group, Verdict::kFail, Reason::kTruncated,
      fmt::format("the reference's samples have {} elements along dimension {}; on {} they end behind {}, "
                  "and what they lack is no padding",
                  truncation.whole_length, truncation.dim, describe_ranks(lacking), fmt::join(ends, " and ")),
      lacking);
  finding.guessed = true;
  return finding;
}

Assembly assemble_shards(Group group, const AssemblyContext& context) {
  drop_repeats_by_second_name(group);
  const Frame frame = frame_of(group, context.ranks, context.axes);
  if (auto findings = find_duplicates(group, frame, context); !findings.empty()) return {{}, std::move(findings)};
  if (auto finding = check_shards_agree(group)) return {{}, {*finding}};
  const Truncation* truncation = truncation_of(group, context);
  if (truncation != nullptr && !truncation->by_one) return {{}, {truncated_finding(group, *truncation, context)}};
  if (const std::string& why = group.placement->unplaced; !why.empty()) {
    return {{}, {finding_of(group, Verdict::kFail, Reason::kShapeMismatch, why, ranks_holding(group))}};
  }
  ShardGrid grid = grid_of(group, frame);
  if (auto finding = set_dimensions(group, context, grid)) return {{}, {*finding}};
  const auto find_lost = grid.fragments ? find_lost_fragments : find_omissions;
  if (auto finding = find_lost(group, frame, grid, context.ranks)) return {{}, {*finding}};
  if (auto findings = find_uncovered(group, grid); !findings.empty()) return {{}, std::move(findings)};
  if (auto finding = check_recorded_shape(group, extents_of(*grid.dimensions))) return {{}, {*finding}};
  LogicalTensor tensor = logical_tensor(group, context, frame.factoring, std::move(grid));
  if (group.placement->dropped) tensor = with_dropped(tensor, group.placement->dropped);
  if (truncation != nullptr && !truncation->coordinates.empty()) {
    tensor.truncated = std::make_shared<const Finding>(truncated_finding(group, *truncation, context));
  }
  if (!group.placement->cut.empty()) tensor = without_cut(tensor, group.placement->cut);
  return {std::move(tensor), {}};
}

}  // namespace

Assembly assemble(Group group, const AssemblyContext& context) {
  const TensorPlacement& placement = *group.placement;
  Assembly assembly = assemble_shards(std::move(group), context);
  for (Finding& finding : assembly.findings) {
    finding.guessed = finding.guessed || placement.guessed;
    if (!placement.doubt.empty()) finding.message += "; " + placement.doubt;
  }
  return assembly;
}

}  // namespace ttrace
