#include "record/trace_writer.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "format/format.h"
#include "load/trace_reader.h"
#include "support/forged_trace.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const std::vector<float> kValues{1, 2, 3, 4, 5, 6};
const Shape kShape{2, 3};

TensorId output_named(const std::string& name) { return {0, 0, 0, Pass::kForward, Kind::kOutput, name}; }

TensorView example_tensor() { return {kValues.data(), Dtype::kFloat32, kShape, {}}; }

RunDescription single_rank() {
  RunDescription run;
  run.run_id = std::string("run-1");
  return run;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const RecordError& error) {
    return fmt::format("{}: {}", static_cast<int>(error.status()), error.what());
  }
  return "no error";
}

// Runs `child` in a fork; returns waitpid's status.
int status_of_fork(const std::function<int()>& child) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child());
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status;
}

}  // namespace

TEST_SUITE("record") {
  TEST_CASE("Axes that are learnt while recording are those of the trace, once") {
    const TemporaryDirectory directory;
    for (const std::int32_t rank : {0, 1}) {
      TraceWriter writer(directory.path(), {.run_id = "run-1", .rank = rank, .world_size = 2});
      writer.record(output_named("a"), "", example_tensor());
      const Mesh mesh = parse_mesh("dp=2", 2, "axes");
      if (rank == 0) continue;  // ends before it knows them, and without closing its file
      CHECK_THROWS_AS(writer.describe_mesh(parse_mesh("dp=3", 3, "axes"), {{"dp", 1}}), RecordError);
      writer.describe_mesh(mesh, coordinates_of(mesh, rank));
      CHECK_THROWS_WITH(writer.describe_mesh(mesh, {{"dp", 0}}), "the axes are dp=2 already; expected them once");
      writer.close(true);
    }
    const Trace trace = read_trace(directory.path());
    CHECK(to_string(trace.mesh) == "dp=2");
    CHECK(trace.ranks[0].coordinates == Coordinates{{"dp", 0}});
    CHECK(trace.ranks[1].coordinates == Coordinates{{"dp", 1}});
  }

  TEST_CASE("What was recorded is read back, with order, checksum and module class") {
    const TemporaryDirectory directory;
    {
      TraceWriter writer(directory.path() / "new" / "trace", single_rank());
      writer.record(output_named("a"), "torch.nn.Linear", example_tensor());
      const Shape transposed{3, 2}, strides{1, 3};
      writer.record(output_named("b"), "", {kValues.data(), Dtype::kFloat32, transposed, strides});
      writer.record(output_named("empty"), "", {nullptr, Dtype::kBFloat16, Shape{0, 4}, {}});
      writer.record(output_named("scalar"), "", {kValues.data(), Dtype::kFloat32, {}, {}});
      writer.describe("bfloat16", R"({"device":"cpu"})");
      writer.close(true);
    }
    const Trace trace = read_trace(directory.path() / "new" / "trace");
    CHECK(trace.run_id == "run-1");
    CHECK(trace.compute_dtype == "bfloat16");
    CHECK(trace.provenance.text == R"({"device":"cpu"})");
    REQUIRE(trace.ranks.size() == 1);
    const RankTrace& rank = trace.ranks[0];
    CHECK(rank.complete);
    REQUIRE(rank.entries.size() == 4);
    CHECK(rank.entries[0].id == output_named("a"));
    CHECK(rank.entries[0].module_class.get() == "torch.nn.Linear");
    CHECK(rank.entries[1].shape == Shape{3, 2});
    const auto* transposed = reinterpret_cast<const float*>(rank.bytes_of(rank.entries[1]));
    CHECK(std::vector<float>(transposed, transposed + 6) == std::vector<float>{1, 4, 2, 5, 3, 6});
    CHECK(rank.entries[2].shape == Shape{0, 4});
    CHECK(rank.entries[2].bytes == 0);
    CHECK(rank.entries[3].shape.empty());
    CHECK(rank.entries[3].bytes == 4);
    for (const Entry& entry : rank.entries) {
      CHECK(entry.offset % 64 == 0);
      CHECK(verify_checksum(rank, entry));
    }
    CHECK_FALSE(std::filesystem::exists(directory.path() / "new" / "trace" / "rank-00000.journal"));
  }

  TEST_CASE("The same run recorded twice gives the same bytes, whatever the time is") {
    const TemporaryDirectory first, second;
    for (const auto* directory : {&first, &second}) {
      if (directory == &second) std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5 counts seconds
      TraceWriter writer(directory->path(), single_rank());
      for (int i = 0; i < 20; ++i) writer.record(output_named(fmt::format("layer.{}", i)), "", example_tensor());
      writer.close(true);
    }
    CHECK(contents(first.path() / "rank-00000.h5") == contents(second.path() / "rank-00000.h5"));
  }

  TEST_CASE("A tensor that can't be recorded is refused, and the recording goes on") {
    const TemporaryDirectory directory;
    TraceWriter writer(directory.path(), single_rank());
    const auto error_for = [&](const TensorId& id, const TensorView& tensor) {
      return error_of([&] { writer.record(id, "", tensor); });
    };
    writer.record(output_named("a"), "", example_tensor());
    CHECK(error_for(output_named("a"), example_tensor()) ==
          "1: a output, iteration 0, micro-batch 0: was recorded before");
    CHECK(error_for(output_named(""), example_tensor()) == "1: the tensor's name is empty");
    CHECK(error_for(output_named("."), example_tensor()) == "1: the tensor's name is '.'");
    CHECK(error_for(output_named("\xff"), example_tensor()) == "1: the tensor's name is not UTF-8");
    CHECK(error_for(output_named("a\u2215b"), example_tensor()) == "1: the tensor's name holds U+2215");
    CHECK(error_for(output_named(std::string(4097, 'x')), example_tensor()) ==
          "1: the tensor's name is longer than 4096 bytes");
    CHECK(error_for(output_named("b"), {kValues.data(), Dtype::kFloat32, Shape(9, 1), {}}) ==
          "1: b output, iteration 0, micro-batch 0: 9 dimensions; at most 8 fit");
    CHECK(error_for(output_named("b"), {kValues.data(), Dtype::kFloat32, Shape{2, -1}, {}}) ==
          "1: b output, iteration 0, micro-batch 0: a dimension is -1");
    CHECK(error_for(output_named("b"), {kValues.data(), Dtype::kFloat32, Shape{1ll << 40, 1ll << 40}, {}}) ==
          "1: b output, iteration 0, micro-batch 0: the shape's product is too large");
    CHECK(error_for(output_named("b"), {nullptr, Dtype::kFloat32, kShape, {}}) ==
          "1: b output, iteration 0, micro-batch 0: no data");
    CHECK(error_of([&] { writer.record(output_named("b"), "", example_tensor(), R"({"shape":[2]})"); }) ==
          "1: b output, iteration 0, micro-batch 0: mapping: shape: has 1 dimensions; expected 2");
    CHECK(error_of([&] { writer.record(output_named("b"), "", example_tensor(), "{"); }) ==
          "1: b output, iteration 0, micro-batch 0: mapping: does not parse; expected a JSON object");
    writer.record(output_named("a/b"), "", example_tensor());
    writer.close(true);
    const Trace trace = read_trace(directory.path());
    REQUIRE(trace.ranks[0].entries.size() == 2);
    CHECK(trace.ranks[0].entries[1].id.name == "a/b");
  }

  TEST_CASE("Identities that differ in one field only are different tensors") {
    const TemporaryDirectory directory;
    TraceWriter writer(directory.path(), single_rank());
    std::vector<TensorId> ids(7, output_named("a"));
    ids[1].iteration = 1;
    ids[2].microbatch = 1;
    ids[3].chunk = 1;
    ids[4].pass = Pass::kRecompute;
    ids[5].kind = Kind::kInput;
    ids[6].microbatch = kNoMicrobatch;
    for (const TensorId& id : ids) writer.record(id, "", example_tensor());
    writer.close(true);
    CHECK(read_trace(directory.path()).ranks[0].entries.size() == ids.size());
  }

  TEST_CASE("A rank is recorded once: an existing file is never overwritten") {
    const TemporaryDirectory directory;
    const auto exists = [&](std::string_view file) {
      return fmt::format("5: {}/{}: exists; expected a directory without a trace, and one process per rank",
                         directory.path().string(), file);
    };
    {
      TraceWriter writer(directory.path(), single_rank());
      CHECK(error_of([&] { TraceWriter(directory.path(), single_rank()); }) == exists("rank-00000.journal"));
      writer.record(output_named("a"), "", example_tensor());
      writer.close(true);
    }
    CHECK(error_of([&] { TraceWriter(directory.path(), single_rank()); }) == exists("rank-00000.h5"));
    CHECK(read_trace(directory.path()).ranks[0].complete);
  }

  TEST_CASE("A run that no reader would accept is refused before a file is made") {
    const TemporaryDirectory directory;
    const auto error_with = [&](const std::function<void(RunDescription&)>& change) {
      RunDescription run = single_rank();
      change(run);
      return error_of([&] { TraceWriter(directory.path(), run); });
    };
    CHECK(error_with([](auto& run) { run.run_id.clear(); }) == "1: run id is empty; expected one per run");
    CHECK(error_with([](auto& run) { run.run_id = std::string("\xff"); }) == "1: run id is not text; expected UTF-8");
    CHECK(error_with([](auto& run) { run.rank = 1; }) == "1: rank is 1; expected 0 to 0");
    CHECK(error_with([](auto& run) { run.world_size = 0; }) == "1: world size is 0; expected 1 to 1000000");
    CHECK(error_with([](auto& run) { run.mesh.axes = {{"tp", 2}}; }) ==
          "1: axes: axis 'tp' has size 2; expected 1 to 1, the number of ranks");
    const auto two_ranks = [](RunDescription& run, Coordinates coordinates) {
      run.world_size = 2;
      run.mesh.axes = {{"tp", 2}};
      run.coordinates = std::move(coordinates);
    };
    CHECK(error_with([&](auto& run) { two_ranks(run, {{"tp", 2}}); }) == "1: coordinate tp=2; expected 0 to 1");
    CHECK(error_with([&](auto& run) { two_ranks(run, {}); }) ==
          "1: coordinate of axis 'tp' is missing; expected one per axis");
    CHECK(error_with([&](auto& run) { two_ranks(run, {{"tp", 1}, {"dp", 0}}); }) ==
          "1: 2 coordinates; expected one for each of the axes 'tp=2'");
    CHECK(error_with([](auto& run) { run.mesh.axes = {{"a,b", 1}}; }) ==
          "1: axes: 'a': expected name=size or name=axis, as in tp=2,dp=2,sp=tp");
    CHECK(error_with([](auto& run) { run.compute_dtype = std::string("bf16"); }) ==
          "1: compute dtype is unknown; expected a name as bfloat16");
    CHECK(error_with([](auto& run) { run.provenance = std::string("[]"); }) ==
          "1: provenance does not parse; expected a JSON object");
    CHECK(std::filesystem::is_empty(directory.path()));
  }

  TEST_CASE("A forked child can't disturb its parent's recording") {
    const TemporaryDirectory directory;
    TraceWriter writer(directory.path(), single_rank());
    writer.record(output_named("before"), "", example_tensor());
    const int status = status_of_fork([&] {
      const bool refused = error_of([&] { writer.record(output_named("child"), "", example_tensor()); })[0] == '4' &&
                           error_of([&] { writer.close(true); })[0] == '4';
      return refused ? 0 : 1;
    });
    CHECK(status == 0);
    writer.record(output_named("after"), "", example_tensor());
    writer.close(true);
    const Trace trace = read_trace(directory.path());
    REQUIRE(trace.ranks[0].entries.size() == 2);
    CHECK(trace.ranks[0].entries[1].id.name == "after");
  }

  TEST_CASE("Threads may record at the same time") {
    const TemporaryDirectory directory;
    TraceWriter writer(directory.path(), single_rank());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i) writer.record(output_named(fmt::format("{}.{}", t, i)), "", example_tensor());
      });
    }
    for (std::thread& thread : threads) thread.join();
    writer.close(true);
    const Trace trace = read_trace(directory.path());
    CHECK(trace.ranks[0].entries.size() == 800);
    for (const Entry& entry : trace.ranks[0].entries) CHECK(verify_checksum(trace.ranks[0], entry));
  }

  TEST_CASE("A recorder that is dropped without close leaves an incomplete trace that can be read") {
    const TemporaryDirectory directory;
    {
      TraceWriter writer(directory.path(), single_rank());
      writer.record(output_named("a"), "torch.nn.Linear", example_tensor());
    }
    const Trace trace = read_trace(directory.path());
    CHECK_FALSE(trace.ranks[0].complete);
    REQUIRE(trace.ranks[0].entries.size() == 1);
    CHECK(trace.ranks[0].entries[0].module_class.get() == "torch.nn.Linear");
    CHECK(verify_checksum(trace.ranks[0], trace.ranks[0].entries[0]));
  }

  TEST_CASE("A trace closed as incomplete has an index, no completion mark, and keeps its journal") {
    const TemporaryDirectory directory;
    TraceWriter writer(directory.path(), single_rank());
    writer.record(output_named("a"), "", example_tensor());
    writer.close(false);
    CHECK(error_of([&] { writer.record(output_named("b"), "", example_tensor()); }) == "1: the recorder is closed");
    CHECK(std::filesystem::exists(directory.path() / "rank-00000.journal"));
    std::filesystem::remove(directory.path() / "rank-00000.journal");
    const Trace trace = read_trace(directory.path());
    CHECK_FALSE(trace.ranks[0].complete);
    CHECK(trace.ranks[0].entries.size() == 1);
  }

  // The limit on a file's size stands for a full disk, and is harsher: unwatched, it kills the process.
  int record_until_full(const std::filesystem::path& directory, std::uint64_t limit, std::size_t queue_bytes = 0,
                        int tensors = 1000) {
    TraceWriter writer(directory, single_rank(), queue_bytes);
    const rlimit small{limit, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_FSIZE, &small) != 0) return 2;
    std::vector<float> block(1000, 1.0f);
    for (int i = 0; i < tensors; ++i) {
      block[0] = static_cast<float>(i);  // equal bytes would be stored once
      try {
        writer.record(output_named(fmt::format("t{}", i)), "", {block.data(), Dtype::kFloat32, Shape{1000}, {}});
      } catch (const RecordError& error) {
        const bool stays_full = error_of([&] { writer.record(output_named("x"), "", example_tensor()); })[0] == '3';
        const bool closes_full = error_of([&] { writer.close(true); })[0] == '3';
        return error.status() == RecordStatus::kFull && stays_full && closes_full ? 0 : 3;
      }
    }
    return error_of([&] { writer.close(true); })[0] == '3' ? 0 : 4;
  }

  TEST_CASE("A full disk while recording leaves every recorded tensor readable") {
    const TemporaryDirectory directory;
    CHECK(status_of_fork([&] { return record_until_full(directory.path(), 100'000); }) == 0);
    const Trace trace = read_trace(directory.path());
    CHECK_FALSE(trace.ranks[0].complete);
    CHECK(trace.ranks[0].entries.size() == 23);  // 4096 + 23 * 4032 <= 100,000
    for (const Entry& entry : trace.ranks[0].entries) CHECK(verify_checksum(trace.ranks[0], entry));
  }

  TEST_CASE("A full disk behind a queue is told by a later call, and leaves what was written readable") {
    const TemporaryDirectory directory;
    CHECK(status_of_fork([&] { return record_until_full(directory.path(), 100'000, 1 << 16); }) == 0);
    const Trace trace = read_trace(directory.path());
    CHECK_FALSE(trace.ranks[0].complete);
    CHECK(trace.ranks[0].entries.size() == 23);
    for (const Entry& entry : trace.ranks[0].entries) CHECK(verify_checksum(trace.ranks[0], entry));
  }

  TEST_CASE("A disk that is full in the middle of a large write keeps every tensor that fits") {
    for (const std::size_t queue_bytes : {0, 1 << 16, 1 << 23}) {
      const TemporaryDirectory directory;
      const std::uint64_t limit = 4096 + 1500 * 4032 + 99;
      CHECK(status_of_fork([&] { return record_until_full(directory.path(), limit, queue_bytes, 3000); }) == 0);
      const Trace trace = read_trace(directory.path());
      CHECK_FALSE(trace.ranks[0].complete);
      CHECK(trace.ranks[0].entries.size() == 1500);
      for (const Entry& entry : trace.ranks[0].entries) CHECK(verify_checksum(trace.ranks[0], entry));
    }
  }

  TEST_CASE("A disk that is full only when the trace is closed loses no tensor") {
    const TemporaryDirectory directory;
    // Room for the 1000 tensors of 4,032 bytes, not for the metadata behind them.
    CHECK(status_of_fork([&] { return record_until_full(directory.path(), 4096 + 1000 * 4032 + 1000); }) == 0);
    const Trace trace = read_trace(directory.path());
    CHECK_FALSE(trace.ranks[0].complete);
    CHECK(trace.ranks[0].entries.size() == 1000);
  }

  // Numbers from 0 on.
  std::vector<float> counting(std::size_t count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 0.0f);
    return values;
  }

  TensorView view_of(const std::vector<float>& values, const Shape& shape) {
    return {values.data(), Dtype::kFloat32, shape, {}};
  }

  TEST_CASE("Tensors with the same bytes are stored once, whatever they are called and shaped") {
    const TemporaryDirectory directory;
    const std::vector<float> values = counting(100'000);
    {
      TraceWriter writer(directory.path(), single_rank());
      writer.record(output_named("a"), "", view_of(values, {100'000}));
      writer.record(output_named("b"), "", view_of(std::vector<float>(values), {100, 1000}));
      writer.record(output_named("c"), "", view_of(counting(50'000), {50'000}));  // its first half
      writer.close(true);
    }
    const RankTrace rank = std::move(read_trace(directory.path()).ranks[0]);
    REQUIRE(rank.entries.size() == 3);
    CHECK(rank.entries[0].offset == rank.entries[1].offset);
    CHECK(rank.entries[0].offset != rank.entries[2].offset);
    for (const Entry& entry : rank.entries) CHECK(verify_checksum(rank, entry));
    CHECK(std::filesystem::file_size(directory.path() / "rank-00000.h5") < 4 * 160'000);
  }

  TEST_CASE("A tensor that was changed in place between two records is stored twice, wherever it was changed") {
    for (const std::size_t changed : {0, 1, 49'999, 77'777, 99'998, 99'999}) {
      const TemporaryDirectory directory;
      std::vector<float> values = counting(100'000);
      TraceWriter writer(directory.path(), single_rank());
      writer.record(output_named("a"), "", view_of(values, {100'000}));
      values[changed] = -1;
      writer.record(output_named("b"), "", view_of(values, {100'000}));
      writer.close(true);
      const RankTrace rank = std::move(read_trace(directory.path()).ranks[0]);
      CHECK(rank.entries[0].offset != rank.entries[1].offset);
      const auto* before = reinterpret_cast<const float*>(rank.bytes_of(rank.entries[0]));
      const auto* after = reinterpret_cast<const float*>(rank.bytes_of(rank.entries[1]));
      CHECK(before[changed] == static_cast<float>(changed));
      CHECK(after[changed] == -1);
    }
  }

  TEST_CASE("Tensors of which all are equal share their bytes 64 at a time, and are read") {
    constexpr int kTensors = 1000;
    for (const std::size_t queue_bytes : {std::size_t{0}, std::size_t{1} << 20}) {
      const TemporaryDirectory directory;
      const std::vector<float> nothing_but_nan(10'000, std::numeric_limits<float>::quiet_NaN());
      TraceWriter writer(directory.path(), single_rank(), queue_bytes);
      for (int i = 0; i < kTensors; ++i) {
        writer.record(output_named(fmt::format("t{}", i)), "", view_of(nothing_but_nan, {10'000}));
      }
      writer.close(true);
      const RankTrace rank = std::move(read_trace(directory.path()).ranks[0]);
      std::map<std::uint64_t, std::size_t> sharing;  // by offset
      for (const Entry& entry : rank.entries) ++sharing[entry.offset];
      CHECK(sharing.size() == (kTensors + kMaxSharing - 1) / kMaxSharing);
      for (const auto& [offset, tensors] : sharing) CHECK(tensors <= kMaxSharing);
    }
  }

  // Records tensors of many sizes from one buffer, which holds something else as soon as a call has returned.
  void record_many(const std::filesystem::path& directory, std::size_t queue_bytes) {
    TraceWriter writer(directory, single_rank(), queue_bytes);
    for (int i = 0; i < 500; ++i) {
      std::vector<float> values = counting(static_cast<std::size_t>(i * 7919 % 30'000));
      for (float& value : values) value += static_cast<float>(i / 2);
      writer.record(output_named(fmt::format("t{}", i)), "",
                    view_of(values, {static_cast<std::int64_t>(values.size())}));
      std::fill(values.begin(), values.end(), -1.0f);
      if (i == 250) writer.describe("float32", "");
    }
    writer.close(true);
  }

  TEST_CASE("What goes through a queue gives the same bytes, though the program goes on writing to its tensors") {
    const TemporaryDirectory at_once, queued;
    record_many(at_once.path(), 0);
    for (const std::size_t queue_bytes : {1 << 10, 1 << 15, 1 << 16, 1 << 24}) {
      const std::filesystem::path directory = queued.path() / std::to_string(queue_bytes);
      record_many(directory, queue_bytes);
      CHECK(contents(directory / "rank-00000.h5") == contents(at_once.path() / "rank-00000.h5"));
    }
  }

  TEST_CASE("What is queued when a writer is dropped is in its journal") {
    const TemporaryDirectory directory;
    {
      TraceWriter writer(directory.path(), single_rank(), 1 << 20);
      for (int i = 0; i < 50; ++i) writer.record(output_named(fmt::format("t{}", i)), "", example_tensor());
    }
    const Trace trace = read_trace(directory.path());
    CHECK_FALSE(trace.ranks[0].complete);
    CHECK(trace.ranks[0].entries.size() == 50);
  }

  TEST_CASE("What is queued is written soon though nobody waits for it, also after a pause") {
    const TemporaryDirectory directory;
    TraceWriter writer(directory.path(), single_rank(), 1 << 20);
    for (std::size_t recorded = 1; recorded <= 3; ++recorded) {
      writer.record(output_named(fmt::format("t{}", recorded)), "", example_tensor());
      const auto entries = [&] { return read_trace(directory.path()).ranks[0].entries.size(); };
      for (int looks = 0; looks < 1000 && entries() < recorded; ++looks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      CHECK(entries() == recorded);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // by now the thread that writes sleeps
    }
  }

  TEST_CASE("What is queued is in the journal soon though tensors keep coming") {
    const TemporaryDirectory directory;
    TraceWriter writer(directory.path(), single_rank(), 1 << 20);
    std::size_t recorded = 0, entries = 0;
    for (int looks = 0; looks < 100 && entries < 2; ++looks) {
      const auto look_at = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
      while (std::chrono::steady_clock::now() < look_at) {
        writer.record(output_named(fmt::format("t{}", recorded++)), "", example_tensor());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      entries = read_trace(directory.path()).ranks[0].entries.size();
    }
    CHECK(entries >= 2);
  }

  TEST_CASE("What a rank has recorded so far can be read while it records on") {
    const TemporaryDirectory directory;
    TraceWriter writer(directory.path(), single_rank(), 0);
    writer.record(output_named("t"), "", example_tensor());
    std::thread recording([&] {
      for (int i = 0; i < 3000; ++i) writer.record(output_named(fmt::format("t{}", i)), "", example_tensor());
    });
    std::size_t entries = 1;
    while (entries < 3001) {
      std::size_t now = 0;
      CHECK_NOTHROW(now = read_trace(directory.path()).ranks[0].entries.size());
      CHECK(now >= entries);
      if (now < entries) break;
      entries = now;
    }
    recording.join();
  }

  TEST_CASE("A forked child drops a writer with a queue, and its parent's goes on") {
    const TemporaryDirectory directory;
    auto writer = std::make_unique<TraceWriter>(directory.path(), single_rank(), 1 << 20);
    writer->record(output_named("before"), "", example_tensor());
    CHECK(status_of_fork([&] {
            const bool refused = error_of([&] { writer->close(true); })[0] == '4';
            writer.reset();
            return refused ? 0 : 1;
          }) == 0);
    writer->record(output_named("after"), "", example_tensor());
    writer->close(true);
    CHECK(read_trace(directory.path()).ranks[0].entries.size() == 2);
  }

  TEST_CASE("A directory that can't be written to is an error, not a crash") {
    CHECK(error_of([] { TraceWriter("/proc/ttrace", single_rank()); }) ==
          "2: /proc/ttrace: can't be created: No such file or directory");
  }
}
