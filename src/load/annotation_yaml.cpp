#include "load/annotation_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "load/annotation_parameters.h"
#include "ttrace/error.h"

namespace ttrace::annotation_yaml {

Place Place::inside(std::string_view key) const { return {file, fmt::format("{}: {}", subject, key), parameters}; }

void fail(const Place& place, int line, const std::string& what) {
  throw InputError(
      fmt::format("{}:{}: {}{}{}", place.file, line, place.subject, place.subject.empty() ? "" : ": ", what));
}

// yaml-cpp keeps a key that is written twice, and finds only one of the two.
std::vector<Item> items_of(const YAML::Node& node, const Place& place, int line, std::string_view expected) {
  if (!node.IsMap()) fail(place, line, fmt::format("not a mapping; expected {}", expected));
  std::vector<Item> items;
  std::set<std::string> seen;
  for (const auto& item : node) {
    if (!item.first.IsScalar() || item.first.Scalar().empty()) {
      fail(place, item.first.Mark().line + 1, fmt::format("a key that is no word; expected {}", expected));
    }
    const std::string& key = item.first.Scalar();
    const int at = item.first.Mark().line + 1;
    if (!seen.insert(key).second) fail(place, at, fmt::format("'{}' appears twice; expected it once", key));
    const auto value =
        place.parameters == nullptr ? item.second : place.parameters->value_of(item.second, place.inside(key), at);
    if (value) items.push_back({key, at, *value});
  }
  return items;
}

std::string word_of(const YAML::Node& node, const Place& place, int line, std::string_view expected) {
  if (!node.IsScalar() || node.Scalar().empty()) fail(place, line, fmt::format("no value; expected {}", expected));
  return node.Scalar();
}

std::int64_t integer_of(const YAML::Node& node, const Place& place, int line, std::int64_t low, std::int64_t high,
                        std::string_view expected) {
  const std::string word = word_of(node, place, line, expected);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < low || value > high) {
    fail(place, line, fmt::format("'{}'; expected {}", word, expected));
  }
  return value;
}

}  // namespace ttrace::annotation_yaml
