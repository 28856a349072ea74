#include "load/annotation_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "load/annotation_parameters.h"
#include "ttrace/error.h"

namespace ttrace::annotation_yaml {

Context Context::inside(std::string_view key) const { return {file, fmt::format("{}: {}", subject, key), parameters}; }

void fail(const Context& context, int line, const std::string& what) {
  throw InputError(
      fmt::format("{}:{}: {}{}{}", context.file, line, context.subject, context.subject.empty() ? "" : ": ", what));
}

// Refuses a key that is written twice: yaml-cpp keeps both and finds only one of them.
std::vector<Item> read_items(const YAML::Node& node, const Context& context, int line, std::string_view expected) {
  if (!node.IsMap()) fail(context, line, fmt::format("not a mapping; expected {}", expected));
  std::vector<Item> items;
  std::set<std::string> seen;
  for (const auto& item : node) {
    if (!item.first.IsScalar() || item.first.Scalar().empty()) {
      fail(context, item.first.Mark().line + 1, fmt::format("a key that is no word; expected {}", expected));
    }
    const std::string& key = item.first.Scalar();
    const int at = item.first.Mark().line + 1;
    if (!seen.insert(key).second) fail(context, at, fmt::format("'{}' appears twice; expected it once", key));
    const auto value =
        context.parameters == nullptr ? item.second : context.parameters->resolve(item.second, context.inside(key), at);
    if (value) items.push_back({key, at, *value});
  }
  return items;
}

std::string read_word(const YAML::Node& node, const Context& context, int line, std::string_view expected) {
  if (!node.IsScalar() || node.Scalar().empty()) fail(context, line, fmt::format("no value; expected {}", expected));
  return node.Scalar();
}

std::int64_t read_integer(const YAML::Node& node, const Context& context, int line, std::int64_t low, std::int64_t high,
                          std::string_view expected) {
  const std::string word = read_word(node, context, line, expected);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < low || value > high) {
    fail(context, line, fmt::format("'{}'; expected {}", word, expected));
  }
  return value;
}

}  // namespace ttrace::annotation_yaml
