#include "align/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace ttrace {
namespace {

constexpr std::size_t kMaxDigits = 9;

// The component that starts at `begin`, after a dot, if it is a number.
std::optional<NameNumber> number_at(std::string_view name, std::size_t begin) {
  const std::size_t end = std::min(name.find_first_of(".:#", begin), name.size());
  const std::string_view digits = name.substr(begin, end - begin);
  if (digits.empty() || digits.size() > kMaxDigits || (digits[0] == '0' && digits.size() > 1)) return std::nullopt;
  NameNumber number{name.substr(0, begin - 1), begin, end, 0};
  const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number.value);
  if (error != std::errc() || last != digits.data() + digits.size() || digits[0] == '-') return std::nullopt;
  return number;
}

}  // namespace

std::optional<NameNumber> number_in(std::string_view name, std::size_t from) {
  const std::string_view path = module_path(name);
  for (std::size_t dot = path.find('.', from); dot != path.npos; dot = path.find('.', dot + 1)) {
    if (const auto number = number_at(name, dot + 1)) return number;
  }
  return std::nullopt;
}

std::optional<NameNumber> layer_number(std::string_view name, std::string_view layers) {
  const std::string_view path = module_path(name);
  for (std::size_t at = path.find(layers); at != path.npos; at = path.find(layers, at + 1)) {
    const std::size_t end = at + layers.size();
    const bool starts = at == 0 || path[at - 1] == '.';
    if (!starts || end >= path.size() || path[end] != '.') continue;
    if (const auto number = number_at(name, end + 1)) return number;
  }
  return std::nullopt;
}

std::string with_number(std::string_view name, const NameNumber& number, std::int64_t value) {
  return fmt::format("{}{}{}", name.substr(0, number.begin), value, name.substr(number.end));
}

std::string_view module_path(std::string_view name) { return name.substr(0, name.find_first_of(":#")); }

}  // namespace ttrace
