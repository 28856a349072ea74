// A trace that was damaged anywhere is refused, or the damage is found; it is never called the same.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "format/format.h"
#include "load/trace_reader.h"
#include "support/forged_trace.h"
#include "support/trace_builder.h"
#include "workflow/check.h"

using namespace ttrace;
using test::contents;
using test::replace_contents;
using test::TraceBuilder;

namespace {

// Fills a run of two ranks that hold an output by columns, and a loss.
TraceBuilder& fill_ranks(TraceBuilder& run, const std::string& run_id, double first) {
  const std::string columns = R"({"axes": [{"axis": "tp", "size": 2, "placement": "shard", "dim": 1}]})";
  run.run_id(run_id).axes("tp=2").tensor("loss", Kind::kScalar, {}, [=](auto, auto) { return first; });
  test::TensorSpec output;
  output.id = {0, 0, 0, Pass::kForward, Kind::kOutput, "mlp"};
  output.shape = {4, 4};
  output.values = [=](std::int32_t rank, std::int64_t i) { return first + 16 * rank + static_cast<double>(i); };
  output.mapping = columns;
  return run.tensor(std::move(output));
}

bool is_same(const std::filesystem::path& reference, const std::filesystem::path& candidate) {
  CheckOptions options;
  options.reference = reference;
  options.candidate = candidate;
  options.threads = 1;
  try {
    return check(options).report.verdict() == RunVerdict::kSame;
  } catch (const InputError&) {
    return false;
  }
}

// True where the trace is read and nothing of it is said to be missing.
bool is_taken_for_whole(const std::filesystem::path& directory) {
  try {
    const Trace trace = read_trace(directory);
    return trace.ranks.size() == 2 && trace.ranks[0].complete && trace.ranks[1].complete;
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace

TEST_SUITE_BEGIN("workflow");

TEST_CASE("a rank file cut at any length is refused") {
  TraceBuilder run;
  const std::filesystem::path path = fill_ranks(run, "run", 1).write() / "rank-00000.h5";
  const std::string whole = contents(path);
  REQUIRE(is_taken_for_whole(path.parent_path()));
  for (std::size_t size = whole.size(); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    if (is_taken_for_whole(path.parent_path())) FAIL("taken for whole with ", size, " of ", whole.size(), " bytes");
  }
}

TEST_CASE("what a journal says of a file, either cut at any length, is never a whole rank") {
  TraceBuilder run;
  const std::filesystem::path path = fill_ranks(run, "run", 1).crashed_rank(0).write() / "rank-00000.h5";
  const std::filesystem::path journal_path = path.parent_path() / "rank-00000.journal";
  const std::string file = contents(path), journal = contents(journal_path);
  std::size_t read = 0;
  for (std::size_t size = 0; size <= journal.size(); ++size) {
    replace_contents(journal_path, journal.substr(0, size));
    try {
      const Trace trace = read_trace(path.parent_path());
      ++read;
      CHECK_FALSE(trace.ranks[0].complete);
      CHECK(trace.ranks[0].entries.size() <= 2);
    } catch (const InputError&) {
    }
  }
  CHECK(read > 0);
  for (std::size_t size = 0; size < file.size(); ++size) {
    replace_contents(path, file.substr(0, size));
    if (is_taken_for_whole(path.parent_path())) FAIL("taken for whole with ", size, " bytes");
  }
}

TEST_CASE("any bit of the header, the index and the other metadata that flips is noticed") {
  TraceBuilder run;
  const std::filesystem::path path = fill_ranks(run, "run", 1).write() / "rank-00000.h5";
  const std::string whole = contents(path);
  const Seal seal = read_seal(whole);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto try_byte = [&](std::size_t at, char flip) {
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(whole[at] ^ flip)).flush();
    if (is_taken_for_whole(path.parent_path())) FAIL("byte ", at, " of ", whole.size(), ", flipped by ", int{flip});
    file.seekp(static_cast<std::streamoff>(at)).put(whole[at]);
  };
  for (std::size_t at = 0; at < kHeaderBytes; ++at) try_byte(at, static_cast<char>(1 << at % 8));
  for (int bit = 0; bit < 8; ++bit) {
    for (std::size_t at = 0; at < sizeof(Seal); ++at) try_byte(kSealOffset + at, static_cast<char>(1 << bit));
    for (std::size_t at = 0; at < seal.index.bytes; ++at) try_byte(seal.index.offset + at, static_cast<char>(1 << bit));
  }
  for (std::size_t at = seal.metadata.offset; at < whole.size(); ++at) try_byte(at, static_cast<char>(1 << at % 8));
}

TEST_CASE("rank files that are spliced at any place are not the same") {
  TraceBuilder reference_run, candidate_run, other_run;
  const std::filesystem::path reference = fill_ranks(reference_run, "reference", 1).write(),
                              candidate = fill_ranks(candidate_run, "candidate", 1).write(),
                              other = fill_ranks(other_run, "other", 2).write();
  REQUIRE(is_same(reference, candidate));
  REQUIRE_FALSE(is_same(reference, other));
  std::vector<std::string> files;
  for (const std::filesystem::path& run : {reference, candidate, other}) {
    for (const char* name : {"rank-00000.h5", "rank-00001.h5"}) files.push_back(contents(run / name));
  }
  int spliced = 0;
  for (const char* name : {"rank-00000.h5", "rank-00001.h5"}) {
    const std::string own = contents(candidate / name);
    const auto try_file = [&](const std::string& bytes, std::size_t at) {
      if (bytes == own) return;
      replace_contents(candidate / name, bytes);
      ++spliced;
      if (is_same(reference, candidate)) FAIL(name, " spliced at ", at);
    };
    for (const std::string& head : files) {
      for (const std::string& tail : files) {
        const Seal seal = read_seal(head);
        const std::uint64_t data = seal.metadata.offset;
        std::vector<std::uint64_t> places = {0, kSealOffset, kSealOffset + sizeof(Seal), head.size()};
        for (std::uint64_t at = kHeaderBytes; at <= data; at += kDataAlignment) places.push_back(at);
        for (std::uint64_t at = data; at < head.size(); at += 1024) places.push_back(at);
        for (const Extent& extent : {seal.run, seal.index, seal.text, seal.shapes}) {
          places.insert(places.end(), {extent.offset, extent.offset + extent.bytes});
        }
        for (const std::uint64_t at : places)
          try_file(head.substr(0, at) + (at < tail.size() ? tail.substr(at) : ""), at);
        // The tensors of one under the header and the index of another.
        try_file(head.substr(0, kHeaderBytes) + tail.substr(kHeaderBytes, data - kHeaderBytes) + head.substr(data), 0);
      }
    }
    replace_contents(candidate / name, own);
  }
  CHECK(spliced > 500);
  CHECK(is_same(reference, candidate));
}

TEST_SUITE_END();
