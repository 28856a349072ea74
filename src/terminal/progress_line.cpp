#include "terminal/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace ttrace {

ProgressLine::ProgressLine(std::string what) : what_(std::move(what)), is_terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (is_terminal_) std::fputs("\r\x1b[K", stderr);
}

std::function<void(std::uint64_t, std::uint64_t)> ProgressLine::callback() const {
  if (!is_terminal_) return {};
  return [this](std::uint64_t done, std::uint64_t total) {
    fmt::print(stderr, "\r\x1b[K{}: {:.0f} % of {:.1f} GiB", what_,
               100.0 * static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(total, 1)),
               static_cast<double>(total) / (1u << 30));
  };
}

}  // namespace ttrace
