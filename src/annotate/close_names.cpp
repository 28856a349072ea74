#include "annotate/close_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/tensor_name.h"
#include "base/trace.h"

namespace ttrace {
namespace {

constexpr std::size_t kMost = 5;

// Levenshtein's distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::size_t distance_to_suffix(std::string_view pattern, std::string_view name) {
  std::size_t best = edit_distance(pattern, name);
  for (const std::string_view suffix : suffixes_of(name)) best = std::min(best, edit_distance(pattern, suffix));
  return best;
}

}  // namespace

std::vector<std::string> close_names(const std::string& pattern, const std::set<std::string>& names) {
  std::vector<std::pair<std::size_t, std::string>> found;
  for (const std::string& name : names) {
    const std::size_t distance = distance_to_suffix(pattern, name);
    if (distance <= std::max<std::size_t>(1, pattern.size() / 3)) found.emplace_back(distance, printable(name));
  }
  std::sort(found.begin(), found.end());
  found.resize(std::min(found.size(), kMost));
  std::vector<std::string> close;
  for (auto& [distance, name] : found) close.push_back(std::move(name));
  return close;
}

InputError no_such_name(const std::string& pattern, const std::set<std::string>& names) {
  const std::vector<std::string> close = close_names(pattern, names);
  return InputError(fmt::format("pattern '{}': no tensor's name matches; expected {}", pattern,
                                close.empty() ? "a name, what follows one of its dots, or a glob"
                                              : fmt::format("something like {}", fmt::join(close, ", "))));
}

}  // namespace ttrace
