#include "workflow/option_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "host/shell_words.h"

namespace ttrace {
namespace {

using Words = std::vector<std::string>;

struct Value {
  Option option;
  Words texts;
};

// Returns all options, in the order of the table.
template <class Options>
std::vector<Value> values_of(const Options& options) {
  std::vector<Value> values;
  visit_options(
      options, [&](const Option& option, const auto& member) { values.push_back({option, texts_of(option, member)}); });
  return values;
}

// Returns those that are not as they are by default, without those that need another one that is.
template <class Options>
std::vector<Value> set_values_of(const Options& options) {
  const std::vector<Value> defaults = values_of(Options());
  std::vector<Value> set;
  std::set<std::string> names;
  for (std::size_t i = 0; const Value& value : values_of(options)) {
    if (value.texts == defaults[i++].texts) continue;
    set.push_back(value);
    names.insert(long_name_of(value.option));
  }
  std::erase_if(set,
                [&](const Value& value) { return *value.option.needs != '\0' && !names.contains(value.option.needs); });
  return set;
}

// Returns "-a" of "-a,--annotations", and "--no-checksums" of "!--no-checksums".
std::string first_name_of(const Option& option) {
  const std::string_view names = option.names;
  return std::string(names.substr(names.starts_with('!') ? 1 : 0, names.find(',')));
}

template <class Options>
Words words_of_set(const Options& options) {
  Words words;
  for (const Value& value : set_values_of(options)) {
    const std::string name = first_name_of(value.option);
    if (*value.option.type == '\0') {  // a flag
      words.push_back(name);
      continue;
    }
    for (const std::string& text : value.texts) words.insert(words.end(), {name, text});
  }
  return words;
}

bool is_list(const Option& option) { return option.type == std::string_view("LIST"); }

std::string command_line(const char* command, CheckOptions options, const std::filesystem::path& output) {
  options.threads = 0;
  Words words = {"ttrace", command};
  const Words set = to_words(options);
  words.insert(words.end(), set.begin(), set.end());
  if (!output.empty()) words.insert(words.end(), {"-o", output.string()});
  return shell_line(words);
}

}  // namespace

Words to_words(const CheckOptions& options) { return words_of_set(options); }
Words to_words(const CollectOptions& options) { return words_of_set(options); }
Words to_words(const RecordingSelection& selection) { return words_of_set(selection); }

Words unknown_to_localize(const CheckOptions& options) {
  Words names;
  for (const Value& value : set_values_of(options)) {
    if (!value.option.in_localize) names.push_back(first_name_of(value.option));
  }
  return names;
}

std::string command_of(const CheckOptions& options) { return command_line("check", options, {}); }
std::string localize_command_of(const CheckOptions& options, const std::filesystem::path& output) {
  return command_line("localize", options, output);
}

Words texts_of(const Option&, const std::string& value) { return value.empty() ? Words{} : Words{value}; }
Words texts_of(const Option& option, const std::filesystem::path& value) { return texts_of(option, value.string()); }
Words texts_of(const Option&, bool value) { return {value ? "true" : "false"}; }
Words texts_of(const Option&, int value) { return {std::to_string(value)}; }
Words texts_of(const Option&, std::size_t value) { return {std::to_string(value)}; }
Words texts_of(const Option&, std::chrono::seconds value) { return {std::to_string(value.count())}; }
Words texts_of(const Option&, Estimator value) { return {std::string(name_of(value))}; }
Words texts_of(const Option& option, const Words& value) {
  if (value.empty() || !is_list(option)) return value;
  return {fmt::format("{}", fmt::join(value, ","))};
}
Words texts_of(const Option& option, const std::vector<std::int32_t>& value) {
  return texts_of(option, fmt::format("{}", fmt::join(value, ",")));
}
Words texts_of(const Option& option, const std::set<std::int32_t>& value) {
  return texts_of(option, fmt::format("{}", fmt::join(value, ",")));
}
Words texts_of(const Option&, const std::optional<std::int32_t>& value) {
  return value ? Words{std::to_string(*value)} : Words{};
}
Words texts_of(const Option&, const std::optional<std::uint64_t>& value) {
  return value ? Words{std::to_string(*value)} : Words{};
}

void read_value(const Option&, const std::string& text, Estimator& value) { value = estimator_from_name(text).value(); }
void read_value(const Option&, const std::string& text, Words& kinds) { kinds = parse_kinds(text); }
void read_value(const Option&, const std::string& text, std::vector<std::int32_t>& iterations) {
  iterations = parse_iterations(text);
}
void read_value(const Option&, const std::string& text, std::set<std::int32_t>& iterations) {
  const std::vector<std::int32_t> all = parse_iterations(text);
  iterations = {all.begin(), all.end()};
}

}  // namespace ttrace
