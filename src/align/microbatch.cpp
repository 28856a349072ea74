#include "align/microbatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "align/describe.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

constexpr std::size_t kListed = 8;

std::vector<std::int32_t> ranks_at(const RankTable& table, std::size_t axis, const std::vector<bool>& coordinates) {
  std::vector<std::int32_t> ranks;
  for (const PresentRank& rank : table.ranks) {
    if (coordinates[static_cast<std::size_t>(rank.coordinates[axis])]) ranks.push_back(rank.trace->rank);
  }
  return ranks;
}

// The first micro-batch of each coordinate's block. A coordinate whose ranks are all missing is taken to have run as
// many as the busiest one, so that the blocks after it keep their numbers.
std::vector<std::int64_t> starts_of_blocks(const std::vector<std::int64_t>& counts) {
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  std::vector<std::int64_t> starts;
  std::int64_t start = 0;
  for (const std::int64_t count : counts) {
    starts.push_back(start);
    start += count == 0 ? most : count;
  }
  return starts;
}

}  // namespace

Microbatches microbatches_of(const RankTable& table, const Annotations& annotations) {
  Microbatches result;
  const int axis = axis_index(table.mesh, annotations.microbatch_axis);
  if (axis < 0) return result;
  result.axis = axis;
  result.order = annotations.microbatch_order;
  result.ranks = table.axes[static_cast<std::size_t>(axis)].size;
  for (const PresentRank& rank : table.ranks) {
    const auto coordinate = static_cast<std::size_t>(coordinate_on(rank, axis));
    for (const Entry& entry : rank.trace->entries) {
      if (entry.id.microbatch < 0) continue;
      std::vector<std::int64_t>& counts = result.counts[entry.id.iteration];
      counts.resize(static_cast<std::size_t>(result.ranks), 0);
      counts[coordinate] = std::max(counts[coordinate], std::int64_t{entry.id.microbatch} + 1);
    }
  }
  for (const auto& [iteration, counts] : result.counts) result.block_starts[iteration] = starts_of_blocks(counts);
  return result;
}

std::int32_t global_microbatch(const Microbatches& microbatches, std::int32_t iteration, std::int64_t coordinate,
                               std::int32_t local) {
  const std::int64_t global =
      microbatches.order == MicrobatchOrder::kInterleaved
          ? local * microbatches.ranks + coordinate
          : microbatches.block_starts.at(iteration)[static_cast<std::size_t>(coordinate)] + local;
  if (global > std::numeric_limits<std::int32_t>::max()) {
    throw InputError(
        fmt::format("iteration {}: micro-batch {} on one of {} data-parallel ranks; expected fewer than "
                    "2^31 in all",
                    iteration, local, microbatches.ranks));
  }
  return static_cast<std::int32_t>(global);
}

std::vector<Finding> find_skipped_microbatches(const RankTable& table, const Microbatches& microbatches) {
  std::vector<Finding> findings;
  if (microbatches.axis < 0 || microbatches.order == MicrobatchOrder::kBlocked) return findings;
  const std::int64_t step = microbatches.ranks;
  for (const auto& [iteration, counts] : microbatches.counts) {
    std::int64_t last = -1;
    for (std::int64_t c = 0; c < step; ++c) last = std::max(last, (counts[static_cast<std::size_t>(c)] - 1) * step + c);
    std::int64_t holes = 0;
    std::vector<std::int64_t> first_holes;
    std::vector<bool> behind(counts.size(), false);
    for (std::int64_t c = 0; c < step; ++c) {
      const std::int64_t begin = counts[static_cast<std::size_t>(c)];
      const std::int64_t end = last < c ? 0 : (last - c) / step + 1;  // how many it would have run up to `last`
      if (begin >= end) continue;
      behind[static_cast<std::size_t>(c)] = true;
      holes += end - begin;
      for (std::int64_t m = begin; m < std::min<std::int64_t>(end, begin + std::int64_t{kListed}); ++m) {
        first_holes.push_back(m * step + c);
      }
    }
    if (holes == 0) continue;
    std::sort(first_holes.begin(), first_holes.end());
    std::vector<std::string> words;
    for (const std::int64_t m : first_holes) words.push_back(std::to_string(m));
    words.resize(std::min(words.size(), kListed));
    Finding finding;
    finding.id.iteration = iteration;
    finding.verdict = Verdict::kMissing;
    finding.reason = Reason::kOmission;
    finding.ranks = ranks_at(table, static_cast<std::size_t>(microbatches.axis), behind);
    finding.message = fmt::format(
        "iteration {}: {} of {} micro-batches ({}{}) were run by no rank: along {} the ranks ran {} of them", iteration,
        holes, last + 1, fmt::join(words, ", "), holes > static_cast<std::int64_t>(words.size()) ? ", ..." : "",
        table.axes[static_cast<std::size_t>(microbatches.axis)].name, fmt::join(counts, ", "));
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace ttrace
