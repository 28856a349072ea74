#include "annotate/alone.h"

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

// Neighbours along one axis that hold the same tensor, counted.
struct Neighbours {
  std::int64_t same = 0, constant = 0, different = 0;  // constant: the same too, but so is every element
  std::int64_t other_shape = 0;
  std::optional<std::size_t> dim;  // the one in which shapes differ, of the last that do
};

bool is_constant(const std::byte* data, const Entry& entry) {
  const auto element = static_cast<std::uint64_t>(size_of(entry.dtype));
  return entry.bytes <= element || std::memcmp(data, data + element, entry.bytes - element) == 0;
}

void add(Neighbours& neighbours, const HeldEntry& held_a, const HeldEntry& held_b) {
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

// Ranks that differ in `axis` alone of all axes but those of `elsewhere`, each with the first of them.
Neighbours compare_along(const Subject& subject, const std::string& axis, const std::set<std::string>& elsewhere) {
  std::map<std::tuple<Coordinates, std::int32_t, std::int32_t, std::int32_t, Pass, std::string>, HeldEntry> first;
  Neighbours neighbours;
  for (const HeldEntry& held : subject.shards) {
    Coordinates others = held.rank->coordinates;
    others.erase(axis);
    std::erase_if(others, [&](const auto& coordinate) { return elsewhere.contains(coordinate.first); });
    const TensorId& id = held.entry->id;
    const auto [found, is_first] =
        first.try_emplace({others, id.iteration, id.microbatch, id.chunk, id.pass, id.name}, held);
    if (!is_first) add(neighbours, found->second, held);
  }
  return neighbours;
}

// The dimensions that might be split, or a sum, in words.
std::string alternatives(const Axis& axis, const Subject& subject, Kind kind) {
  std::vector<std::string> words;
  for (std::size_t d = 0; d < subject.local.largest.size(); ++d)
    words.push_back(fmt::format("{}_dim: {}", axis.name, d));
  if (!is_parameter_kind(kind) || kind == Kind::kParamGrad) words.push_back(axis.name + ": partial");
  return fmt::format("{}", fmt::join(words, ", or "));
}

// By axis of one factoring of the ranks.
using Comparison = std::vector<std::pair<Axis, Neighbours>>;

Comparison compare_on(const Axes& axes, const Subject& subject, const Choices& choices) {
  std::set<std::string> elsewhere;
  for (const Axes& others : choices.factorings) {
    for (const Axis& axis : others) elsewhere.insert(axis.name);
  }
  for (const Axis& axis : axes) elsewhere.erase(axis.name);
  Comparison comparison;
  for (const Axis& axis : axes) {
    if (subject.in_microbatches && axis.name == choices.microbatch_axis) continue;
    comparison.emplace_back(axis, compare_along(subject, axis.name, elsewhere));
  }
  return comparison;
}

// Along each axis all ranks hold the same, or none do: so it is on the factoring that the tensor lies on.
bool is_clear(const Comparison& comparison) {
  return std::all_of(comparison.begin(), comparison.end(), [](const auto& item) {
    const Neighbours& found = item.second;
    return found.same + found.constant == 0 || found.different + found.other_shape == 0;
  });
}

// On the first factoring that is clear, or on the mesh's own.
Comparison compare_ranks(const Subject& subject, const Choices& choices) {
  std::vector<Comparison> comparisons;
  for (const Axes& axes : choices.factorings) comparisons.push_back(compare_on(axes, subject, choices));
  const auto clear = std::find_if(comparisons.begin(), comparisons.end(), is_clear);
  return clear == comparisons.end() ? comparisons[0] : *clear;
}

}  // namespace

DraftRule propose_alone(const SubjectKey& key, const Subject& subject, const Choices& choices) {
  DraftRule rule;
  std::vector<std::pair<std::string, DraftLine>> replicated;
  const std::size_t dims = subject.local.ragged ? 0 : subject.local.largest.size();
  for (const auto& [axis, found] : compare_ranks(subject, choices)) {
    const std::int64_t equal = found.same + found.constant;
    if (found.other_shape > 0 && found.dim) {
      rule.lines.push_back(
          {fmt::format("{}_dim: {}", axis.name, *found.dim), false,
           fmt::format("{} pairs of ranks differ in its size, and there is no reference", found.other_shape)});
    } else if (found.different == 0 && found.other_shape == 0) {
      DraftLine line{axis.name + ": replicate", found.same > 0, fmt::format("{} pairs of ranks, the same bits", equal)};
      if (!line.certain) line.why += ", but constant ones";
      replicated.emplace_back(axis.name, std::move(line));
    } else if (dims == 1 && is_parameter_kind(key.second) && key.second != Kind::kParamGrad) {
      rule.lines.push_back({fmt::format("{}_dim: 0", axis.name), false,
                            fmt::format("{} pairs of ranks differ, and there is no reference", found.different)});
    } else {
      rule.remark += fmt::format("{}{} of {} pairs of ranks along {} differ: {}?", rule.remark.empty() ? "" : "; ",
                                 found.different + found.other_shape, found.different + found.other_shape + equal,
                                 axis.name, alternatives(axis, subject, key.second));
    }
  }
  if (!rule.remark.empty()) {
    rule.lines.clear();
    return rule;
  }
  // Named only where there is a doubt, or nothing else to say.
  for (const auto& [axis, line] : replicated) {
    if (!line.certain || (rule.lines.empty() && axis == choices.spare_axis)) rule.lines.push_back(line);
  }
  if (rule.lines.empty()) {
    rule.lines.push_back(
        {is_parameter_kind(key.second) ? choices.spare_axis + ": replicate" : "{}", true,
         replicated.empty() ? "no axis is left on which ranks could differ" : replicated[0].second.why});
  }
  return rule;
}

}  // namespace ttrace
