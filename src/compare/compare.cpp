// Measures one of the pairs that are made of the same bytes. Pairs are cut into tiles. All threads read and measure
// tiles, and release the pages of those that they read in place; the calling thread then adds the tiles' results in
// order. So no sum depends on which thread was faster, and memory in use stays small. Batches are large, because at the
// end of each the threads wait for each other, which is long on a machine with other work to do.
//
// Memory is the limit. The checksums bring a tile into the caches, as they ask for little else, and the comparison finds
// it there. Smaller tiles stay in a core's second-level cache, but to cut and clip each takes longer than that saves.
#include "compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "base/parallel_for.h"
#include "compare/checksums.h"
#include "compare/in_place.h"
#include "compare/pages.h"
#include "compare/repeats.h"
#include "compare/sketches.h"
#include "compare/tile.h"

namespace ttrace {
namespace {

using Progress = std::function<void(std::uint64_t, std::uint64_t)>;

constexpr std::int64_t kTileBytes = 2 << 20;  // of both sides
constexpr std::int64_t kLeastTileElements = 16 << 10;
constexpr std::size_t kBatchTiles = 8192;
constexpr std::uint64_t kProgressBytes = 64 << 20;

std::uint64_t bytes_of(const TensorPair& pair) { return pair.reference->bytes + pair.candidate->bytes; }

std::vector<Box> cut_into_tiles(const TensorPair& pair) {
  const Shape& shape = pair.reference->shape;
  const std::int64_t elements = std::max<std::int64_t>(element_count(shape), 1);
  const std::int64_t bytes_an_element = std::max<std::int64_t>(static_cast<std::int64_t>(bytes_of(pair)) / elements, 1);
  return tiles_of(shape, std::max(kTileBytes / bytes_an_element, kLeastTileElements));
}

// Counts bytes on all threads, and reports progress from the calling thread.
class ProgressMeter {
 public:
  ProgressMeter(const Progress& progress, std::span<const TensorPair> pairs) : progress_(progress) {
    for (const TensorPair& pair : pairs) total_ += bytes_of(pair);
  }
  void add(std::uint64_t bytes) {
    done_ += bytes;
    if (thread_number() == 0 && done_ >= reported_ + kProgressBytes) report_progress();
  }
  void report_progress() {
    reported_ = done_;
    if (progress_) progress_(reported_, total_);
  }

