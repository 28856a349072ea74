// Reads the YAML of annotations strictly: a key may appear once, unknown keys are refused, and messages say which rule
// they are about.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/yaml_document.h"

namespace ttrace::annotation_yaml {

class Parameters;

inline constexpr std::size_t kMaxAxes = 64;  // of one tensor, or of a list: far more than any mesh has

// Says where a value is read: error messages name it (`gpt.yaml:14: 'linear_qkv': output`), and `parameters` resolves
// it.
struct Context {
  std::string file;
  std::string subject;               // quoted, with what is inside it after colons
  Parameters* parameters = nullptr;  // those that values may name; null where they may name none

  Context inside(std::string_view key) const;
};

// The functions below throw InputError with file and line.
[[noreturn]] void fail(const Context& context, int line, const std::string& what);

// One entry of a mapping. The line is that of the key, because a block's line in YAML is that of its first content.
struct Item {
  std::string key;
  int line = 0;
  YamlNode value;
};

// Returns the entries in the order written, at most 100,000, with the parameter's value for `$NAME`. An entry whose
// parameter is null is left out.
std::vector<Item> read_items(const YamlNode& node, const Context& context, int line, std::string_view expected);

std::string read_word(const YamlNode& node, const Context& context, int line, std::string_view expected);

// Returns an integer from `low` to `high`.
std::int64_t read_integer(const YamlNode& node, const Context& context, int line, std::int64_t low, std::int64_t high,
                          std::string_view expected);

}  // namespace ttrace::annotation_yaml
