// Breaks text into lines for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ttrace {

// Counts the code points of printable text, each of which takes one column.
std::size_t width_of(std::string_view printable);

// Returns printable text in lines of at most `width` columns, broken between words; all lines but the first begin with
// `indent` spaces. A word that is longer than a line, what stands between two backticks, such as a command to
// copy, and an index in brackets are not broken. There is no newline at the end.
std::string wrapped(std::string_view printable, std::size_t width, std::size_t indent = 0);

// Returns the text, shortened in its middle to at most `width` columns.
std::string clipped(std::string_view printable, std::size_t width);

}  // namespace ttrace
