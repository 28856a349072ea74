#include "host/terminal.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>

#include "host/progress.h"

namespace ttrace {
namespace {

constexpr std::size_t kLeastWidth = 40, kUsualWidth = 80;

TerminalOptions chosen;

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// mpirun gives its processes a terminal of its own, whatever it was given itself.
bool is_terminal(int file) { return isatty(file) != 0 && variable("OMPI_COMM_WORLD_SIZE").empty(); }

bool has_color(int file) {
  if (chosen.color != ColorChoice::kAuto) return chosen.color == ColorChoice::kAlways;
  return is_terminal(file) && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
}

// True where the locale's encoding is UTF-8, as the first of these variables that is set says.
bool has_unicode() {
  std::string locale;
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (locale.empty()) locale = variable(name);
  }
  std::transform(locale.begin(), locale.end(), locale.begin(), [](unsigned char c) { return std::tolower(c); });
  return locale.find("utf-8") != locale.npos || locale.find("utf8") != locale.npos;
}

std::size_t columns_of(int file) {
  winsize size = {};
  if (ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualWidth;
  return std::max<std::size_t>(size.ws_col, kLeastWidth);
}

// `warning: ` and `error: `; what only informs has no such word.
class LevelFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/, spdlog::memory_buf_t& text) override {
    if (message.level < spdlog::level::warn) return;
    const spdlog::string_view_t name = spdlog::level::to_string_view(message.level);
    text.append(name.data(), name.data() + name.size());
    constexpr std::string_view kColon = ": ";
    text.append(kColon.data(), kColon.data() + kColon.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return spdlog::details::make_unique<LevelFlag>(); }
};

// Writes over the lines that say how far the work is.
class StderrSink : public spdlog::sinks::ansicolor_stderr_sink_mt {
 public:
  explicit StderrSink(spdlog::color_mode mode) : spdlog::sinks::ansicolor_stderr_sink_mt(mode) {}
  void log(const spdlog::details::log_msg& message) override {
    erase_progress();
    spdlog::sinks::ansicolor_stderr_sink_mt::log(message);
  }
};

spdlog::level::level_enum level_of(const TerminalOptions& options) {
  if (options.silent) return spdlog::level::off;
  if (options.quiet) return spdlog::level::warn;
  return options.verbose ? spdlog::level::debug : spdlog::level::info;
}

}  // namespace

void set_up_terminal(const TerminalOptions& options) {
  chosen = options;
  const auto mode = has_color(STDERR_FILENO) ? spdlog::color_mode::always : spdlog::color_mode::never;
  auto logger = std::make_shared<spdlog::logger>("ttrace", std::make_shared<StderrSink>(mode));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelFlag>('*').set_pattern("ttrace: %^%*%$%v");
  logger->set_formatter(std::move(formatter));
  logger->set_level(level_of(options));
  spdlog::set_default_logger(std::move(logger));
}

const TerminalOptions& terminal_options() { return chosen; }

TextStyle style_of_stdout() {
  TextStyle style;
  const bool to_terminal = is_terminal(STDOUT_FILENO);
  if (to_terminal) style.width = columns_of(STDOUT_FILENO);
  style.color = has_color(STDOUT_FILENO);
  style.unicode = to_terminal && has_unicode();
  return style;
}

bool can_ask() { return is_terminal(STDIN_FILENO) && is_terminal(STDERR_FILENO); }

bool ask(const std::string& question) {
  erase_progress();
  std::cerr << "ttrace: " << question << " [y/N] " << std::flush;
  std::string answer;
  return std::getline(std::cin, answer) && (answer.starts_with('y') || answer.starts_with('Y'));
}

bool shows_progress() { return is_terminal(STDERR_FILENO) && variable("TERM") != "dumb" && !chosen.quiet; }

std::size_t width_of_stderr() { return columns_of(STDERR_FILENO); }

}  // namespace ttrace
