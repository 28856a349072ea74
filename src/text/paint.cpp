#include "text/paint.h"

#include <fmt/color.h>

namespace ttrace {
namespace {

fmt::text_style style_of(Color color) {
  switch (color) {
    case Color::kGood:
      return fmt::emphasis::bold | fg(fmt::terminal_color::green);
    case Color::kBad:
      return fmt::emphasis::bold | fg(fmt::terminal_color::red);
    case Color::kUnclear:
      return fmt::emphasis::bold | fg(fmt::terminal_color::yellow);
    case Color::kLabel:
      return fmt::emphasis::bold;
    case Color::kPlace:
      return fg(fmt::terminal_color::cyan);
  }
  return {};
}

}  // namespace

std::string painted(std::string_view text, Color color, bool colored) {
  return colored ? fmt::format(style_of(color), "{}", text) : std::string(text);
}

}  // namespace ttrace