 private:
  const Progress& progress_;
  std::atomic<std::uint64_t> done_ = 0;
  std::uint64_t reported_ = 0, total_ = 0;  // the calling thread alone uses these
};

struct TileTask {
  std::size_t pair;
  Box tile;
  std::uint64_t bytes;
  TileDifference result;
};

// Cuts `pairs` from the first on into tiles, until the batch is full. Sets `count` to the number of pairs, which are
// whole and at least one.
std::vector<TileTask> next_batch(std::span<const TensorPair> pairs, std::size_t& count) {
  std::vector<TileTask> batch;
  for (count = 0; count < pairs.size() && batch.size() + count < kBatchTiles; ++count) {
    const std::vector<Box> tiles = cut_into_tiles(pairs[count]);
    for (const Box& tile : tiles) batch.push_back({count, tile, bytes_of(pairs[count]) / tiles.size(), {}});
  }
  return batch;
}

// Tiles of a batch that one thread goes through, one after the other.
struct TileRun {
  std::size_t begin, end;
};

constexpr std::uint64_t kRunsPerThread = 8;  // at least, or else threads that are done wait long for the last

// The tiles of a pair are one run, so that the thread that reads them takes its checksums on, which it must do in order.
// Where that would keep other threads waiting, each tile is one.
std::vector<TileRun> runs_of(const std::vector<TileTask>& batch, int threads) {
  std::uint64_t most = 0;
  for (const TileTask& task : batch) most += task.bytes;
  most /= kRunsPerThread * static_cast<std::uint64_t>(threads);
  std::vector<TileRun> runs;
  for (std::size_t begin = 0, end = 0; begin < batch.size(); begin = end) {
    std::uint64_t bytes = 0;
    for (; end < batch.size() && batch[end].pair == batch[begin].pair; ++end) bytes += batch[end].bytes;
    if (bytes <= most) {
      runs.push_back({begin, end});
      continue;
    }
    for (std::size_t i = begin; i < end; ++i) runs.push_back({i, i + 1});
  }
  return runs;
}

// Ends the row whose parts came last.
void end_row(TileDifference& sum) {
  if (sum.part) add_row(sum.difference, *sum.part);
  sum.part.reset();
}

void add_result(TileDifference& sum, const TileDifference& tile) {
  add_part(sum.difference, tile.difference);
  if (tile.part && sum.part && tile.part->row == sum.part->row) {
    sum.part->square += tile.part->square;
  } else if (tile.part) {
    end_row(sum);
    sum.part = tile.part;
  }
  for (std::size_t i = 0; i < tile.candidate_replicas.size(); ++i) {
    add_part(sum.candidate_replicas[i], tile.candidate_replicas[i]);
  }
  for (std::size_t i = 0; i < tile.reference_replicas.size(); ++i) {
    add_part(sum.reference_replicas[i], tile.reference_replicas[i]);
  }
}

// Holds what a thread reads tiles with.
struct TileReader {
  TileBuffers buffers;
  InPlaceChoice choice;
  ReadPages pages;
};

// Says how to go through the pairs.
struct Pass {
  int threads;
  bool checksums;                    // verify those of the tensors that are read
  std::vector<TileReader>& readers;  // one a thread
};

TileDifference read_and_measure(const Overlay& overlay, const Box& tile, const Rows& rows, TileReader& reader,
                                Checksums& checksums) {
  TileBuffer& buffer = reader.buffers.next();
  const OpenTile open = open_tile(overlay, tile, buffer, reader.choice.next());
  checksums.follow(open.read, reader.buffers.may_hold(buffer));
  TileDifference difference = measure_tile(open, overlay, tile, rows);
  reader.choice.add(open.read);
  reader.pages.add(open.read);
  return difference;
}

// Measures a batch, and appends the sums of each of its pairs to `results`.
void measure_batch(std::span<const TensorPair> pairs, std::vector<TileTask>& batch, const Pass& pass,
                   ProgressMeter& meter, std::vector<TileDifference>& results) {
  const int threads = pass.threads;
  std::vector<Overlay> overlays(pairs.size());
  std::vector<Rows> rows;
  for (const TensorPair& pair : pairs) rows.push_back(rows_of(pair.reference->shape, pair.reference->dtype));
  parallel_for(pairs.size(), threads,
               [&](std::size_t i) { overlays[i] = overlay(*pairs[i].reference, *pairs[i].candidate); });
  Checksums checksums(pass.checksums ? overlays : std::vector<Overlay>());
  const std::vector<TileRun> runs = runs_of(batch, threads);
  parallel_for(runs.size(), threads, [&](std::size_t run) {
    TileReader& reader = pass.readers[thread_number()];
    for (std::size_t i = runs[run].begin; i < runs[run].end; ++i) {
      TileTask& task = batch[i];
      task.result = read_and_measure(overlays[task.pair], task.tile, rows[task.pair], reader, checksums);
      meter.add(task.bytes);
    }
  });
  parallel_for(checksums.size(), threads, [&](std::size_t i) { checksums.finish(i); });
  for (TileReader& reader : pass.readers) reader.pages.release();
  const std::size_t first = results.size();
  for (const Overlay& overlay : overlays) {
    results.emplace_back();
    results.back().candidate_replicas.resize(overlay.candidate_replicas.size());
    results.back().reference_replicas.resize(overlay.reference_replicas.size());
  }
  for (const TileTask& task : batch) add_result(results[first + task.pair], task.result);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    end_row(results[first + i]);
    if (rows[i].width > 0) results[first + i].difference.rows = element_count(rows[i].outer);
  }
}

// Returns the sums of every pair over all of its tiles. `checksums`: verify those of the tensors that are read.
std::vector<TileDifference> measure_pairs(std::span<const TensorPair> pairs, int threads, bool checksums,
                                          const Progress& progress) {
  std::vector<TileReader> readers(static_cast<std::size_t>(threads));
  const Pass pass{threads, checksums, readers};
  ProgressMeter meter(progress, pairs);
  std::vector<TileDifference> results;
  results.reserve(pairs.size());
  while (results.size() < pairs.size()) {
    const std::span<const TensorPair> left = pairs.subspan(results.size());
    std::size_t count = 0;
    std::vector<TileTask> batch = next_batch(left, count);
    measure_batch(left.first(count), batch, pass, meter, results);
  }
  meter.report_progress();
  return results;
}

// Requires that every element was compared, once. `align` has shown that replica 0 covers the tensor; but a silent pass
// would be the worst that could happen here, so the elements are counted.
void require_coverage(const TensorPair& pair, const Difference& difference) {
  const std::int64_t elements = element_count(pair.reference->shape);
  if (difference.elements == elements) return;
  throw std::logic_error(
      fmt::format("{}: {} of {} elements were compared", to_string(pair.reference->id), difference.elements, elements));
}

// Compares each replica that disagrees with replica 0 with the reference as well, and returns the worst difference: a
// wrong second copy must fail, however right the first one is.
Difference measure_worst_replica(const TensorPair& pair, TileDifference& sum, int threads) {
  Difference worst = std::move(sum.difference);
  for (std::size_t i = 0; i < sum.candidate_replicas.size(); ++i) {
    if (sum.candidate_replicas[i].ranks.empty()) continue;
    const LogicalTensor seen = seen_by_replica(*pair.candidate, static_cast<std::int32_t>(i) + 1);
    const TensorPair copy{pair.reference, &seen};
    Difference difference = std::move(measure_pairs({&copy, 1}, threads, false, {}).front().difference);
    require_coverage(copy, difference);
    if (is_worse(difference, worst)) worst = std::move(difference);
  }
  return worst;
}

void set_replicas(const std::vector<ReplicaDifference>& replicas, double& square, std::vector<std::int32_t>& ranks) {
  ReplicaDifference total;
  for (const ReplicaDifference& replica : replicas) {
    square = std::max(square, replica.square);
    add_part(total, replica);
  }
  ranks = std::move(total.ranks);
}

}  // namespace

