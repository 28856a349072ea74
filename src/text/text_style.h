// Says what a text may use of the terminal that it goes to.
#pragma once

#include <string>

namespace ttrace {

struct TextStyle {
  // The width in columns; words that are longer, commands to copy and tables of findings go over it. npos: a sentence
  // is a line, for programs that look for lines.
  std::size_t width = std::string::npos;
  bool color = false;
  bool unicode = false;
};

}  // namespace ttrace
