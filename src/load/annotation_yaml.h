// Reads the YAML of annotations strictly: each key once, nothing that is not asked for, and a message that says
// which rule it is about.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace::annotation_yaml {

class Parameters;

// What a message is about: `gpt.yaml:14: 'linear_qkv': output`.
struct Place {
  std::string file;
  std::string subject;               // quoted, with what is inside it after colons
  Parameters* parameters = nullptr;  // that values may name; null where they may not

  Place inside(std::string_view key) const;
};

// All that follows throws InputError with file and line.
[[noreturn]] void fail(const Place& place, int line, const std::string& what);

// One entry of a mapping. The line is the key's: a block's own is that of what it holds.
struct Item {
  std::string key;
  int line = 0;
  YAML::Node value;
};

// In the order written. A value `$NAME` is the parameter's; an entry whose parameter is null is left out.
std::vector<Item> items_of(const YAML::Node& node, const Place& place, int line, std::string_view expected);

std::string word_of(const YAML::Node& node, const Place& place, int line, std::string_view expected);

// From `low` to `high`.
std::int64_t integer_of(const YAML::Node& node, const Place& place, int line, std::int64_t low, std::int64_t high,
                        std::string_view expected);

}  // namespace ttrace::annotation_yaml
