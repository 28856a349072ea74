// Reads a YAML mapping strictly. yaml-cpp keeps a key that is written twice and finds only one of the two,
// and it does not mind a key that nobody asks for; both are somebody's mistake.
#pragma once

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "load/regular_file.h"
#include "ttrace/error.h"

namespace ttrace {

int line_of(const YAML::Node& node);

// The entries of one mapping. Each is taken once; what is left at `done` is unknown. All of this throws
// InputError with the line.
class Fields {
 public:
  // `what` names the mapping in messages: `an override`.
  Fields(const std::string& file, const YAML::Node& node, int line, std::string what);

  bool has(const std::string& key) const { return items_.contains(key); }
  std::optional<YAML::Node> take_if(const std::string& key);
  YAML::Node take(const std::string& key);
  std::string take_word(const std::string& key);
  double take_number(const std::string& key);
  std::vector<YAML::Node> take_list(const std::string& key);
  void done() const;

  // `node`, a value of the field taken last, as a number that is finite and not negative.
  double number_of(const YAML::Node& node, const std::string& key) const;
  // The same, of either sign.
  double signed_number_of(const YAML::Node& node, const std::string& key) const;

  int line() const { return line_; }            // of the mapping
  int last_line() const { return last_line_; }  // of the field taken last
  std::vector<std::string> keys() const;        // in order of the file; for mappings whose keys are data

 private:
  struct Item {
    YAML::Node node;
    int line;
    std::size_t position;  // among the mapping's
  };
  std::string file_;
  int line_;
  int last_line_ = 0;
  std::string what_;
  std::map<std::string, Item> items_;
};

// Reads the text of a file that is one mapping. What yaml-cpp objects to becomes an InputError with file and line.
// `expected` is the file, as above; `expected_yaml` what it should be where it is no YAML.
void read_mapping(const std::string& text, const std::string& where, const std::string& expected,
                  const std::string& expected_yaml, const std::function<void(Fields&)>& read);

}  // namespace ttrace
