// Tests what processes deal to each other, on threads of the test.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "align/shard_mapping.h"
#include "base/annotation.h"
#include "base/error.h"
#include "distribute/comparison.h"
#include "distribute/index.h"
#include "load/mapped_file.h"
#include "load/trace_reader.h"
#include "support/thread_team.h"
#include "support/trace_builder.h"

namespace {

using namespace ttrace;
using namespace ttrace::test;

Worker reader_and_comparer() {
  return [files = std::make_shared<SharedFiles>()](Work work, std::string_view request) {
    return work == Work::kReadIndex ? answer_index(request) : answer_comparison(request, *files);
  };
}

// Six ranks, of which one died and has a journal.
void fill(TraceBuilder& builder, double noise) {
  builder.axes("tp=6").crashed_rank(4);
  for (int i = 0; i < 9; ++i) {
    builder.tensor("layers." + std::to_string(i), Kind::kOutput, {4, 8},
                   [i, noise](std::int32_t, std::int64_t j) { return i + 0.5 * static_cast<double>(j) + noise; });
  }
}

std::string error_of(const std::filesystem::path& directory, Team& team) {
  try {
    read_trace(directory, team);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("distribute") {
  TEST_CASE("a trace is the same whoever reads its files, that of a rank that died, too") {
    TraceBuilder builder;
    fill(builder, 0);
    const std::filesystem::path directory = builder.write();
    const Trace alone = read_trace(directory);
    for (const int size : {2, 4}) {
      run_in_threads(size, reader_and_comparer, [&](Team& team) {
        const Trace trace = read_trace(directory, team);
        CHECK(digest_of(trace) == digest_of(alone));
        REQUIRE(trace.ranks.size() == 6);
        for (std::size_t i = 0; i < 6; ++i) {
          CHECK(trace.ranks[i].rank == static_cast<std::int32_t>(i));
          CHECK(trace.ranks[i].complete == (i != 4));
          CHECK(trace.ranks[i].entries.size() == 9);
          CHECK(trace.ranks[i].entries[8].module_class == alone.ranks[i].entries[8].module_class);
        }
      });
    }
  }

  TEST_CASE("many ranks that record alike are read as they are, and those in between that died or have more") {
    constexpr std::int32_t kRanks = 130;  // several a task
    TraceBuilder builder;
    fill(builder, 0);
    builder.axes("dp=130").crashed_rank(7).crashed_rank(50);
    const auto values = [](std::int32_t rank, std::int64_t i) { return rank + 0.5 * static_cast<double>(i); };
    builder.tensor("loss", Kind::kScalar, {}, values);
    builder.tensor({.id = {.name = "extra"}, .shape = {3}, .values = values, .ranks = {20, 51}});
    const std::filesystem::path directory = builder.write();
    const Trace alone = read_trace(directory);
    for (const int threads : {1, 2}) {
      run_in_threads(2, reader_and_comparer, [&](Team& team) {
        const Trace trace = read_trace(directory, team, threads);
        CHECK(digest_of(trace) == digest_of(alone));
        REQUIRE(trace.ranks.size() == kRanks);
        for (std::size_t i = 0; i < kRanks; ++i) {
          const RankTrace &rank = trace.ranks[i], &same = alone.ranks[i];
          CHECK(rank.complete == same.complete);
          CHECK(rank.coordinates == same.coordinates);
          REQUIRE(rank.entries.size() == same.entries.size());
          for (std::size_t e = 0; e < rank.entries.size(); ++e) {
            CHECK(rank.entries[e].offset == same.entries[e].offset);
            CHECK(verify_checksum(rank, rank.entries[e]));
          }
        }
      });
    }
  }

  TEST_CASE("a damaged index is refused with the words of one process") {
    TraceBuilder builder;
    fill(builder, 0);
    const std::filesystem::path directory = builder.write();
    for (const char* const name : {"rank-00001.h5", "rank-00005.h5"}) {
      std::fstream(directory / name, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put('x');
    }
    Team alone;
    const std::string expected = error_of(directory, alone);
    CHECK(expected.find("rank-00001.h5: the metadata is damaged") != expected.npos);
    run_in_threads(3, reader_and_comparer, [&](Team& team) { CHECK_FALSE(error_of(directory, team).empty()); });
  }

  TEST_CASE("differences are the same whoever measures them") {
    TraceBuilder first, second;
    fill(first, 0);
    fill(second, 0.25);
    const Trace reference = first.read(), candidate = second.read();
    const Alignment a = align(reference, {}, {}), b = align(candidate, {}, {});
    std::vector<TensorPair> pairs;
    for (const auto& [id, tensor] : a.tensors) pairs.push_back({&tensor, &b.tensors.at(id)});
    for (const auto& [id, tensor] : a.tensors) pairs.push_back({&tensor, &tensor});
    REQUIRE(pairs.size() > 4);
    const std::vector<Difference> alone = compare(pairs, {});
    run_in_threads(3, reader_and_comparer, [&](Team& team) {
      std::uint64_t done = 0, total = 1;
      CompareOptions options;
      options.progress = [&](std::uint64_t now, std::uint64_t all) { std::tie(done, total) = std::pair(now, all); };
      const std::vector<Difference> shared = compare(pairs, options, team);
      CHECK(done == total);
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        CHECK(shared[i].difference_square == alone[i].difference_square);
        CHECK(shared[i].worst_index == alone[i].worst_index);
        CHECK(shared[i].square_by_rank == alone[i].square_by_rank);
        CHECK(shared[i].replica_ranks == alone[i].replica_ranks);
      }
    });
  }
}
