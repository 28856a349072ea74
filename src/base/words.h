// The words of the report's stable interface (lower case, hyphens). Each enumeration has one table of them: the
// enumerator, its word, and what that means. The report's schema, the types of the page and of the Python package and
// the manual's tables are made from these (tools/report_types).
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace ttrace {

template <typename Enum>
struct Word {
  Enum value;
  std::string_view word;
  std::string_view meaning;
};

// The table of an enumeration, and what the generated types call it. `vocabulary_of(Enum())` gives it.
template <typename Enum>
struct Vocabulary {
  std::string_view name;
  std::span<const Word<Enum>> words;
};

// True where `value` is one of its type's enumerators: compilers print another value as `= (ttrace::Cause)21`.
template <auto value>
consteval bool is_enumerator() {
  return std::string_view(__PRETTY_FUNCTION__).find("= (") == std::string_view::npos;
}

// True where the table has a word for every enumerator, in their order. Clang's tree has parentheses around a template
// argument that is a reference.
// NOLINTBEGIN(readability-redundant-parentheses)
template <const auto& table>
consteval bool has_every_enumerator() {
  using Enum = decltype(table.front().value);
  constexpr auto first = static_cast<std::size_t>(table.front().value);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].value != static_cast<Enum>(first + i) || table[i].word.empty() || table[i].meaning.empty())
      return false;
  }
  return !is_enumerator<static_cast<Enum>(first - 1)>() && !is_enumerator<static_cast<Enum>(first + table.size())>();
}
// NOLINTEND(readability-redundant-parentheses)

// Returns the word of `value` in a table that has every enumerator.
template <typename Enum>
constexpr std::string_view word_in(std::span<const Word<Enum>> words, Enum value) {
  return words[static_cast<std::size_t>(value) - static_cast<std::size_t>(words.front().value)].word;
}

}  // namespace ttrace
