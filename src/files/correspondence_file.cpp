#include "files/correspondence_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/integer.h"
#include "files/annotation_yaml.h"
#include "files/regular_file.h"
#include "files/yaml_document.h"

namespace ttrace {
namespace {

using annotation_yaml::Context;
using annotation_yaml::fail;
using annotation_yaml::Item;
using annotation_yaml::read_items;
using annotation_yaml::read_word;

constexpr std::string_view kExpectedRule =
    "the name on the other side, a list of such, a mapping with `is` and patterns by input, output or parameter, or a "
    "list of such mappings";
constexpr std::int64_t kMostSize = 1'000'000'000;

// Calls `parse`, whose objection to a pattern becomes an error with file and line.
template <class Parse>
auto parsed(const Context& context, int line, Parse parse) {
  try {
    return parse();
  } catch (const PatternError& error) {
    fail(context, line, error.what());
  }
}

std::vector<NamePattern> read_names(const std::vector<std::string>& texts, const Context& context, int line) {
  return parsed(context, line, [&] {
    std::vector<NamePattern> names;
    for (const std::string& text : texts) {
      for (const std::string& one : expand_braces(text)) names.emplace_back(one);
    }
    return names;
  });
}

std::vector<std::string> words_of(const YamlNode& node, const Context& context, int line) {
  if (!node.is_list()) return {read_word(node, context, line, kExpectedRule)};
  std::vector<std::string> words;
  for (const YamlNode& item : node.items()) words.push_back(read_word(item, context, line, kExpectedRule));
  if (words.empty()) fail(context, line, fmt::format("an empty list; expected {}", kExpectedRule));
  return words;
}

std::optional<IndexPattern> read_pattern(const Item& item, const CorrespondenceRule& rule, const Context& context) {
  const std::string word = read_word(item.value, context.inside(item.key), item.line, "a pattern, `same` or `none`");
  if (word == "none") return std::nullopt;
  const Context inside = context.inside(item.key);
  IndexPattern pattern = parsed(inside, item.line, [&] {
    return parse_index_pattern(word == "same" ? kSameIndices : std::string_view(word), rule.own_axes(0),
                               rule.own_axes(1));
  });
  for (std::size_t side : {0, 1}) {
    const std::size_t tensors = pattern.sides[side].size(), names = rule.names[side].size();
    if (tensors == names || tensors == 1) continue;
    fail(inside, item.line,
         fmt::format("'{}' has {} tensors on the {}, the rule {} names; expected as many, or one", word, tensors,
                     side == 0 ? "left" : "right", names));
  }
  return pattern;
}

CorrespondenceRule read_rule(const Item& item, const std::string& file) {
  const Context context{file, fmt::format("'{}'", item.key), nullptr};
  CorrespondenceRule rule;
  rule.source = {file, item.line};
  rule.names[0] = read_names({item.key}, context, item.line);
  std::vector<Item> fields;
  if (item.value.is_map()) {
    fields = read_items(item.value, context, item.line, kExpectedRule);
  } else {
    rule.names[1] = read_names(words_of(item.value, context, item.line), context, item.line);
  }
  for (const Item& field : fields) {
    if (field.key == "is") rule.names[1] = read_names(words_of(field.value, context, field.line), context, field.line);
  }
  if (rule.names[1].empty()) fail(context, item.line, fmt::format("'is' is missing; expected {}", kExpectedRule));
  for (std::size_t side : {0, 1}) {
    for (const NamePattern& name : rule.names[side]) {
      if (name.captures() == rule.names[side].front().captures()) continue;
      fail(context, item.line,
           fmt::format("'{}' and '{}' have other captures; expected the same", rule.names[side].front().text(),
                       name.text()));
    }
  }
  for (const Item& field : fields) {
    if (field.key == "is") continue;
    if (field.key == "optional") {
      const std::string word = read_word(field.value, context, field.line, "true or false");
      if (word != "true" && word != "false") {
        fail(context.inside(field.key), field.line, fmt::format("'{}'; expected true or false", word));
      }
      rule.optional = word == "true";
      continue;
    }
    rule.patterns[field.key] = read_pattern(field, rule, context);
  }
  return rule;
}

// A name that is several of the other side, one for its input and one for its output, has a mapping for each.
void read_rules(const Item& item, const std::string& file, std::vector<CorrespondenceRule>& rules) {
  const bool has_several =
      item.value.is_list() && item.value.items().size() > 0 && (*item.value.items().begin()).is_map();
  if (!has_several) {
    rules.push_back(read_rule(item, file));
    return;
  }
  const Context context{file, fmt::format("'{}'", item.key), nullptr};
  for (const YamlNode& one : item.value.items()) {
    if (!one.is_map()) fail(context, one.line(), fmt::format("not a mapping; expected {}", kExpectedRule));
    rules.push_back(read_rule({item.key, one.line(), one}, file));
  }
}

SizeRule read_size(const Item& item, const Context& context) {
  SizeRule rule;
  rule.name = item.key;
  rule.source = {context.file, item.line};
  const Context inside = context.inside(item.key);
  const std::string word = read_word(item.value, inside, item.line, "a number, or the pattern of a tensor's shape");
  if (const auto number = integer_of(word)) {
    if (*number < 1 || *number > kMostSize) {
      fail(inside, item.line, fmt::format("'{}'; expected a number from 1 to {}", word, kMostSize));
    }
    rule.number = *number;
    return rule;
  }
  rule.tensor = parsed(inside, item.line, [&] { return NamePattern(item.key); });
  rule.shape = parsed(inside, item.line, [&] { return parse_tensor_pattern(word); });
  return rule;
}

// Keys of a model's config.json, and the axes whose sizes they are.
void read_configured_sizes(const Item& item, const Context& context, std::vector<SizeRule>& sizes) {
  const Context inside = context.inside(item.key);
  for (const Item& key : read_items(item.value, inside, item.line, "keys of a config.json and names of axes")) {
    SizeRule rule;
    rule.name = read_word(key.value, inside.inside(key.key), key.line, "the name of an axis");
    rule.config = key.key;
    rule.source = {context.file, key.line};
    sizes.push_back(std::move(rule));
  }
}

Correspondence read_document(const YamlNode& document, const std::string& where) {
  const Context context{where, "", nullptr};
  Correspondence result;
  result.path = where;
  result.sides = {"the left names", "the right names"};
  for (const Item& item : read_items(document, context, 1, "names and what they are on the other side")) {
    const Context inside{where, fmt::format("'{}'", item.key), nullptr};
    if (item.key == "sides") {
      if (!item.value.is_list() || item.value.items().size() != 2) {
        fail(inside, item.line, "expected a list of two names, of the left side and of the right");
      }
      std::size_t side = 0;
      for (const YamlNode& name : item.value.items()) {
        result.sides[side++] = read_word(name, inside, item.line, "a name");
      }
    } else if (item.key == "sizes") {
      for (const Item& size : read_items(item.value, inside, item.line, "names of axes or tensors")) {
        if (size.key == "config" && size.value.is_map()) {
          read_configured_sizes(size, inside, result.sizes);
        } else {
          result.sizes.push_back(read_size(size, inside));
        }
      }
    } else if (item.key == "none") {
      result.none = read_names(words_of(item.value, inside, item.line), inside, item.line);
    } else if (item.key == "activations") {
      const std::string word = read_word(item.value, inside, item.line, "a pattern");
      result.activations = parsed(inside, item.line, [&] { return parse_index_pattern(word); });
      if (result.activations->sides[0].size() != 1 || result.activations->sides[1].size() != 1) {
        fail(inside, item.line, fmt::format("'{}'; expected one tensor on each side", word));
      }
    } else {
      read_rules(item, where, result.rules);
    }
  }
  if (result.rules.empty()) {
    throw InputError(
        fmt::format("{}: names nothing; expected lines as in annotations/correspondences/README.md", where));
  }
  return result;
}

std::filesystem::path find_file(const std::string& name, const std::filesystem::path& presets) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(name, ignored) || fs::path(name).has_parent_path() || presets.empty()) return name;
  for (const fs::path& preset : {presets / name, presets / (name + ".yaml")}) {
    if (fs::exists(preset, ignored)) return preset;
  }
  return name;
}

}  // namespace

Correspondence parse_correspondence(const std::string& text, const std::string& where) {
  try {
    const YamlNode document = parse_yaml(text);
    return read_document(document, where);
  } catch (const YamlError& error) {
    throw InputError(fmt::format("{}:{}: {}; expected YAML as in annotations/correspondences/README.md", where,
                                 error.line, error.what()));
  }
}

Correspondence read_correspondence(const std::string& name, const std::filesystem::path& presets) {
  const std::filesystem::path file = find_file(name, presets);
  return parse_correspondence(read_text_file(file, "a correspondence file, or the name of one that comes with ttrace"),
                              file.string());
}

}  // namespace ttrace
