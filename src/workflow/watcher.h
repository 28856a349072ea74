// Checks the iterations that a watched job has recorded, in a thread of its own (watch.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "workflow/parted_copies.h"
#include "workflow/recording_budget.h"
#include "workflow/repeated_data.h"
#include "workflow/unlike_gradients.h"
#include "workflow/watch.h"

namespace ttrace {

// Counts iterations.
struct WatchCounts {
  std::int32_t right = 0, wrong = 0;
  std::int32_t unchecked = 0;  // recorded, but not by all ranks, or could not be looked at
  std::int32_t asked = 0;      // about: unlike any right one, and no contradiction
};

class Watcher {
 public:
  // Writes the files that the ranks read. Throws InputError.
  explicit Watcher(const WatchOptions& options);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  void start();
  // After the job has ended: waits for the checks of what it has recorded.
  void finish();

  // These hold after `finish`.
  const WatchCounts& counts() const { return counts_; }
  const std::string& end() const { return end_; }  // why watching ended before the job; empty: it did not

 private:
  struct Check;

  void run();
  bool check_next();
  std::int32_t left_out_before(std::int32_t iteration);
  void check(std::int32_t iteration, const std::filesystem::path& trace);
  Check look_at(std::int32_t iteration, const std::filesystem::path& trace);
  void conclude(Check& check, const std::filesystem::path& trace);
  void keep(Check& check, const std::filesystem::path& trace, const std::string& name);
  void account(std::int32_t iteration, const std::filesystem::path& trace);
  void drop_unfinished(std::int32_t iteration, const std::filesystem::path& trace);
  void append_line(const Check& check);
  void call_hook(const Check& check);
  void write_schedule();
  void end_watching(const std::string& why);

  const WatchOptions& options_;
  double share_;
  RecordingBudget budget_;
  std::vector<std::pair<std::int32_t, std::int32_t>> schedule_;  // from which iteration on, every how many
  std::int32_t latest_ = 0;                                      // iteration that was looked at
  DataWatch data_;
  CopyWatch copies_;
  GradientWatch gradients_;
  WatchCounts counts_;
  std::string end_;
  std::atomic<bool> job_ended_{false};
  std::thread thread_;
};

}  // namespace ttrace
