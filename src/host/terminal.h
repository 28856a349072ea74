// Says what the terminal can show, and how much of it the user wants. The commands' options say it once, before
// anything is printed; what goes to stderr goes there through spdlog, as `ttrace: warning: ...`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "text/text_style.h"

namespace ttrace {

enum class ColorChoice : std::uint8_t { kAuto, kAlways, kNever };

struct TerminalOptions {
  ColorChoice color = ColorChoice::kAuto;  // kAuto: on a terminal, unless NO_COLOR is set (no-color.org) or it is dumb
  bool quiet = false;                      // on stderr warnings and errors only, on stdout reports in one line
  bool verbose = false;                    // more of both
  bool silent = false;                     // nothing on stderr: another process speaks for this one
};

// Sends what spdlog logs to stderr. May be called again with what the options say.
void set_up_terminal(const TerminalOptions& options);

const TerminalOptions& terminal_options();

// Colours, Unicode and width of the terminal that stdout is; where it is none, lines are not broken.
TextStyle style_of_stdout();

// True where a user sits at the terminal, and can be asked.
bool can_ask();

// Asks on stderr, and returns true where the answer begins with y.
bool ask(const std::string& question);

// True where stderr is a terminal, and the user wants to see how far the work is.
bool shows_progress();

// The columns of the terminal that stderr is.
std::size_t width_of_stderr();

}  // namespace ttrace
