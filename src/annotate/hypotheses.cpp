#include "annotate/hypotheses.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/describe.h"
#include "base/error.h"
#include "base/layout.h"

namespace ttrace {
namespace {

bool may_be_partial(Kind kind, Dtype dtype) {
  if (!is_floating(dtype)) return false;
  return !is_parameter_kind(kind) || kind == Kind::kParamGrad;
}

// Lays out `parts` equal parts of one dimension. Adjacent stretches are joined, so that layouts which put the elements
// in the same places compare equal. Returns nothing where the layout refuses the sizes.
std::optional<AxisLayout> joined_layout(const std::string& layout, std::int64_t parts, std::int64_t size) {
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), size);
  AxisSplit split;
  split.size = parts;
  split.layout = find_layout(layout);
  try {
    AxisLayout result = nest({&split, 1}, sizes);
    for (std::vector<Stretch>& stretches : result.parts) {
      std::vector<Stretch> joined;
      for (const Stretch& next : stretches) {
        const bool is_adjacent = !joined.empty() && joined.back().local + joined.back().size == next.local &&
                                 joined.back().logical + joined.back().size == next.logical;
        if (is_adjacent) joined.back().size += next.size;
        if (!is_adjacent) joined.push_back(next);
      }
      stretches = std::move(joined);
    }
    return result;
  } catch (const LayoutError&) {
    return std::nullopt;
  }
}

// Returns the layouts that put the elements of this dimension in different places: stripes of one part, for instance,
// are blocks. Each is tried with the axis as the innermost on the dimension, and as the outermost or the only one.
std::vector<std::string> distinct_layouts(const Axis& axis, std::int64_t local, std::int64_t whole,
                                          const std::vector<std::string>& layouts) {
  std::vector<std::string> distinct;
  std::vector<std::pair<std::optional<AxisLayout>, std::optional<AxisLayout>>> seen;
  for (const std::string& layout : layouts) {
    const auto inner = joined_layout(layout, axis.size, local),
               outer = joined_layout(layout, axis.size, whole / axis.size);
    const bool refused = !inner && !outer;
    if (refused || std::find(seen.begin(), seen.end(), std::pair(inner, outer)) != seen.end()) continue;
    seen.emplace_back(inner, outer);
    distinct.push_back(layout);
  }
  return distinct;
}

AxisPlacement axis_placement(const std::string& axis, Placement placement, std::int32_t dim = 0,
                             const std::string& layout = "contiguous") {
  AxisPlacement result;
  result.axis = axis;
  result.placement = placement;
  result.dim = dim;
  result.layout = layout;
  return result;
}

// The placement of one axis; nothing where the rule leaves it unnamed.
using Option = std::optional<AxisPlacement>;

std::vector<Option> options_for(const Axis& axis, const Subject& subject, Kind kind, const PlacementChoices& choices,
                                const std::vector<std::int32_t>& split) {
  std::vector<Option> options;
  if (subject.in_microbatches && is_microbatch_axis(choices, axis.name)) options.emplace_back();
  options.push_back(axis_placement(axis.name, Placement::kReplicate));
  for (const std::int32_t dim : split) {
    const auto d = static_cast<std::size_t>(dim);
    for (const std::string& layout :
         distinct_layouts(axis, subject.local.largest[d], subject.reference.largest[d], choices.layouts)) {
      options.push_back(axis_placement(axis.name, Placement::kShard, dim, layout));
    }
  }
  if (may_be_partial(kind, subject.dtype)) options.push_back(axis_placement(axis.name, Placement::kPartial));
  return options;
}

// The number of shards that `placements` expect along each dimension.
std::vector<std::int64_t> parts_of(const Placements& placements, const Subject& subject, const Axes& axes) {
  std::vector<std::int64_t> parts(subject.local.largest.size(), 1);
  for (const AxisPlacement& placement : placements) {
    if (placement.placement != Placement::kShard) continue;
    for (const Axis& axis : axes) {
      if (axis.name == placement.axis) parts[static_cast<std::size_t>(placement.dim)] *= axis.size;
    }
  }
  return parts;
}

// True where so many shards along each dimension can make up the reference's size.
bool sizes_fit(const Placements& placements, const Subject& subject, const Axes& axes) {
  const std::vector<std::int64_t> parts = parts_of(placements, subject, axes);
  for (std::size_t d = 0; d < parts.size(); ++d) {
    if (parts[d] * subject.local.smallest[d] > subject.reference.largest[d]) return false;
    if (parts[d] * subject.local.largest[d] < subject.reference.smallest[d]) return false;
  }
  return true;
}