namespace {

// Compares pairs that both sides recorded whole.
std::vector<Difference> compare_elements(std::span<const TensorPair> pairs, const CompareOptions& options) {
  const int threads = thread_count(options.threads);
  const std::vector<std::size_t> first =
      first_of_each(pairs, [threads](std::size_t count, const auto& body) { parallel_for(count, threads, body); });
  std::vector<TensorPair> distinct;
  std::vector<std::size_t> place(pairs.size());  // of the pair that is measured for each, in `distinct`
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    place[i] = first[i] == i ? distinct.size() : place[first[i]];
    if (first[i] == i) distinct.push_back(pairs[i]);
  }
  std::vector<TileDifference> sums = measure_pairs(distinct, threads, options.checksums, options.progress);
  std::vector<Difference> measured;
  measured.reserve(distinct.size());
  for (std::size_t i = 0; i < distinct.size(); ++i) {
    require_coverage(distinct[i], sums[i].difference);
    Difference difference = measure_worst_replica(distinct[i], sums[i], threads);
    set_replicas(sums[i].candidate_replicas, difference.replica_square, difference.replica_ranks);
    set_replicas(sums[i].reference_replicas, difference.reference_replica_square, difference.reference_replica_ranks);
    measured.push_back(std::move(difference));
  }
  std::vector<Difference> differences;
  differences.reserve(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    differences.push_back(measured[place[i]]);
    require_coverage(pairs[i], differences.back());
  }
  return differences;
}

}  // namespace

std::vector<Difference> compare(std::span<const TensorPair> pairs, const CompareOptions& options) {
  std::vector<std::size_t> sketched;
  std::vector<TensorPair> whole;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].reference->sketched || pairs[i].candidate->sketched) {
      sketched.push_back(i);
    } else {
      whole.push_back(pairs[i]);
    }
  }
  std::vector<Difference> of_elements = compare_elements(whole, options);
  if (sketched.empty()) return of_elements;
  std::vector<Difference> differences(pairs.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (!pairs[i].reference->sketched && !pairs[i].candidate->sketched) differences[i] = std::move(of_elements[next++]);
  }
  parallel_for(sketched.size(), options.threads, [&](std::size_t i) {
    differences[sketched[i]] = compare_sketches(pairs[sketched[i]], options.checksums);
    require_coverage(pairs[sketched[i]], differences[sketched[i]]);
  });
  return differences;
}

}  // namespace ttrace
