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

std::int64_t index_of(const std::vector<Digit>& digits, const Place& place) {
  std::int64_t index = 0;
  for (const Digit& digit : digits) {
    index = index * digit.size + (digit.axis < 0 ? 0 : place[static_cast<std::size_t>(digit.axis)]);
  }
  return index;
}

void set_digits(const std::vector<Digit>& digits, std::int64_t index, Place& place) {
  for (std::size_t i = digits.size(); i-- > 0;) {
    if (digits[i].axis >= 0) place[static_cast<std::size_t>(digits[i].axis)] = index % digits[i].size;
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

std::size_t copy_of(const Frame& frame, const Shard& shard) {
  return frame.copies.size() == 1 ? 0 : position(frame.copies, shard.copy);
}

Term term_of(const Frame& frame, const Shard& shard) {
  return {frame.sum_copies ? copy_of(frame, shard) : 0, index_of(frame.partial, shard.holder->place), shard.microbatch};
}

// Each copy and each part of an axis has its term, of the first micro-batch if of none that was recorded.
std::vector<Term> terms_of(const Frame& frame, const Group& group) {
  std::vector<Term> terms;
  for (const Shard& shard : group.shards) terms.push_back(term_of(frame, shard));
  sort_unique(terms);
  const auto is_there = [&](Term term) {
    const auto found = std::lower_bound(terms.begin(), terms.end(), term);
    return found != terms.end() && found->copy == term.copy && found->part == term.part;
  };
  std::vector<Term> missing;
  for (std::size_t copy = 0; copy < (frame.sum_copies ? frame.copies.size() : 1); ++copy) {
    for (std::int64_t part = 0; part < product(frame.partial); ++part) {
      if (!is_there({copy, part, 0})) missing.push_back({copy, part, 0});
    }
  }
  terms.insert(terms.end(), missing.begin(), missing.end());
  std::sort(terms.begin(), terms.end());
  return terms;
}

// The axes that the rule names, in its order, then the others, which replicate. Those of `taken` are neither.
void set_axes(Frame& frame, const Group& group, const RankTable& table, std::vector<bool> taken) {
  for (const AxisUse& use : group.placement->uses) {
    if (use.axis >= 0) taken[static_cast<std::size_t>(use.axis)] = true;
    const Digit digit{use.axis, use.split.size};
    if (use.placement == Placement::kShard) frame.shard.push_back(digit);
    if (use.placement == Placement::kPartial) frame.partial.push_back(digit);
    if (use.placement == Placement::kReplicate) frame.replicate.push_back(digit);
  }
  const std::vector<std::size_t>& view = table.views[frame.view].axes;
  for (std::size_t i = view.size(); i-- > 0;) {
    if (!taken[view[i]]) frame.replicate.push_back({static_cast<int>(view[i]), table.axes[view[i]].size});
  }
}

}  // namespace

Frame frame_of(const Group& group, const RankTable& table, const FrameAxes& axes) {
  Frame frame;
  frame.view = group.placement->view;
  frame.base = group.shards[0].holder->place;
  const std::vector<std::size_t>& view = table.views[frame.view].axes;
  const auto is_free = [&](int axis) { return has_axis(view, axis) && !names_axis(*group.placement, axis); };
  std::vector<bool> taken(table.axes.size(), false);
  frame.copies = {group.shards[0].copy};
  if (axes.stage < 0 || is_free(axes.stage)) {
    for (const Shard& shard : group.shards) frame.copies.push_back(shard.copy);
    sort_unique(frame.copies);
    frame.sum_copies = group.sum_copies;
    frame.stage_axis = axes.stage;
    if (axes.stage >= 0) {
      frame.stages = table.axes[static_cast<std::size_t>(axes.stage)].size;
      taken[static_cast<std::size_t>(axes.stage)] = true;
    }
  }
  if (group.microbatches != MicrobatchUse::kNone && is_free(axes.microbatch)) {
    const auto axis = static_cast<std::size_t>(axes.microbatch);
    if (group.microbatches == MicrobatchUse::kSummed) frame.partial.push_back({axes.microbatch, table.axes[axis].size});
    taken[axis] = true;
  }
  if (group.expert) taken[static_cast<std::size_t>(axes.expert)] = true;
  set_axes(frame, group, table, std::move(taken));
  frame.sum = terms_of(frame, group);
  frame.replicas_per_copy = product(frame.replicate);
  frame.terms = static_cast<std::int64_t>(frame.sum.size());
  frame.shards = product(frame.shard);
  return frame;
}

std::int64_t slot_of(const Frame& frame, const Shard& shard) {
  const Place& place = shard.holder->place;
  const std::int64_t copy = frame.sum_copies ? 0 : static_cast<std::int64_t>(copy_of(frame, shard));
  const std::int64_t replica = copy * frame.replicas_per_copy + index_of(frame.replicate, place);
  const auto term = static_cast<std::int64_t>(position(frame.sum, term_of(frame, shard)));
  return (replica * frame.terms + term) * frame.shards + index_of(frame.shard, place);
}

Place place_of(const Frame& frame, std::int64_t slot) {
  Place place = frame.base;
  const Term& term = frame.sum[static_cast<std::size_t>(frame.term_of(slot))];
  set_digits(frame.shard, slot % frame.shards, place);
  set_digits(frame.partial, term.part, place);
  const std::int64_t replica = frame.replica_of(slot);
  set_digits(frame.replicate, replica % frame.replicas_per_copy, place);
  if (frame.stage_axis >= 0) {
    const auto copy = frame.sum_copies ? term.copy : static_cast<std::size_t>(replica / frame.replicas_per_copy);
    place[static_cast<std::size_t>(frame.stage_axis)] = frame.copies[copy].stage % frame.stages;
  }
  return place;
}

}  // namespace ttrace