// Returns the placements of which one dimension ends in padding, behind the reference's end, and those whose parts
// overlap in it instead, where their sizes fit so.
std::vector<Placements> longer(const Placements& placements, const Subject& subject, const Axes& axes) {
  const std::vector<std::int64_t> parts = parts_of(placements, subject, axes);
  std::optional<std::size_t> split;
  for (std::size_t d = 0; d < parts.size(); ++d) {
    const std::int64_t size = subject.local.largest[d], whole = subject.reference.largest[d];
    if (size != subject.local.smallest[d] || whole != subject.reference.smallest[d]) return {};
    if (parts[d] * size == whole) continue;
    if (split || parts[d] == 1 || size >= whole || parts[d] * size < whole) return {};
    split = d;
  }
  const auto splits = [&](const AxisPlacement& axis) {
    return split && axis.placement == Placement::kShard && static_cast<std::size_t>(axis.dim) == *split;
  };
  const auto outermost = std::find_if(placements.begin(), placements.end(), splits);
  if (outermost == placements.end()) return {};
  const auto at = outermost - placements.begin();
  std::vector<Placements> all = {placements};
  all[0][static_cast<std::size_t>(at)].unpadded = kReferenceExtent;
  const std::int64_t neighbours = parts[*split] - 1;
  const std::int64_t excess = parts[*split] * subject.local.largest[*split] - subject.reference.largest[*split];
  if (excess % neighbours == 0 && std::count_if(placements.begin(), placements.end(), splits) == 1) {
    AxisPlacement& axis = all.emplace_back(placements)[static_cast<std::size_t>(at)];
    axis.layout = "halo";
    axis.options = {{"overlap", {excess / neighbours}}};
  }
  return all;
}

// Counts what is unusual about the placements: a micro-batch axis that is named, a sum, a layout but the first.
int strangeness(const Placements& placements, const PlacementChoices& choices) {
  int strange = 0;
  for (const AxisPlacement& axis : placements) {
    if (is_microbatch_axis(choices, axis.axis)) strange += 1;
    if (axis.placement == Placement::kPartial) strange += 2;
    if (axis.placement == Placement::kShard && axis.layout != choices.layouts[0]) strange += 2;
  }
  return strange;
}

// Adds the placements in every order in which axes that split one dimension can nest.
void add_nesting_orders(Placements placements, std::vector<Placements>& out) {
  std::vector<std::size_t> order;
  std::set<std::int32_t> dims;
  bool nested = false;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    if (placements[i].placement != Placement::kShard) continue;
    order.push_back(i);
    nested = !dims.insert(placements[i].dim).second || nested;
  }
  const std::vector<std::size_t> positions = order;
  do {
    Placements ordered = placements;
    for (std::size_t i = 0; i < positions.size(); ++i) ordered[positions[i]] = placements[order[i]];
    out.push_back(std::move(ordered));
  } while (nested && std::next_permutation(order.begin(), order.end()));
}

// Adds the hypotheses on the axes of one factoring of the ranks; those whose parts are together too long to others.
void add_hypotheses(const Axes& axes, const Subject& subject, Kind kind, const PlacementChoices& choices,
                    const std::vector<std::int32_t>& split, std::vector<Placements>& all,
                    std::vector<Placements>& too_long) {
  // The slower axes come first: most programs let them split outside the faster ones.
  std::vector<Placements> prefixes(1);
  for (std::size_t i = axes.size(); i-- > 0;) {
    std::vector<Placements> longer;
    const std::vector<Option> options = options_for(axes[i], subject, kind, choices, split);
    for (const Placements& placements : prefixes) {
      for (const Option& option : options) {
        longer.push_back(placements);
        if (option) longer.back().push_back(*option);
      }
    }
    prefixes = std::move(longer);
  }
  for (Placements& placements : prefixes) {
    for (Placements& each : longer(placements, subject, axes)) add_nesting_orders(std::move(each), too_long);
    if (sizes_fit(placements, subject, axes)) add_nesting_orders(std::move(placements), all);
  }
}

bool has_axis(const Axes& axes, const std::string& name) {
  return std::any_of(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.name == name; });
}

// Returns the first factoring that has all axes which `placements` name, the one that `align` takes.
const Axes& factoring_with(const Placements& placements, const PlacementChoices& choices) {
  return *std::find_if(choices.factorings.begin(), choices.factorings.end(), [&](const Axes& axes) {
    return std::all_of(placements.begin(), placements.end(),
                       [&](const AxisPlacement& placement) { return has_axis(axes, placement.axis); });
  });
}

}  // namespace

