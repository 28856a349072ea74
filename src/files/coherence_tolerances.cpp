#include "files/coherence_tolerances.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "text/yaml.h"

namespace ttrace {
namespace {

std::int64_t take_count(const std::string& where, Fields& fields, const char* key) {
  constexpr double kMost = 1e15;
  const double value = fields.take_number(key);
  if (value >= 1 && value < kMost && value == std::floor(value)) return static_cast<std::int64_t>(value);
  fail_at(where, fields.last_line(), fmt::format("'{}' is {}; expected an integer from 1", key, value));
}

CoherenceTolerance read_group(const std::string& where, Fields& fields, const std::string& name, std::size_t runs) {
  CoherenceTolerance tolerance;
  for (const YamlNode& node : fields.take_list("samples")) {
    tolerance.samples.push_back(fields.signed_number_of(node, "samples"));
  }
  tolerance.spread = fields.take_number("spread");
  tolerance.members = take_count(where, fields, "members");
  tolerance.inflation = fields.take_number("inflation");
  tolerance.responses = take_count(where, fields, "responses");
  tolerance.floor = fields.take_number("floor");
  tolerance.allowed = fields.take_number("allowed");
  fields.done();
  if (tolerance.samples.size() != runs || tolerance.responses < static_cast<std::int64_t>(runs)) {
    fail_at(where, fields.line(),
            fmt::format("the coherence of '{}' has {} samples and {} responses; expected {} samples, one for each "
                        "perturbed run, and as many responses or more",
                        name, tolerance.samples.size(), tolerance.responses, runs));
  }
  constexpr double kRounding = 1e-9;  // for those who compute with other tools
  const double expected = allowed_for(tolerance);
  if (std::abs(tolerance.allowed - expected) > kRounding * expected) {
    fail_at(where, fields.line(),
            fmt::format("'allowed' of the coherence of '{}' is {}; expected {}, what the rest gives: run `ttrace "
                        "estimate-tolerance` again",
                        name, tolerance.allowed, expected));
  }
  return tolerance;
}

}  // namespace

CoherenceTolerances read_coherence_tolerances(const std::string& where, const YamlNode& node, int line,
                                              std::size_t runs) {
  CoherenceTolerances tolerances;
  Fields kinds(where, node, line, "'coherence'");
  kinds.take_each([&](const std::string& word, const YamlNode& of_kind) {
    const std::optional<Kind> kind = kind_from_name(word);
    if (!kind) fail_at(where, kinds.last_line(), fmt::format("'{}' is no kind of tensor", word));
    Fields names(where, of_kind, kinds.last_line(), fmt::format("'{}' of 'coherence'", word));
    names.take_each([&](const std::string& name, const YamlNode& entry) {
      Fields fields(where, entry, names.last_line(), fmt::format("the coherence of '{}'", name));
      tolerances.emplace(ToleranceKey{*kind, name}, read_group(where, fields, name, runs));
    });
  });
  return tolerances;
}

std::string to_yaml(const CoherenceTolerances& tolerances) {
  std::string text = tolerances.empty() ? "" : "coherence:\n";
  std::optional<Kind> kind;
  for (const auto& [key, tolerance] : tolerances) {
    if (kind != key.first) text += fmt::format("  {}:\n", name_of(key.first));
    kind = key.first;
    text += fmt::format(
        "    {} {{samples: [{}], spread: {}, members: {}, inflation: {}, responses: {}, floor: {}, allowed: {}}}\n",
        yaml_key(key.second, 4), fmt::join(tolerance.samples, ", "), tolerance.spread, tolerance.members,
        tolerance.inflation, tolerance.responses, tolerance.floor, tolerance.allowed);
  }
  return text;
}

}  // namespace ttrace
