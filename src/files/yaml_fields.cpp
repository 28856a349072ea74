#include "files/yaml_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace ttrace {

Fields::Fields(const std::string& file, const YamlNode& node, int line, std::string what)
    : file_(file), node_(node), line_(line), what_(std::move(what)) {
  if (!node.is_map()) fail_at(file_, line_, fmt::format("{} is no mapping; expected `key: value`", what_));
  const YamlNode::Entries entries = node.entries();
  left_.reserve(entries.size());
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    const YamlNode key = (*entry).key;
    if (!key.is_word()) fail_at(file_, key.line(), fmt::format("{} has a key that is no word; expected one", what_));
    left_.push_back(entry.place());
  }
  const auto key_at = [&](const YamlNode::Place& place) { return node_.entry_at(place).key; };
  std::sort(left_.begin(), left_.end(), [&](const auto& a, const auto& b) {
    const int order = key_at(a).word().compare(key_at(b).word());
    return order != 0 ? order < 0 : a.at < b.at;
  });
  // The key that is written first is named, of several that are there twice.
  std::optional<YamlNode::Place> twice;
  for (std::size_t i = 1; i < left_.size(); ++i) {
    if (key_at(left_[i]).word() != key_at(left_[i - 1]).word() || (twice && twice->at < left_[i].at)) continue;
    twice = left_[i];
  }
  if (!twice) return;
  const YamlNode key = key_at(*twice);
  fail_at(file_, key.line(), fmt::format("{} has '{}' twice; expected it once", what_, key.word()));
}

Fields::Places::const_iterator Fields::find(std::string_view key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.emplace_back(key);
  const auto key_of = [&](const YamlNode::Place& place) { return node_.entry_at(place).key.word(); };
  const auto found =
      std::lower_bound(left_.begin(), left_.end(), key,
                       [&](const YamlNode::Place& place, std::string_view wanted) { return key_of(place) < wanted; });
  return found != left_.end() && key_of(*found) == key ? found : left_.end();
}

bool Fields::has(std::string_view key) { return find(key) != left_.end(); }

std::optional<YamlNode> Fields::take_if(std::string_view key) {
  const auto found = find(key);
  if (found == left_.end()) return std::nullopt;
  const YamlNode::Entry entry = node_.entry_at(*found);
  last_line_ = entry.key.line();
  left_.erase(found);
  return entry.value;
}

YamlNode Fields::take(std::string_view key) {
  const auto node = take_if(key);
  if (!node) fail_at(file_, line_, fmt::format("{} has no '{}'; expected one", what_, key));
  return *node;
}

std::string Fields::take_word(std::string_view key) {
  const YamlNode node = take(key);
  if (node.word().empty()) fail_at(file_, last_line_, fmt::format("'{}' of {} is no word; expected one", key, what_));
  return std::string(node.word());
}

double Fields::take_number(std::string_view key) { return number_of(take(key), key); }

YamlNode::Items Fields::take_list(std::string_view key) {
  const YamlNode node = take(key);
  if (!node.is_list()) fail_at(file_, last_line_, fmt::format("'{}' of {} is no list; expected one", key, what_));
  return node.items();
}

void Fields::take_each(const std::function<void(const std::string& key, const YamlNode& value)>& read) {
  left_.clear();
  for (const auto& [key, value] : node_.entries()) {
    last_line_ = key.line();
    read(std::string(key.word()), value);
  }
}

namespace {

// Nothing where the node is no finite number.
std::optional<double> finite_number(const YamlNode& node) {
  double value = 0;
  const std::string_view text = node.word();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace

double Fields::number_of(const YamlNode& node, std::string_view key) const {
  const std::optional<double> value = finite_number(node);
  if (value && *value >= 0) return *value;
  fail_at(file_, last_line_,
          fmt::format("'{}' of {} is '{}'; expected a finite number from 0", key, what_, node.word()));
}

double Fields::signed_number_of(const YamlNode& node, std::string_view key) const {
  if (const std::optional<double> value = finite_number(node)) return *value;
  fail_at(file_, last_line_, fmt::format("'{}' of {} is '{}'; expected a finite number", key, what_, node.word()));
}

void Fields::done() const {
  if (left_.empty()) return;
  const auto first =
      std::min_element(left_.begin(), left_.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  const YamlNode key = node_.entry_at(*first).key;
  fail_at(file_, key.line(),
          fmt::format("{} has an unknown key '{}'; expected {}", what_, key.word(),
                      asked_.empty() ? "none" : fmt::format("{}", fmt::join(asked_, ", "))));
}

void read_mapping(std::string text, const std::string& where, const std::string& expected,
                  const std::string& expected_yaml, const std::function<void(Fields&)>& read) {
  YamlNode document;
  try {
    document = parse_yaml(text);
  } catch (const YamlError& error) {
    throw InputError(fmt::format("{}:{}: {}; expected {}", where, error.line, error.what(), expected_yaml));
  }
  std::string().swap(text);
  if (!document.is_map()) throw InputError(fmt::format("{}: not one YAML mapping; expected {}", where, expected));
  Fields fields(where, document, 1, "the file");
  read(fields);
}

}  // namespace ttrace
