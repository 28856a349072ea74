#include "host/progress.h"

#include <fmt/format.h>

#include <cstdio>

#include "host/terminal.h"
#include "text/readable.h"
#include "text/wrap.h"

namespace ttrace {
namespace {

constexpr double kLeastSeconds = 1;                             // of work that is shown
constexpr auto kBetweenLooks = std::chrono::milliseconds(100);  // between two looks of a person

std::size_t lines_shown = 0;

}  // namespace

std::string progress_text(const std::string& what, std::uint64_t done, std::uint64_t total, double seconds) {
  const bool is_known = total > 0 && done <= total;
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string text = what + ": ";
  text += is_known ? fmt::format("{} % of {}", done * 100 / total, readable_bytes(total)) : readable_bytes(done);
  if (rate >= 1) text += fmt::format(", {}/s", readable_bytes(static_cast<std::uint64_t>(rate)));
  if (!is_known) return text + ", " + readable_seconds(seconds);
  return rate < 1 ? text : text + fmt::format(", {} left", readable_seconds(static_cast<double>(total - done) / rate));
}

void show_progress(const std::vector<std::string>& lines) {
  if (!shows_progress()) return;
  erase_progress();
  const std::size_t width = width_of_stderr() - 1;  // some terminals break a line that is full
  if (lines.size() == 1) {
    fmt::print(stderr, "{}\r", clipped(lines[0], width));
  } else {
    for (const std::string& line : lines) fmt::print(stderr, "{}\n", clipped(line, width));
  }
  std::fflush(stderr);
  lines_shown = lines.size();
}

void erase_progress() {
  if (lines_shown == 0) return;
  // Up, to the begin of the line, and clear from there on.
  fmt::print(stderr, "{}\r\x1b[J", lines_shown > 1 ? fmt::format("\x1b[{}A", lines_shown) : "");
  std::fflush(stderr);
  lines_shown = 0;
}

std::function<void(std::uint64_t, std::uint64_t)> ProgressLine::callback() {
  if (!shows_progress()) return {};
  return [this](std::uint64_t done, std::uint64_t total) {
    const Clock::time_point now = Clock::now();
    const std::chrono::duration<double> seconds = now - started_;
    if (seconds.count() < kLeastSeconds || now - shown_ < kBetweenLooks) return;
    shown_ = now;
    show_progress({progress_text("ttrace: " + what_, done, total, seconds.count())});
  };
}

}  // namespace ttrace
