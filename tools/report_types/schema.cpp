// Prints, as JSON, the schema of the report, made from its one description (report/members.h) and the tables of words,
// and the keywords of the Python package's `check`, from the table of options (workflow/options.h).
#include <concepts>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "report/members.h"
#include "workflow/options.h"

namespace ttrace::report {
namespace {

using Json = nlohmann::ordered_json;

// The schema of an object, and in `definitions` those of the types that it uses.
struct Schema {
  Json& definitions;
  std::string name;
  Json json = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};

  void is(const std::string& type, const char* meaning) {
    name = type;
    json["description"] = meaning;
    json["additionalProperties"] = false;
  }

  template <typename T>
  void has(const std::string& member, const T& /*value*/, const std::string& meaning) {
    add(member, type_of(std::type_identity<T>()), meaning);
    json["required"].push_back(member);
  }
  template <typename T>
  void has(const std::string& member, const IfAny<T>& /*value*/, const std::string& meaning) {
    add(member, type_of(std::type_identity<T>()), meaning);
  }
  // A text that says the version.
  void has(const std::string& member, const Version& version, const std::string& meaning) {
    add(member, {{"const", version.text}}, meaning);
    json["required"].push_back(member);
  }

 private:
  void add(const std::string& member, Json type, const std::string& meaning) {
    if (!meaning.empty()) type["description"] = meaning;
    json["properties"][member] = std::move(type);
  }

  static Json type_of(std::type_identity<bool> /*type*/) { return {{"type", "boolean"}}; }
  static Json type_of(std::type_identity<std::int32_t> /*type*/) { return {{"type", "integer"}, {"minimum", 0}}; }
  static Json type_of(std::type_identity<std::int64_t> /*type*/) { return {{"type", "integer"}, {"minimum", 0}}; }
  static Json type_of(std::type_identity<double> /*type*/) { return {{"type", {"number", "null"}}}; }
  static Json type_of(std::type_identity<std::string> /*type*/) { return {{"type", "string"}}; }
  template <typename T>
  Json type_of(std::type_identity<std::optional<T>> /*type*/) {
    Json type = type_of(std::type_identity<T>());
    if (!type.contains("type") || type["type"] == "object") return {{"anyOf", {type, {{"type", "null"}}}}};
    if (type["type"].is_string()) type["type"] = {type["type"], "null"};
    return type;
  }
  template <typename T>
  Json type_of(std::type_identity<std::vector<T>> /*type*/) {
    return {{"type", "array"}, {"items", type_of(std::type_identity<T>())}};
  }
  template <typename T>
  Json type_of(std::type_identity<std::set<T>> /*type*/) {
    return type_of(std::type_identity<std::vector<T>>());
  }
  template <typename T>
  Json type_of(std::type_identity<std::map<std::string, T>> /*type*/) {
    return {{"type", "object"}, {"additionalProperties", type_of(std::type_identity<T>())}};
  }
  template <typename Enum, typename T>
  Json type_of(std::type_identity<std::vector<std::pair<Enum, T>>> /*type*/) {
    Json type = type_of(std::type_identity<std::map<std::string, T>>());
    type["propertyNames"] = type_of(std::type_identity<Enum>());
    return type;
  }
  template <typename T>
  Json type_of(std::type_identity<T> /*type*/) {
    Json definition;
    std::string type;
    if constexpr (std::is_enum_v<T>) {
      const Vocabulary<T> vocabulary = vocabulary_of(T());
      type = vocabulary.name;
      for (const auto& [value, word, meaning] : vocabulary.words) {
        definition["oneOf"].push_back({{"const", word}, {"description", meaning}});
      }
    } else {
      Schema schema{definitions, {}};
      describe(schema, T());
      type = schema.name;
      definition = std::move(schema.json);
    }
    definitions[type] = std::move(definition);
    return {{"$ref", "#/$defs/" + type}};
  }
};

Json schema_of_report() {
  Json definitions = Json::object();
  Schema schema{definitions, {}};
  describe(schema, Report());
  Json json = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"$id", "ttrace-report-5.json"}};
  json.update(schema.json);
  json["$comment"] = "Members may be added within a version; a reader should not refuse what it does not know.";
  json["$defs"] = definitions;
  return json;
}

// What Python calls the type of an option's value.
template <typename Member>
const char* python_type_of(const Option& option) {
  const std::string_view type = option.type;
  if constexpr (std::same_as<Member, bool>) return "bool";
  if constexpr (std::integral<Member>) return "int";
  if constexpr (std::same_as<Member, std::set<std::int32_t>>) return "Sequence[int]";
  if constexpr (std::same_as<Member, std::vector<std::string>>) return "Sequence[str]";
  return type == "FILE" || type == "TRACE" || type == "PYTHON" ? "str | os.PathLike[str]" : "str";
}

Json keywords_of_check() {
  Json keywords = Json::array();
  const CheckOptions defaults;
  visit_options(defaults, [&]<typename Member>(const Option& option, const Member& /*member*/) {
    if (option.required) return;  // the two sides, which are no keywords
    const bool is_off = *option.names == '!';
    keywords.push_back({{"keyword", keyword_of(option)},
                        {"type", python_type_of<Member>(option)},
                        {"help", is_off ? std::string("False: ") + option.help : option.help}});
  });
  return keywords;
}

}  // namespace
}  // namespace ttrace::report

int main() {
  using namespace ttrace::report;
  const Json printed = {{"schema", schema_of_report()}, {"keywords_of_check", keywords_of_check()}};
  std::puts(printed.dump().c_str());
}
