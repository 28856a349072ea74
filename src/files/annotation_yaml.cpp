#include "files/annotation_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/integer.h"
#include "files/annotation_parameters.h"

namespace ttrace::annotation_yaml {

Context Context::inside(std::string_view key) const { return {file, fmt::format("{}: {}", subject, key), parameters}; }

void fail(const Context& context, int line, const std::string& what) {
  throw InputError(
      fmt::format("{}:{}: {}{}{}", context.file, line, context.subject, context.subject.empty() ? "" : ": ", what));
}

namespace {

constexpr std::size_t kMostEntries = 100'000;  // far more rules than anybody writes, and each takes memory

}  // namespace

// Refuses a key that is written twice.
std::vector<Item> read_items(const YamlNode& node, const Context& context, int line, std::string_view expected) {
  if (!node.is_map()) fail(context, line, fmt::format("not a mapping; expected {}", expected));
  std::vector<Item> items;
  std::set<std::string> seen;
  for (const auto& [word, node_of_key] : node.entries()) {
    const int at = word.line();
    if (word.word().empty()) fail(context, at, fmt::format("a key that is no word; expected {}", expected));
    const std::string key(word.word());
    if (!seen.insert(key).second) fail(context, at, fmt::format("'{}' appears twice; expected it once", key));
    if (seen.size() > kMostEntries) fail(context, at, fmt::format("more than {} keys; expected fewer", kMostEntries));
    const auto value =
        context.parameters == nullptr ? node_of_key : context.parameters->resolve(node_of_key, context.inside(key), at);
    if (value) items.push_back({key, at, *value});
  }
  return items;
}

std::string read_word(const YamlNode& node, const Context& context, int line, std::string_view expected) {
  if (node.word().empty()) fail(context, line, fmt::format("no value; expected {}", expected));
  return std::string(node.word());
}

std::int64_t read_integer(const YamlNode& node, const Context& context, int line, std::int64_t low, std::int64_t high,
                          std::string_view expected) {
  const std::string word = read_word(node, context, line, expected);
  const auto value = integer_of(word);
  if (!value || *value < low || *value > high) fail(context, line, fmt::format("'{}'; expected {}", word, expected));
  return *value;
}

}  // namespace ttrace::annotation_yaml
