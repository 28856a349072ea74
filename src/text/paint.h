// Colours for text on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ttrace {

enum class Color : std::uint8_t { kGood, kBad, kUnclear, kLabel, kPlace };

// Returns the text between the terminal's codes for the colour; as it is where `colored` is false.
std::string painted(std::string_view text, Color color, bool colored);

}  // namespace ttrace
