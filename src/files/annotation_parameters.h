// The parameters of annotation files: names for values that a preset leaves open.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "files/yaml_document.h"

namespace ttrace::annotation_yaml {

struct Context;

// Splits `NAME=VALUE`, whose VALUE is YAML, into name and value. Throws InputError.
std::pair<std::string, YamlNode> split_setting(const std::string& setting);

// The parameters of a file, of all that it includes, and of the command line. Whoever names a parameter first declares
// it and gives it a default; the value that is given last counts. The members throw InputError with a file and a line,
// or with the setting that is wrong.
class Parameters {
 public:
  // Reads what a file has under `parameters`: `NAME: VALUE`.
  void read(const YamlNode& node, const Context& context, int line);

  // Sets a parameter from the command line, `NAME=VALUE`.
  void set(const std::string& setting);

  // Returns the value of a key: `node` itself, or for `$NAME` the parameter's value. Nothing where that is null.
  std::optional<YamlNode> resolve(const YamlNode& node, const Context& context, int line);

  // Refuses a parameter that no value has used: its name must be misspelt.
  void require_used() const;

 private:
  struct Parameter {
    YamlNode value;
    std::string origin;       // of the value: "gpt.yaml:3: 'parameters': kv_heads", "parameter kv_heads=8"
    YamlNode declared;        // the default
    std::string declared_at;  // "gpt.yaml:3"
    bool used = false;
  };

  void assign(const std::string& name, const YamlNode& value, const std::string& origin, const std::string& at);
  std::string other_names(std::string_view name) const;

  std::map<std::string, Parameter, std::less<>> parameters_;
};

}  // namespace ttrace::annotation_yaml