std::vector<Axes> distinct_factorings(const Mesh& mesh) {
  std::vector<Axes> factorings = factorings_of(mesh);
  for (Axes& axes : factorings) std::erase_if(axes, [](const Axis& axis) { return axis.size == 1; });
  const Axes own = factorings[0];
  const auto is_of_experts = [](const Axis& axis, const Axis& other) {
    return axis.size == other.size && (axis.name == other.name || axis.name == "e" + other.name);
  };
  const auto repeats = std::remove_if(factorings.begin() + 1, factorings.end(), [&](const Axes& axes) {
    return std::equal(axes.begin(), axes.end(), own.begin(), own.end(), is_of_experts);
  });
  factorings.erase(repeats, factorings.end());
  return factorings;
}

bool is_microbatch_axis(const PlacementChoices& choices, const std::string& axis) {
  return std::find(choices.microbatch_axes.begin(), choices.microbatch_axes.end(), axis) !=
         choices.microbatch_axes.end();
}

std::vector<Placements> hypotheses_for(const Subject& subject, Kind kind, const PlacementChoices& choices) {
  const ShapeRange &local = subject.local, &whole = subject.reference;
  if (subject.packed) return {};
  if (local.ragged || whole.ragged || whole.empty() || local.largest.size() != whole.largest.size()) return {};
  std::vector<std::int32_t> split;
  for (std::size_t d = 0; d < local.largest.size(); ++d) {
    if (local.largest[d] != whole.largest[d] || local.smallest[d] != whole.smallest[d]) {
      split.push_back(static_cast<std::int32_t>(d));
    }
  }
  std::vector<Placements> all, too_long;
  for (const Axes& axes : choices.factorings) {
    add_hypotheses(axes, subject, kind, choices, split, all, too_long);
  }
  if (all.empty()) all = std::move(too_long);
  std::stable_sort(all.begin(), all.end(), [&](const Placements& a, const Placements& b) {
    return strangeness(a, choices) < strangeness(b, choices);
  });
  std::set<std::string> seen;
  std::erase_if(all, [&](const Placements& placements) {
    return !seen.insert(equivalence_key(placements, choices, subject.in_microbatches)).second;
  });
  return all;
}

std::string role_of(const Placements& placements, const std::string& axis) {
  for (std::size_t i = 0; i < placements.size(); ++i) {
    if (placements[i].axis != axis) continue;
    if (placements[i].placement == Placement::kReplicate) return "replicate";
    if (placements[i].placement == Placement::kPartial) return "partial";
    const auto outer = std::count_if(placements.begin(), placements.begin() + static_cast<std::ptrdiff_t>(i),
                                     [&](const AxisPlacement& other) {
                                       return other.placement == Placement::kShard && other.dim == placements[i].dim;
                                     });
    std::string role = fmt::format("dim {}", placements[i].dim);
    if (placements[i].layout != "contiguous") role += " " + placements[i].layout;
    if (placements[i].unpadded) role += " padded";
    if (outer > 0) role += fmt::format(" inside {} other{}", outer, outer == 1 ? "" : "s");
    return role;
  }
  return "";
}

std::string equivalence_key(const Placements& placements, const PlacementChoices& choices, bool in_microbatches) {
  std::map<std::string, std::string> roles;
  for (const Axes& axes : choices.factorings) {
    for (const Axis& axis : axes) roles[axis.name] = "replicate";
  }
  for (const std::string& axis : choices.microbatch_axes) {
    if (in_microbatches && has_axis(factoring_with(placements, choices), axis)) roles[axis] = "micro-batches";
  }
  for (const AxisPlacement& placement : placements) roles[placement.axis] = role_of(placements, placement.axis);
  std::string key;
  for (const auto& [axis, role] : roles) key += fmt::format("{}: {}; ", axis, role);
  return key;
}

std::string to_string(const AxisPlacement& axis) {
  if (axis.placement == Placement::kReplicate) return axis.axis + ": replicate";
  if (axis.placement == Placement::kPartial) return axis.axis + ": partial";
  const char* const padding = axis.unpadded ? ", unpadded: reference" : "";
  if (axis.layout != "contiguous") {
    return fmt::format("{}: {{dim: {}, layout: {}{}}}", axis.axis, axis.dim, describe_layout(axis), padding);
  }
  if (axis.unpadded) return fmt::format("{}: {{dim: {}{}}}", axis.axis, axis.dim, padding);
  return fmt::format("{}_dim: {}", axis.axis, axis.dim);
}

Placements follower_placements(Placements placements, Kind lead, Kind follower) {
  if (lead == follower || is_parameter_kind(lead)) return placements;
  for (AxisPlacement& axis : placements) {
    if (axis.placement == Placement::kPartial) axis.placement = Placement::kReplicate;
  }
  return placements;
}

}  // namespace ttrace
