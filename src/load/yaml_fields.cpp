#include "load/yaml_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "load/yaml_document.h"

namespace ttrace {

int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

Fields::Fields(const std::string& file, const YAML::Node& node, int line, std::string what)
    : file_(file), line_(line), what_(std::move(what)) {
  if (!node.IsMap()) fail_at(file_, line_, fmt::format("{} is no mapping; expected `key: value`", what_));
  for (const auto& item : node) {
    const int at = line_of(item.first);
    if (!item.first.IsScalar()) fail_at(file_, at, fmt::format("{} has a key that is no word; expected one", what_));
    const std::string& key = item.first.Scalar();
    if (!items_.emplace(key, Item{item.second, at, items_.size()}).second) {
      fail_at(file_, at, fmt::format("{} has '{}' twice; expected it once", what_, key));
    }
  }
}

std::optional<YAML::Node> Fields::take_if(const std::string& key) {
  const auto found = items_.find(key);
  if (found == items_.end()) return std::nullopt;
  YAML::Node node = found->second.node;
  last_line_ = found->second.line;
  items_.erase(found);
  return node;
}

YAML::Node Fields::take(const std::string& key) {
  const auto node = take_if(key);
  if (!node) fail_at(file_, line_, fmt::format("{} has no '{}'; expected one", what_, key));
  return *node;
}

std::string Fields::take_word(const std::string& key) {
  const YAML::Node node = take(key);
  if (!node.IsScalar() || node.Scalar().empty()) {
    fail_at(file_, last_line_, fmt::format("'{}' of {} is no word; expected one", key, what_));
  }
  return node.Scalar();
}

double Fields::take_number(const std::string& key) { return number_of(take(key), key); }

std::vector<YAML::Node> Fields::take_list(const std::string& key) {
  const YAML::Node node = take(key);
  if (!node.IsSequence()) fail_at(file_, last_line_, fmt::format("'{}' of {} is no list; expected one", key, what_));
  return {node.begin(), node.end()};
}

namespace {

// Nothing where the node is no finite number.
std::optional<double> finite_number(const YAML::Node& node) {
  double value = 0;
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace

double Fields::number_of(const YAML::Node& node, const std::string& key) const {
  const std::optional<double> value = finite_number(node);
  if (value && *value >= 0) return *value;
  fail_at(file_, last_line_,
          fmt::format("'{}' of {} is '{}'; expected a finite number from 0", key, what_,
                      node.IsScalar() ? node.Scalar() : ""));
}

double Fields::signed_number_of(const YAML::Node& node, const std::string& key) const {
  if (const std::optional<double> value = finite_number(node)) return *value;
  fail_at(
      file_, last_line_,
      fmt::format("'{}' of {} is '{}'; expected a finite number", key, what_, node.IsScalar() ? node.Scalar() : ""));
}

void Fields::done() const {
  if (items_.empty()) return;
  const auto first = std::min_element(items_.begin(), items_.end(),
                                      [](const auto& a, const auto& b) { return a.second.line < b.second.line; });
  fail_at(file_, first->second.line, fmt::format("{} has an unknown key '{}'; expected none", what_, first->first));
}

std::vector<std::string> Fields::keys() const {
  std::vector<std::pair<std::size_t, std::string>> order;
  for (const auto& [key, item] : items_) order.emplace_back(item.position, key);
  std::sort(order.begin(), order.end());
  std::vector<std::string> keys;
  for (auto& [position, key] : order) keys.push_back(std::move(key));
  return keys;
}

void read_mapping(const std::string& text, const std::string& where, const std::string& expected,
                  const std::string& expected_yaml, const std::function<void(Fields&)>& read) {
  try {
    const YAML::Node document = parse_yaml(text);
    if (!document.IsMap()) {
      throw InputError(fmt::format("{}: not one YAML mapping; expected {}", where, expected));
    }
    Fields fields(where, document, 1, "the file");
    read(fields);
  } catch (const YAML::Exception& error) {
    const std::string line = error.mark.is_null() ? "" : fmt::format(":{}", error.mark.line + 1);
    throw InputError(fmt::format("{}{}: {}; expected {}", where, line, error.msg, expected_yaml));
  }
}

}  // namespace ttrace
