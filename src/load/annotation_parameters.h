// The parameters of annotation files: names for values that a preset leaves open.
#pragma once

#include <yaml-cpp/yaml.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ttrace::annotation_yaml {

struct Place;

// The name and the value of `NAME=VALUE`, VALUE in YAML. Throws InputError.
std::pair<std::string, YAML::Node> split_setting(const std::string& setting);

// One table for a file, all that it includes, and the command line. The first to name a parameter declares it and
// gives it a default; its value is the one given last. All of this throws InputError with a file and a line, or with
// the setting that is wrong.
class Parameters {
 public:
  // Takes what stands under `parameters` in a file, `NAME: VALUE`.
  void read(const YAML::Node& node, const Place& place, int line);

  // Takes `NAME=VALUE`, as from the command line.
  void set(const std::string& setting);

  // The value that a key has: `node`, unless that is `$NAME`, a parameter. Nothing where the parameter's value is
  // null.
  std::optional<YAML::Node> value_of(const YAML::Node& node, const Place& place, int line);

  // Refuses a parameter that no value asked for: its name is a mistake.
  void require_used() const;

 private:
  struct Parameter {
    YAML::Node value;
    std::string origin;       // of the value: "gpt.yaml:3: 'parameters': kv_heads", "parameter kv_heads=8"
    YAML::Node declared;      // the default
    std::string declared_at;  // "gpt.yaml:3"
    bool used = false;
  };

  void give(const std::string& name, const YAML::Node& value, const std::string& origin, const std::string& at);
  std::string others(std::string_view name) const;

  std::map<std::string, Parameter, std::less<>> parameters_;
};

}  // namespace ttrace::annotation_yaml
