// Shows on the last lines of stderr how far the work is, and nothing where that is no terminal (`shows_progress`).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ttrace {

// `comparing: 42 % of 3.1 GiB, 1.2 GiB/s, 3 s left`, without what is not known yet. Where `total` is 0 it is not known,
// and neither is the time left: `collecting: 23.0 MiB, 5.9 MiB/s, 4 s`.
std::string progress_text(const std::string& what, std::uint64_t done, std::uint64_t total, double seconds);

// Shows these lines, printable, in place of those that are shown. A single one may stand where the output of a command
// that runs goes as well, which writes over it; several may not.
void show_progress(const std::vector<std::string>& lines);

// Erases the lines until the next call of `show_progress`. Whatever else writes to stderr calls it before.
void erase_progress();

// Work whose size in bytes is known.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what) : what_(std::move(what)) {}
  ~ProgressLine() { erase_progress(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Returns a function for CompareOptions::progress, which shows what takes longer than a second; empty when nothing is
  // shown. It must not outlive this object.
  std::function<void(std::uint64_t, std::uint64_t)> callback();

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  Clock::time_point started_ = Clock::now(), shown_ = started_;
};

}  // namespace ttrace
