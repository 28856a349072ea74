// Integers in words that people wrote.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ttrace {

// Nothing where the word is anything else than one decimal integer of 64 bits.
inline std::optional<std::int64_t> integer_of(std::string_view word) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size() ? std::optional(value) : std::nullopt;
}

}  // namespace ttrace
