// Several threads of a program record through the C API, and one of the library writes. tests/tsan runs this with
// ThreadSanitizer.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "load/trace_reader.h"
#include "support/temporary_directory.h"
#include "ttrace/ttrace.h"

namespace {

using namespace ttrace;

constexpr int kThreads = 4;

ttrace_recorder* opened(const std::filesystem::path& directory, std::size_t queue_bytes) {
  const std::string path = directory.string();
  ttrace_run run = {};
  run.struct_size = sizeof run;
  run.directory = path.c_str();
  run.run_id = "run-1";
  run.world_size = 1;
  run.queue_bytes = queue_bytes;
  ttrace_recorder* recorder = nullptr;
  REQUIRE(ttrace_open(&run, &recorder) == TTRACE_OK);
  return recorder;
}

ttrace_status record(ttrace_recorder* recorder, const std::string& name, const std::vector<float>& values) {
  ttrace_identity id = {};
  id.struct_size = sizeof id;
  id.microbatch = TTRACE_NO_MICROBATCH;
  id.pass = TTRACE_FORWARD;
  id.kind = TTRACE_OUTPUT;
  id.name = name.c_str();
  const std::int64_t size = static_cast<std::int64_t>(values.size());
  const ttrace_tensor tensor = {sizeof tensor, values.data(), TTRACE_FLOAT32, 1, &size, nullptr, nullptr, 0, 0};
  return ttrace_record(recorder, &id, &tensor);
}

// Tensor i of thread t: of sizes from none to more than the queue takes; of every three, two threads record the same
// bytes, and the buffer is written to again as soon as a call has returned.
ttrace_status record_some(ttrace_recorder* recorder, int t, int count) {
  for (int i = 0; i < count; ++i) {
    std::vector<float> values(static_cast<std::size_t>(i * 797 % 6000),
                              static_cast<float>(i % 3 == 0 ? i : 100 * t + i));
    const ttrace_status status = record(recorder, fmt::format("{}.{}", t, i), values);
    std::fill(values.begin(), values.end(), -1.0f);
    if (status != TTRACE_OK) return status;
    if (i == count / 2) ttrace_describe(recorder, "float32", nullptr);
  }
  return TTRACE_OK;
}

// Calls `body(t)` in each of the threads, at the same time.
template <class Body>
void in_threads(const Body& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&body, t] { body(t); });
  for (std::thread& thread : threads) thread.join();
}

RankTrace rank_in(const std::filesystem::path& directory) { return std::move(read_trace(directory).ranks[0]); }

bool is_sound(const RankTrace& rank) {
  return std::all_of(rank.entries.begin(), rank.entries.end(),
                     [&](const Entry& entry) { return verify_checksum(rank, entry); });
}

// A file can't grow beyond `bytes` while this lives, which stands for a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_SUITE("record") {
  TEST_CASE("several threads record through queues of any size, and each tensor is as it was at the call") {
    constexpr int kTensors = 40;
    for (const std::size_t queue_bytes : {0, 1 << 10, 1 << 14, 1 << 16, 1 << 22}) {
      const test::TemporaryDirectory directory;
      ttrace_recorder* recorder = opened(directory.path(), queue_bytes);
      std::array<ttrace_status, kThreads> statuses{};
      in_threads([&](int t) { statuses[static_cast<std::size_t>(t)] = record_some(recorder, t, kTensors); });
      for (const ttrace_status status : statuses) CHECK(status == TTRACE_OK);
      CHECK(ttrace_close(recorder, 1) == TTRACE_OK);  // while the queue is not empty yet
      const RankTrace rank = rank_in(directory.path());
      CHECK(rank.complete);
      CHECK(rank.entries.size() == kThreads * kTensors);
      CHECK(is_sound(rank));
      for (const Entry& entry : rank.entries) {
        const int t = entry.id.name[0] - '0', i = std::stoi(entry.id.name.get().substr(2));
        const auto* values = reinterpret_cast<const float*>(rank.bytes_of(entry));
        const float expected = static_cast<float>(i % 3 == 0 ? i : 100 * t + i);
        CHECK(
            std::all_of(values, values + entry.bytes / sizeof(float), [&](float value) { return value == expected; }));
      }
    }
  }

  TEST_CASE("a disk that is full while several threads record is told to each, and what was written can be read") {
    for (const std::size_t queue_bytes : {0, 1 << 14, 1 << 20}) {
      const test::TemporaryDirectory directory;
      ttrace_recorder* recorder = opened(directory.path(), queue_bytes);
      std::array<ttrace_status, kThreads> statuses{};
      {
        const FullDisk full(200'000);
        in_threads([&](int t) { statuses[static_cast<std::size_t>(t)] = record_some(recorder, t, 200); });
        CHECK(ttrace_close(recorder, 1) == TTRACE_FULL);
      }
      for (const ttrace_status status : statuses) CHECK(status == TTRACE_FULL);
      const RankTrace rank = rank_in(directory.path());
      CHECK_FALSE(rank.complete);
      CHECK(rank.entries.size() > 10);
      CHECK(is_sound(rank));
    }
  }

  TEST_CASE("two recorders at once, of which one is closed as incomplete while its queue is full") {
    const test::TemporaryDirectory directory;
    in_threads([&](int t) {
      const std::filesystem::path own = directory.path() / std::to_string(t);
      ttrace_recorder* recorder = opened(own, 1 << 18);
      record_some(recorder, t, 30);
      CHECK(ttrace_close(recorder, t % 2) == TTRACE_OK);
    });
    for (int t = 0; t < kThreads; ++t) {
      const RankTrace rank = rank_in(directory.path() / std::to_string(t));
      CHECK(rank.complete == (t % 2 == 1));
      CHECK(rank.entries.size() == 30);
      CHECK(is_sound(rank));
    }
  }
}
