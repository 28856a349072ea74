#include "text/wrap.h"

#include <algorithm>

namespace ttrace {
namespace {

// Every byte of UTF-8 but the first of a code point begins with the bits 10.
bool begins_character(char c) { return (c & 0xc0) != 0x80; }

// Returns the end of what begins at `at` and stays whole: the second backtick, or the bracket behind an index; `at`
// where nothing does.
std::size_t end_of_whole(std::string_view text, std::size_t at) {
  if (text[at] == '`') return std::min(text.find('`', at + 1), text.size());
  const std::size_t end = text[at] == '[' ? text.find_first_not_of("0123456789, -", at + 1) : text.npos;
  return end != text.npos && text[end] == ']' ? end : at;
}

// Returns the end of the word that begins at `begin`: the next space that nothing keeps.
std::size_t end_of_word(std::string_view text, std::size_t begin) {
  for (std::size_t at = begin; at < text.size(); ++at) {
    if (text[at] == ' ') return at;
    const std::size_t end = end_of_whole(text, at);
    at = end == text.size() ? at : end;
  }
  return text.size();
}

// Returns the position of the character that so many characters come before.
std::size_t position_of(std::string_view text, std::size_t characters) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (begins_character(text[at]) && characters-- == 0) return at;
  }
  return text.size();
}

}  // namespace

std::size_t width_of(std::string_view printable) {
  return static_cast<std::size_t>(std::count_if(printable.begin(), printable.end(), begins_character));
}

std::string wrapped(std::string_view printable, std::size_t width, std::size_t indent) {
  std::string lines;
  std::size_t column = 0;
  bool is_first = true;  // word of its line
  for (std::size_t begin = 0; begin < printable.size();) {
    const std::size_t end = end_of_word(printable, begin);
    const std::string_view word = printable.substr(begin, end - begin);
    const std::size_t columns = width_of(word);
    if (!is_first && column + 1 + columns > width) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
      is_first = true;
    }
    if (!is_first) lines += ' ';
    lines += word;
    column += (is_first ? 0 : 1) + columns;
    is_first = false;
    begin = end + 1;
  }
  return lines;
}

std::string clipped(std::string_view printable, std::size_t width) {
  constexpr std::string_view kGap = "...";
  const std::size_t columns = width_of(printable);
  if (columns <= width || width <= kGap.size()) return std::string(printable.substr(0, position_of(printable, width)));
  const std::size_t kept = width - kGap.size(), at_end = kept / 2;
  return std::string(printable.substr(0, position_of(printable, kept - at_end))) + std::string(kGap) +
         std::string(printable.substr(position_of(printable, columns - at_end)));
}

}  // namespace ttrace
