#include "text/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace ttrace {
namespace {

// Characters of more than one byte that YAML refuses, or takes for the end of a line.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kEscapes{{
    {"\xe2\x80\xa8", "\\u2028"},
    {"\xe2\x80\xa9", "\\u2029"},
    {"\xef\xbb\xbf", "\\ufeff"},
    {"\xef\xbf\xbe", "\\ufffe"},
    {"\xef\xbf\xbf", "\\uffff"},
}};

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

// Appends the first character of the text as it is written between quotes, and takes it away.
void append_quoted(std::string_view& text, std::string& result) {
  const auto first = static_cast<unsigned char>(text[0]);
  const auto second = static_cast<unsigned char>(text.size() > 1 ? text[1] : 0);
  std::size_t size = 1;
  const auto escape =
      std::find_if(kEscapes.begin(), kEscapes.end(), [&](const auto& known) { return text.starts_with(known.first); });
  if (escape != kEscapes.end()) {
    result += escape->second;
    size = escape->first.size();
  } else if (first == '"' || first == '\\') {
    result += fmt::format("\\{}", text[0]);
  } else if (first < 0x20 || first == 0x7f) {
    result += fmt::format("\\x{:02x}", first);
  } else if (first == 0xc2 && second >= 0x80 && second <= 0x9f) {  // U+0080 to U+009F
    result += fmt::format("\\x{:02x}", second);
    size = 2;
  } else {
    result += text[0];
  }
  text.remove_prefix(size);
}

}  // namespace

std::string yaml_word(std::string_view text) {
  const bool word = !text.empty() && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
  const bool null = text == "null" || text == "Null" || text == "NULL";
  if (word && !null && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string result = "\"";
  while (!text.empty()) append_quoted(text, result);
  return result + '"';
}

std::string yaml_key(std::string_view text, std::size_t indent) {
  constexpr std::size_t kLongestInOneLine = 1000;
  const std::string word = yaml_word(text);
  if (word.size() <= kLongestInOneLine) return word + ':';
  return fmt::format("? {}\n{:{}}:", word, "", indent);
}

}  // namespace ttrace
