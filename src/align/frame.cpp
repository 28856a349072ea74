#include "align/frame.h"

#include <algorithm>
#include <map>

namespace ttrace {
namespace {

std::int64_t product(const std::vector<Digit>& digits) {
  std::int64_t result = 1;
  for (const Digit& digit : digits) result *= digit.size;
  return result;
}

std::int64_t index_of(const std::vector<Digit>& digits, const AxisCoordinates& coordinates) {
  std::int64_t index = 0;
  for (const Digit& digit : digits) {
    index = index * digit.size + (digit.axis < 0 ? 0 : coordinates[static_cast<std::size_t>(digit.axis)]);
  }
  return index;
}

void set_digits(const std::vector<Digit>& digits, std::int64_t index, AxisCoordinates& coordinates) {
  for (std::size_t i = digits.size(); i-- > 0;) {
    if (digits[i].axis >= 0) coordinates[static_cast<std::size_t>(digits[i].axis)] = index % digits[i].size;
    index /= digits[i].size;
  }
}

template <class T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

template <class T>
std::size_t position(const std::vector<T>& sorted, const T& value) {
  return static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
}

std::size_t occurrence_index(const Frame& frame, const Shard& shard) {
  return frame.occurrences.size() == 1 ? 0 : position(frame.occurrences, shard.occurrence);
}

Term term_of(const Frame& frame, const Shard& shard) {
  return {frame.sum_occurrences ? occurrence_index(frame, shard) : 0,
          index_of(frame.partial, shard.holder->coordinates), shard.microbatch};
}

// The terms that the shards belong to. An occurrence and part without any gets the term of micro-batch 0, so that its
// slots are found empty.
std::vector<Term> terms_of(const Frame& frame, const Group& group) {
  std::vector<Term> terms;
  for (const Shard& shard : group.shards) terms.push_back(term_of(frame, shard));
  sort_unique(terms);
  const auto is_there = [&](Term term) {
    const auto found = std::lower_bound(terms.begin(), terms.end(), term);
    return found != terms.end() && found->occurrence == term.occurrence && found->part == term.part;
  };
  std::vector<Term> missing;
  for (std::size_t occurrence = 0; occurrence < (frame.sum_occurrences ? frame.occurrences.size() : 1); ++occurrence) {
    for (std::int64_t part = 0; part < product(frame.partial); ++part) {
      if (!is_there({occurrence, part, 0})) missing.push_back({occurrence, part, 0});
    }
  }
  terms.insert(terms.end(), missing.begin(), missing.end());
  std::sort(terms.begin(), terms.end());
  return terms;
}

// Makes the digits: first of the axes that the rule names, in its order, then of the others, which replicate. The axes
// that are `taken` get no digit.
void set_axes(Frame& frame, const Group& group, const RankTable& table, std::vector<bool> taken) {
  for (const AxisUse& use : group.placement->uses) {
    if (use.axis >= 0) taken[static_cast<std::size_t>(use.axis)] = true;
    const Digit digit{use.axis, use.split.size};
    if (use.placement == Placement::kShard) frame.shard.push_back(digit);
    if (use.placement == Placement::kPartial) frame.partial.push_back(digit);
    if (use.placement == Placement::kReplicate) frame.replicate.push_back(digit);
  }
  const std::vector<std::size_t>& factoring = table.factorings[frame.factoring].axes;
  for (std::size_t i = factoring.size(); i-- > 0;) {
    if (!taken[factoring[i]])
      frame.replicate.push_back({static_cast<int>(factoring[i]), table.axes[factoring[i]].size});
  }
}

}  // namespace

Frame frame_of(const Group& group, const RankTable& table, const FrameAxes& axes) {
  Frame frame;
  frame.factoring = group.placement->factoring;
  frame.base = group.shards[0].holder->coordinates;
  const std::vector<std::size_t>& factoring = table.factorings[frame.factoring].axes;
  const auto is_free = [&](int axis) { return has_axis(factoring, axis) && !names_axis(*group.placement, axis); };
  std::vector<bool> taken(table.axes.size(), false);
  frame.occurrences = {group.shards[0].occurrence};
  if (axes.stage < 0 || is_free(axes.stage)) {
    for (const Shard& shard : group.shards) frame.occurrences.push_back(shard.occurrence);
    sort_unique(frame.occurrences);
    frame.sum_occurrences = group.sum_occurrences;
    frame.stage_axis = axes.stage;
    if (axes.stage >= 0) {
      frame.stages = table.axes[static_cast<std::size_t>(axes.stage)].size;
      taken[static_cast<std::size_t>(axes.stage)] = true;
    }
  }
  for (const int axis : axes.microbatches) {
    if (group.owned) taken[static_cast<std::size_t>(axis)] = true;
    if (group.microbatches == MicrobatchUse::kNone || !is_free(axis)) continue;
    const auto index = static_cast<std::size_t>(axis);
    if (group.microbatches == MicrobatchUse::kSummed) frame.partial.push_back({axis, table.axes[index].size});
    taken[index] = true;
  }
  if (group.expert) taken[static_cast<std::size_t>(axes.expert)] = true;
  set_axes(frame, group, table, std::move(taken));
  frame.sum = terms_of(frame, group);
  frame.replicas_per_occurrence = product(frame.replicate);
  const auto occurrences = frame.sum_occurrences ? 1 : static_cast<std::int64_t>(frame.occurrences.size());
  frame.slots = {occurrences * frame.replicas_per_occurrence, static_cast<std::int64_t>(frame.sum.size()),
                 product(frame.shard)};
  return frame;
}

std::int64_t slot_of(const Frame& frame, const Shard& shard) {
  const AxisCoordinates& coordinates = shard.holder->coordinates;
  const std::int64_t occurrence = frame.sum_occurrences ? 0 : static_cast<std::int64_t>(occurrence_index(frame, shard));
  const std::int64_t replica = occurrence * frame.replicas_per_occurrence + index_of(frame.replicate, coordinates);
  const auto term = static_cast<std::int64_t>(position(frame.sum, term_of(frame, shard)));
  return frame.slots.slot(replica, term, index_of(frame.shard, coordinates));
}

AxisCoordinates coordinates_at(const Frame& frame, std::int64_t slot) {
  AxisCoordinates coordinates = frame.base;
  const Term& term = frame.sum[static_cast<std::size_t>(frame.slots.term_of(slot))];
  set_digits(frame.shard, frame.slots.shard_of(slot), coordinates);
  set_digits(frame.partial, term.part, coordinates);
  const std::int64_t replica = frame.slots.replica_of(slot);
  set_digits(frame.replicate, replica % frame.replicas_per_occurrence, coordinates);
  if (frame.stage_axis >= 0) {
    const auto occurrence =
        frame.sum_occurrences ? term.occurrence : static_cast<std::size_t>(replica / frame.replicas_per_occurrence);
    coordinates[static_cast<std::size_t>(frame.stage_axis)] = frame.occurrences[occurrence].stage % frame.stages;
  }
  return coordinates;
}

}  // namespace ttrace
