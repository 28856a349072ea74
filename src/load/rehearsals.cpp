#include "load/rehearsals.h"

#include <algorithm>
#include <iterator>

#include "base/renumbered.h"

namespace ttrace {
namespace {

// Returns the chunk's number among those that are no rehearsals.
std::int32_t renumbered_chunk(const Rehearsals& rehearsals, std::int32_t chunk) {
  const auto behind = rehearsals.chunks.lower_bound(chunk);
  return chunk - static_cast<std::int32_t>(std::distance(rehearsals.chunks.begin(), behind));
}

// Returns the micro-batch's number among those of its chunk and iteration that are no rehearsals.
std::int32_t renumbered_microbatch(const Rehearsals& rehearsals, const TensorId& id) {
  const auto& microbatches = rehearsals.microbatches;
  const auto first = microbatches.lower_bound({id.iteration, id.chunk, 0});
  const auto behind = microbatches.lower_bound({id.iteration, id.chunk, id.microbatch});
  return id.microbatch - static_cast<std::int32_t>(std::distance(first, behind));
}

}  // namespace

void leave_out(const Rehearsals& rehearsals, RankTrace& rank) {
  if (rehearsals.chunks.empty() && rehearsals.microbatches.empty()) return;
  const OfNoModel of_no_model(rank);
  const auto is_rehearsal = [&](const TensorId& id) {
    if (of_no_model.holds(id)) return false;
    return rehearsals.chunks.contains(id.chunk) ||
           rehearsals.microbatches.contains({id.iteration, id.chunk, id.microbatch});
  };
  rank.rehearsed = static_cast<std::int64_t>(
      std::erase_if(rank.entries, [&](const Entry& entry) { return is_rehearsal(entry.id); }));
  for (Entry& entry : rank.entries) {
    if (entry.id.microbatch >= 0) entry.id.microbatch = renumbered_microbatch(rehearsals, entry.id);
  }
  const auto erase_rehearsed = [&](auto& statements, auto names) {
    std::erase_if(statements, [&](const auto& statement) {
      return rehearsals.chunks.contains(statement.chunk) && !are_of_no_module(statement.*names);
    });
  };
  erase_rehearsed(rank.not_seen, &NotSeen::tensors);
  erase_rehearsed(rank.optimizer_steps, &OptimizerStep::parameters);
  erase_rehearsed(rank.trained, &TrainedGroup::parameters);
  renumber_chunks(rank, [&](std::int32_t chunk) { return renumbered_chunk(rehearsals, chunk); });
}

}  // namespace ttrace
