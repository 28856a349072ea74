#include "load/program_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "load/parallelism.h"
#include "load/yaml_document.h"
#include "ttrace/error.h"
#include "ttrace/factor.h"

namespace ttrace {
namespace {

// JSON is YAML: the parser of annotation files reads it.
void read_value(const std::string& key, const std::string& json, const std::string& path, Annotations& words) {
  using namespace annotation_yaml;
  if (is_unknown_scale(key, json)) return;
  YamlNode value;
  try {
    value = parse_yaml(json);
  } catch (const YamlError& error) {
    throw InputError(fmt::format("{}: its provenance: parallelism: {}: {}; expected YAML", path, key, error.what()));
  }
  read_parallelism_key({key, 0, value}, {path, ""}, words);
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
  for (const auto& [key, value] : program.values) read_value(key, value, said_by[key], program.words);
  if (program.values.empty() && program.notes.empty()) return nullptr;
  return std::make_shared<const ProgramWords>(std::move(program));
}

}  // namespace ttrace
