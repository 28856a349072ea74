// Reads a YAML mapping strictly: a key that is written twice, and one that nobody asks for, are somebody's mistake.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "files/regular_file.h"
#include "files/yaml_document.h"

namespace ttrace {

// The entries of one mapping. Each is taken once; what is left at `done` is unknown, and the keys that were asked for are
// what was expected. All of this throws InputError with the line.
class Fields {
 public:
  // `what` names the mapping in messages: `an override`.
  Fields(const std::string& file, const YamlNode& node, int line, std::string what);

  bool has(std::string_view key);
  std::optional<YamlNode> take_if(std::string_view key);
  YamlNode take(std::string_view key);
  std::string take_word(std::string_view key);
  double take_number(std::string_view key);
  YamlNode::Items take_list(std::string_view key);
  // Takes all, in the order of the file: of mappings whose keys are data.
  void take_each(const std::function<void(const std::string& key, const YamlNode& value)>& read);
  void done() const;

  // `node`, a value of the field taken last, as a number that is finite and not negative.
  double number_of(const YamlNode& node, std::string_view key) const;
  // The same, of either sign.
  double signed_number_of(const YamlNode& node, std::string_view key) const;

  int line() const { return line_; }            // of the mapping
  int last_line() const { return last_line_; }  // of the field taken last

 private:
  using Places = std::vector<YamlNode::Place>;
  // Returns where the entry of the key is, or the end.
  Places::const_iterator find(std::string_view key);

  std::string file_;
  YamlNode node_;
  int line_;
  int last_line_ = 0;
  std::string what_;
  Places left_;                     // the entries that were not taken, by key
  std::vector<std::string> asked_;  // the keys, in order
};

// Reads the text of a file that is one mapping. A YamlError becomes an InputError with file and line. `expected` is the
// file, as above; `expected_yaml` what it should be where it is no YAML. The text is gone before `read` is called.
void read_mapping(std::string text, const std::string& where, const std::string& expected,
                  const std::string& expected_yaml, const std::function<void(Fields&)>& read);

}  // namespace ttrace
