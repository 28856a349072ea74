#include "files/annotation_parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "files/annotation_yaml.h"
#include "files/yaml_document.h"

namespace ttrace::annotation_yaml {
namespace {

constexpr std::string_view kExpectedValue = "a number, a word, a list of them, or null";

bool is_word(const YamlNode& node) { return !node.word().empty() && !node.word().starts_with('$'); }

bool is_list_of_words(const YamlNode& node) {
  std::size_t items = 0, words = 0;
  for (const YamlNode& item : node.items()) {
    ++items;
    words += is_word(item);
  }
  return words == items;
}

bool is_value(const YamlNode& node) {
  return node.is_null() || is_word(node) || (node.is_list() && is_list_of_words(node));
}

bool is_number(const YamlNode& node) {
  return node.is_word() &&
         node.word().find_first_not_of("0123456789", node.word()[0] == '-' ? 1 : 0) == std::string::npos;
}

// Names the type that a default asks for. Where it is a word, a number may be given, too: the factor 1 in place of
// `dp`.
std::string_view type_of(const YamlNode& value) {
  return value.is_list() ? "a list" : is_number(value) ? "a number" : "a word";
}

bool has_type_of(const YamlNode& value, const YamlNode& declared) {
  if (value.is_null() || declared.is_null()) return true;
  return declared.is_list() ? value.is_list() : value.is_word() && (is_number(value) || !is_number(declared));
}

std::string display_text(const YamlNode& value) {
  if (value.is_null()) return "null";
  if (value.is_word()) return std::string(value.word());
  std::vector<std::string_view> words;
  for (const YamlNode& item : value.items()) words.push_back(item.word());
  return fmt::format("[{}]", fmt::join(words, ", "));
}

std::string describe_setting(const std::string& setting) { return "parameter " + setting; }

}  // namespace

std::pair<std::string, YamlNode> split_setting(const std::string& setting) {
  const std::size_t equals = setting.find('=');
  if (equals == 0 || equals == setting.npos || equals + 1 == setting.size()) {
    throw InputError(fmt::format("{}: expected its name and its value, as in kv_heads=8", describe_setting(setting)));
  }
  try {
    return {setting.substr(0, equals), parse_yaml(setting.substr(equals + 1))};
  } catch (const YamlError& error) {
    throw InputError(fmt::format("{}: {}; expected {}", describe_setting(setting), error.what(), kExpectedValue));
  }
}

void Parameters::read(const YamlNode& node, const Context& context, int line) {
  for (const auto& [name, at, value] : read_items(node, context, line, "names and their values")) {
    const std::string file_line = fmt::format("{}:{}", context.file, at);
    assign(name, value, fmt::format("{}: {}: {}", file_line, context.subject, name), file_line);
  }
}

void Parameters::set(const std::string& setting) {
  const auto [name, value] = split_setting(setting);
  assign(name, value, describe_setting(setting), describe_setting(setting));
}

void Parameters::assign(const std::string& name, const YamlNode& value, const std::string& origin,
                        const std::string& at) {
  if (!is_value(value)) throw InputError(fmt::format("{}: no value; expected {}", origin, kExpectedValue));
  const auto [found, is_new] = parameters_.try_emplace(name, Parameter{value, origin, value, at});
  if (is_new) return;
  Parameter& parameter = found->second;
  if (!has_type_of(value, parameter.declared)) {
    throw InputError(fmt::format("{}: '{}'; expected {}, as the default {} in {}", origin, display_text(value),
                                 type_of(parameter.declared), display_text(parameter.declared), parameter.declared_at));
  }
  parameter.value = value;
  parameter.origin = origin;
}

std::optional<YamlNode> Parameters::resolve(const YamlNode& node, const Context& context, int line) {
  if (!node.is_word() || !node.word().starts_with('$')) return node;
  const std::string name(node.word().substr(1));
  const auto found = parameters_.find(name);
  if (found == parameters_.end()) {
    fail(context, line, fmt::format("there is no parameter '{}'; expected {}", name, other_names(name)));
  }
  found->second.used = true;
  if (found->second.value.is_null()) return std::nullopt;
  return found->second.value;
}

void Parameters::require_used() const {
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.used) continue;
    throw InputError(fmt::format("{}: no value is ${}; expected {}", parameter.origin, name, other_names(name)));
  }
}

std::string Parameters::other_names(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const auto& [other, parameter] : parameters_) {
    if (other != name) names.push_back(other);
  }
  return names.empty() ? "none" : fmt::format("one of {}", fmt::join(names, ", "));
}

}  // namespace ttrace::annotation_yaml
