// Counts things in words.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace ttrace {

// Returns `1 tensor` or `3 tensors`.
template <typename Count>
std::string count_of(Count count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// Returns `1 tensor was` or `3 tensors were`.
template <typename Count>
std::string count_was(Count count, std::string_view what) {
  return count_of(count, what) + (count == 1 ? " was" : " were");
}

}  // namespace ttrace
