#include "load/program_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/factor.h"
#include "files/parallelism.h"
#include "files/yaml_document.h"

namespace ttrace {
namespace {

using namespace annotation_yaml;

// Reads `["megatron_llama", "mtp_blocks=[1, 1]"]`: the name of a preset, and values of its parameters. The name may not
// be a path, so that a trace cannot choose which other files are read.
AnnotationSource read_preset(const YamlNode& node, const std::string& where) {
  const auto is_name = [](std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
  };
  AnnotationSource preset;
  for (const YamlNode& item : node.items()) {
    if (!item.is_word()) throw InputError(fmt::format("{}: not words; expected a preset and its parameters", where));
    const std::string word(item.word());
    preset.file.empty() ? preset.file = word : preset.settings.emplace_back(word);
  }
  if (!is_name(preset.file)) {
    throw InputError(fmt::format("{}: '{}'; expected the name of a preset", where, printable(preset.file)));
  }
  return preset;
}

// JSON is YAML: the parser of annotation files reads it.
void read_value(const std::string& key, const std::string& json, const std::string& path, ProgramWords& program) {
  if (is_unknown_scale(key, json)) return;
  const std::string where = fmt::format("{}: its provenance: parallelism: {}", path, key);
  YamlNode value;
  try {
    value = parse_yaml(json);
  } catch (const YamlError& error) {
    throw InputError(fmt::format("{}: {}; expected YAML", where, error.what()));
  }
  if (key == kPresetWord) {
    program.preset = read_preset(value, where);
  } else {
    read_parallelism_key({key, 0, value}, {path, ""}, program.words);
  }
}

}  // namespace

std::shared_ptr<const ProgramWords> read_program_words(const std::vector<WordsOfRank>& ranks) {
  ProgramWords program;
  std::map<std::string, std::string> said_by;  // key -> file
  std::set<std::string> disputed;
  for (const WordsOfRank& rank : ranks) {
    for (const auto& [key, value] : rank.values) {
      const auto [known, is_new] = program.values.emplace(key, value);
      if (is_new) said_by[key] = rank.path;
      if (known->second == value || !disputed.insert(key).second) continue;
      const auto name_of = [](const std::string& path) { return std::filesystem::path(path).filename().string(); };
      program.notes.push_back(fmt::format("the ranks disagree on {}: {} in {}, {} in {}; taken as not said", key,
                                          known->second, name_of(said_by[key]), value, name_of(rank.path)));
    }
  }
  for (const std::string& key : disputed) program.values.erase(key);
  for (const auto& [key, value] : program.values) read_value(key, value, said_by[key], program);
  if (program.values.empty() && program.notes.empty()) return nullptr;
  return std::make_shared<const ProgramWords>(std::move(program));
}

}  // namespace ttrace
