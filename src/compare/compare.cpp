// Pairs are cut into tiles, tiles are measured in batches. A batch is measured by all threads, then its
// results are added in order by the calling thread, then the pages it has read are released: memory in use
// stays near the size of a batch, and no sum depends on which thread was faster.
#include "ttrace/compare/compare.h"

#include <omp.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <stdexcept>

#include <fmt/format.h>

#include "compare/tile.h"

namespace ttrace {
namespace {

constexpr std::int64_t kTileBytes = 2 << 20;  // of both sides
constexpr std::int64_t kLeastTileElements = 16 << 10;
constexpr std::int64_t kBatchBytes = 64 << 20;
constexpr std::int64_t kLeastBytes = 16 << 10;  // that a tile or tensor counts for: its bookkeeping takes memory too
// Pages in between are released along: a fault maps its neighbours too.
constexpr std::ptrdiff_t kGapBytes = 64 << 10;

std::int64_t bytes_of(const LogicalTensor& tensor) {
  std::int64_t bytes = 0;
  for (const Piece& piece : tensor.pieces) bytes += element_count(piece.logical.size) * size_of(piece.entry->dtype);
  return bytes;
}

// One pair of tensors on its way: how the sides lie on each other, and what has been measured.
struct Job {
  Overlay overlay;
  std::vector<Box> tiles;
  std::size_t next_tile = 0;
  std::int64_t bytes = 0;
  TileDifference sum;
};

Job job_for(const TensorPair& pair) {
  const Shape& shape = pair.reference->shape;
  Job job;
  job.overlay = overlay(*pair.reference, *pair.candidate);
  job.bytes = bytes_of(*pair.reference) + bytes_of(*pair.candidate);
  const std::int64_t bytes_an_element = job.bytes / std::max<std::int64_t>(element_count(shape), 1);
  const std::int64_t elements = kTileBytes / std::max<std::int64_t>(bytes_an_element, 1);
  job.tiles = tiles_of(shape, std::max(elements, kLeastTileElements));
  job.sum.candidate_replicas.resize(job.overlay.candidate_replicas.size());
  job.sum.reference_replicas.resize(job.overlay.reference_replicas.size());
  return job;
}

struct Work {
  Job* job;
  Box tile;
  TileDifference result;
};

// Calls `body(i)` for every i below `count` on `threads` threads. The first exception in order of i is
// thrown here, after all threads have finished: none may cross the end of the region, none may be lost.
template <class Body>
void parallel_for(std::size_t count, int threads, Body body) {
  std::vector<std::exception_ptr> failures(count);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (count > 1)
  for (std::size_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

void add_result(Job& job, const TileDifference& tile) {
  add_part(job.sum.difference, tile.difference);
  for (std::size_t i = 0; i < tile.candidate_replicas.size(); ++i) {
    add_part(job.sum.candidate_replicas[i], tile.candidate_replicas[i]);
  }
  for (std::size_t i = 0; i < tile.reference_replicas.size(); ++i) {
    add_part(job.sum.reference_replicas[i], tile.reference_replicas[i]);
  }
}

void release_pages(const std::vector<Work>& batch, int threads) {
  std::vector<PageRange> ranges;
  for (const Work& work : batch) ranges.insert(ranges.end(), work.result.read.begin(), work.result.read.end());
  std::sort(ranges.begin(), ranges.end(), [](const PageRange& a, const PageRange& b) { return a.begin < b.begin; });
  std::vector<PageRange> merged;
  for (const PageRange& range : ranges) {
    if (!merged.empty() && merged.back().file == range.file && range.begin - merged.back().end <= kGapBytes) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else {
      merged.push_back(range);
    }
  }
  parallel_for(merged.size(), threads, [&](std::size_t i) {
    merged[i].file->release(merged[i].begin, static_cast<std::uint64_t>(merged[i].end - merged[i].begin));
  });
}

// Takes tiles from the unfinished job at the back of `jobs`, then from new jobs for the pairs that follow.
std::vector<Work> next_batch(std::deque<Job>& jobs, std::span<const TensorPair> pairs, std::size_t& next_pair) {
  std::vector<Work> batch;
  std::int64_t bytes = 0;
  while (bytes < kBatchBytes) {
    if (jobs.empty() || jobs.back().next_tile == jobs.back().tiles.size()) {
      if (next_pair == pairs.size()) break;
      jobs.push_back(job_for(pairs[next_pair++]));
      bytes += kLeastBytes;
      continue;
    }
    Job& job = jobs.back();
    bytes += std::max(job.bytes / static_cast<std::int64_t>(job.tiles.size()), kLeastBytes);
    batch.push_back({&job, job.tiles[job.next_tile++], {}});
  }
  return batch;
}

// The sums of every pair, over all of its tiles.
std::vector<TileDifference> measure_pairs(std::span<const TensorPair> pairs, int threads,
                                          const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  std::uint64_t done = 0, all = 0;
  for (const TensorPair& pair : pairs) {
    all += static_cast<std::uint64_t>(bytes_of(*pair.reference) + bytes_of(*pair.candidate));
  }
  std::vector<TileDifference> results;
  results.reserve(pairs.size());
  std::deque<Job> jobs;  // a deque: work points at its job
  for (std::size_t next_pair = 0; results.size() < pairs.size();) {
    std::vector<Work> batch = next_batch(jobs, pairs, next_pair);
    parallel_for(batch.size(), threads,
                 [&](std::size_t i) { batch[i].result = measure_tile(batch[i].job->overlay, batch[i].tile); });
    for (const Work& work : batch) add_result(*work.job, work.result);
    release_pages(batch, threads);
    while (!jobs.empty() && jobs.front().next_tile == jobs.front().tiles.size()) {
      done += static_cast<std::uint64_t>(jobs.front().bytes);
      results.push_back(std::move(jobs.front().sum));
      jobs.pop_front();
    }
    if (progress) progress(done, all);
  }
  return results;
}

// Every element must have been looked at, once. `align` has shown it; a silent pass would be the worst
// that could happen here, so it is counted.
void require_coverage(const TensorPair& pair, const Difference& difference) {
  const std::int64_t elements = element_count(pair.reference->shape);
  if (difference.elements == elements) return;
  throw std::logic_error(fmt::format("{}: {} of {} elements were compared", to_string(pair.reference->id),
                                     difference.elements, elements));
}

bool is_worse(const Difference& a, const Difference& b) {
  if (a.nonfinite_mismatch != b.nonfinite_mismatch) return a.nonfinite_mismatch > b.nonfinite_mismatch;
  return a.rel_err() > b.rel_err();
}

// Copies that disagree are each held against the reference: a wrong second copy fails on its own merits.
Difference worst_copy(const TensorPair& pair, TileDifference& sum, int threads) {
  Difference worst = std::move(sum.difference);
  for (std::size_t i = 0; i < sum.candidate_replicas.size(); ++i) {
    if (sum.candidate_replicas[i].ranks.empty()) continue;
    const LogicalTensor seen = seen_by_replica(*pair.candidate, static_cast<std::int32_t>(i) + 1);
    const TensorPair copy{pair.reference, &seen};
    Difference difference = std::move(measure_pairs({&copy, 1}, threads, {}).front().difference);
    require_coverage(copy, difference);
    if (is_worse(difference, worst)) worst = std::move(difference);
  }
  return worst;
}

void set_replicas(const std::vector<ReplicaDifference>& replicas, double& square, std::vector<std::int32_t>& ranks) {
  ReplicaDifference all;
  for (const ReplicaDifference& replica : replicas) {
    square = std::max(square, replica.square);
    add_part(all, replica);
  }
  ranks = std::move(all.ranks);
}

}  // namespace

std::vector<Difference> compare(std::span<const TensorPair> pairs, const CompareOptions& options) {
  const int threads = options.threads > 0 ? options.threads : omp_get_max_threads();
  std::vector<TileDifference> sums = measure_pairs(pairs, threads, options.progress);
  std::vector<Difference> differences;
  differences.reserve(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    require_coverage(pairs[i], sums[i].difference);
    Difference difference = worst_copy(pairs[i], sums[i], threads);
    set_replicas(sums[i].candidate_replicas, difference.replica_square, difference.replica_ranks);
    set_replicas(sums[i].reference_replicas, difference.reference_replica_square, difference.reference_replica_ranks);
    differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace ttrace
