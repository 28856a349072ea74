#include "align/frame.h"

#include <algorithm>

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

std::vector<std::int64_t> holding_stages(const Group& group, int stage_axis) {
  std::vector<std::int64_t> stages;
  for (const Shard& shard : group.shards) stages.push_back(shard.holder->place[static_cast<std::size_t>(stage_axis)]);
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  return stages;
}

}  // namespace

Frame frame_of(const Group& group, const Mesh& mesh, int stage_axis, int microbatch_axis) {
  Frame frame;
  frame.base = group.shards[0].holder->place;
  std::vector<bool> taken(mesh.axes.size(), false);
  for (const AxisUse& use : group.placement->uses) {
    if (use.axis >= 0) taken[static_cast<std::size_t>(use.axis)] = true;
    const Digit digit{use.axis, use.split.size};
    if (use.placement == Placement::kShard) frame.shard.push_back(digit);
    if (use.placement == Placement::kPartial) frame.partial.push_back(digit);
    if (use.placement == Placement::kReplicate) frame.replicate.push_back(digit);
  }
  frame.stages = {0};
  if (stage_axis >= 0 && !taken[static_cast<std::size_t>(stage_axis)]) {
    taken[static_cast<std::size_t>(stage_axis)] = true;
    frame.stage_axis = stage_axis;
    frame.stages = holding_stages(group, stage_axis);
  }
  if (group.selected) taken[static_cast<std::size_t>(microbatch_axis)] = true;
  for (std::size_t i = mesh.axes.size(); i-- > 0;) {
    if (!taken[i]) frame.replicate.push_back({static_cast<int>(i), mesh.axes[i].size});
  }
  frame.replicas_per_stage = product(frame.replicate);
  frame.terms = product(frame.partial);
  frame.shards = product(frame.shard);
  return frame;
}

std::int64_t slot_of(const Frame& frame, const Place& place) {
  std::int64_t stage = 0;
  if (frame.stage_axis >= 0) {
    const std::int64_t coordinate = place[static_cast<std::size_t>(frame.stage_axis)];
    stage = std::lower_bound(frame.stages.begin(), frame.stages.end(), coordinate) - frame.stages.begin();
  }
  const std::int64_t replica = stage * frame.replicas_per_stage + index_of(frame.replicate, place);
  return (replica * frame.terms + index_of(frame.partial, place)) * frame.shards + index_of(frame.shard, place);
}

Place place_of(const Frame& frame, std::int64_t slot) {
  Place place = frame.base;
  set_digits(frame.shard, slot % frame.shards, place);
  set_digits(frame.partial, frame.term_of(slot), place);
  const std::int64_t replica = frame.replica_of(slot);
  set_digits(frame.replicate, replica % frame.replicas_per_stage, place);
  if (frame.stage_axis >= 0) {
    place[static_cast<std::size_t>(frame.stage_axis)] =
        frame.stages[static_cast<std::size_t>(replica / frame.replicas_per_stage)];
  }
  return place;
}

}  // namespace ttrace
