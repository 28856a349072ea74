#include "annotate/without_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// Counts pairs of ranks that are neighbours along one axis and recorded the same tensor, by how their shards compare.
struct Neighbours {
  std::int64_t same = 0, constant = 0, different = 0;  // constant: same bits, but every element equals the next
  std::int64_t other_shape = 0;
  std::optional<std::size_t> dim;  // the first dimension in which the last pair of other shape differs
};

bool is_constant(const std::byte* data, const Entry& entry) {
  const auto element = static_cast<std::uint64_t>(size_of(entry.dtype));
  return entry.bytes <= element || std::memcmp(data, data + element, entry.bytes - element) == 0;
}

void add(Neighbours& neighbours, const RecordedShard& held_a, const RecordedShard& held_b) {
  const Entry &in_a = *held_a.entry, &in_b = *held_b.entry;
  const std::byte *a = held_a.rank->bytes_of(in_a), *b = held_b.rank->bytes_of(in_b);
  if (in_a.shape != in_b.shape || in_a.dtype != in_b.dtype) {
    ++neighbours.other_shape;
    if (in_a.shape.size() != in_b.shape.size()) return;
    const auto [at, ignored] = std::mismatch(in_a.shape.begin(), in_a.shape.end(), in_b.shape.begin());
    neighbours.dim = static_cast<std::size_t>(at - in_a.shape.begin());
  } else if (std::memcmp(a, b, in_a.bytes) != 0) {
    ++neighbours.different;
  } else if (is_constant(a, in_a)) {
    ++neighbours.constant;
  } else {
    ++neighbours.same;
  }
}

// Compares each rank with the first that has the same coordinates on all axes but `axis`. `other_axes`, which belong to
// other factorings of the ranks, are ignored.
Neighbours compare_along(const Subject& subject, const std::string& axis, const std::set<std::string>& other_axes) {
  std::map<std::tuple<Coordinates, std::int32_t, std::int32_t, std::int32_t, Pass, std::string>, RecordedShard> first;
  Neighbours neighbours;
  for (const RecordedShard& held : subject.shards) {
    Coordinates others = held.rank->coordinates;
    others.erase(axis);
    std::erase_if(others, [&](const auto& coordinate) { return other_axes.contains(coordinate.first); });
    const TensorId& id = held.entry->id;
    const auto [found, is_first] =
        first.try_emplace({others, id.iteration, id.microbatch, id.chunk, id.pass, id.name}, held);
    if (!is_first) add(neighbours, found->second, held);
  }
  return neighbours;
}

// Lists what the axis might do to the tensor, as a rule would write it: `tp_dim: 0, or tp_dim: 1, or tp: partial`.
std::string describe_possible_roles(const Axis& axis, const Subject& subject, Kind kind) {
  std::vector<std::string> words;
  for (std::size_t d = 0; d < subject.local.largest.size(); ++d)
    words.push_back(fmt::format("{}_dim: {}", axis.name, d));
  if (!is_parameter_kind(kind) || kind == Kind::kParamGrad) words.push_back(axis.name + ": partial");
  return fmt::format("{}", fmt::join(words, ", or "));
}

// The comparisons along each axis of one factoring of the ranks.
using AxisComparisons = std::vector<std::pair<Axis, Neighbours>>;

AxisComparisons compare_along_axes(const Axes& axes, const Subject& subject, const PlacementChoices& choices) {
  std::set<std::string> other_axes;
  for (const Axes& others : choices.factorings) {
    for (const Axis& axis : others) other_axes.insert(axis.name);
  }
  for (const Axis& axis : axes) other_axes.erase(axis.name);
  AxisComparisons comparison;
  for (const Axis& axis : axes) {
    if (subject.in_microbatches && is_microbatch_axis(choices, axis.name)) continue;
    comparison.emplace_back(axis, compare_along(subject, axis.name, other_axes));
  }
  return comparison;
}

// True when along each axis either all pairs of ranks hold the same bits or none do: so it is with the axes of the
// factoring by which the program placed the tensor.
bool is_consistent(const AxisComparisons& comparison) {
  return std::all_of(comparison.begin(), comparison.end(), [](const auto& item) {
    const Neighbours& found = item.second;
    return found.same + found.constant == 0 || found.different + found.other_shape == 0;
  });
}

// Returns the comparisons on the first factoring that is consistent, or on the mesh's own where none is.
AxisComparisons compare_ranks(const Subject& subject, const PlacementChoices& choices) {
  std::vector<AxisComparisons> comparisons;
  for (const Axes& axes : choices.factorings) comparisons.push_back(compare_along_axes(axes, subject, choices));
  const auto consistent = std::find_if(comparisons.begin(), comparisons.end(), is_consistent);
  return consistent == comparisons.end() ? comparisons[0] : *consistent;
}

}  // namespace

SubjectObservation observe_without_reference(const SubjectKey& key, const Subject& subject,
                                             const PlacementChoices& choices) {
  SubjectObservation seen;
  seen.order = subject.order;
  const auto add_axis = [&](const std::string& axis, Placement placement, std::size_t dim, bool certain,
                            std::string why) {
    AxisPlacement along;
    along.axis = axis;
    along.placement = placement;
    along.dim = static_cast<std::int32_t>(dim);
    seen.axes.push_back({along, certain, placement == Placement::kReplicate, std::move(why)});
  };
  const std::size_t dims = subject.local.ragged ? 0 : subject.local.largest.size();
  for (const auto& [axis, found] : compare_ranks(subject, choices)) {
    const std::int64_t equal = found.same + found.constant;
    if (found.other_shape > 0 && found.dim) {
      add_axis(axis.name, Placement::kShard, *found.dim, false,
               fmt::format("{} pairs of ranks differ in its size, and there is no reference", found.other_shape));
    } else if (found.different == 0 && found.other_shape == 0) {
      add_axis(axis.name, Placement::kReplicate, 0, found.same > 0,
               fmt::format("{} pairs of ranks, the same bits{}", equal, found.same > 0 ? "" : ", but constant ones"));
    } else if (dims == 1 && is_parameter_kind(key.second) && key.second != Kind::kParamGrad) {
      add_axis(axis.name, Placement::kShard, 0, false,
               fmt::format("{} pairs of ranks differ, and there is no reference", found.different));
    } else {
      seen.remark += fmt::format("{}{} of {} pairs of ranks along {} differ: {}?", seen.remark.empty() ? "" : "; ",
                                 found.different + found.other_shape, found.different + found.other_shape + equal,
                                 axis.name, describe_possible_roles(axis, subject, key.second));
    }
  }
  if (!seen.remark.empty()) seen.axes.clear();
  return seen;
}

}  // namespace ttrace
