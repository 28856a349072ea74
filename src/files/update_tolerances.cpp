#include "files/update_tolerances.h"

#include <fmt/format.h>

#include <limits>

#include "base/integer.h"
#include "text/yaml.h"

namespace ttrace {
namespace {

std::int32_t iteration_of(const std::string& where, const std::string& word, int line) {
  const auto iteration = integer_of(word);
  if (!iteration || *iteration < 0 || *iteration > std::numeric_limits<std::int32_t>::max()) {
    fail_at(where, line, fmt::format("'{}' is no iteration; expected an integer from 0", word));
  }
  return static_cast<std::int32_t>(*iteration);
}

UpdateTolerance read_measures(const std::string& where, Fields& fields, std::size_t samples) {
  UpdateTolerance tolerance;
  for (std::size_t m = 0; m < kUpdateMeasures.size(); ++m) {
    const std::string measure(kUpdateMeasures[m]);
    for (const YamlNode& node : fields.take_list(measure)) tolerance[m].push_back(fields.number_of(node, measure));
    if (tolerance[m].size() != samples) {
      fail_at(where, fields.last_line(),
              fmt::format("'{}' has {} samples; expected {}, one for each perturbed run and the rerun", measure,
                          tolerance[m].size(), samples));
    }
    for (const double sample : tolerance[m]) {
      if (sample <= 1) continue;
      fail_at(where, fields.last_line(), fmt::format("'{}' has the sample {}; expected at most 1", measure, sample));
    }
  }
  fields.done();
  return tolerance;
}

}  // namespace

UpdateTolerances read_update_tolerances(const std::string& where, const YamlNode& node, int line, std::size_t samples) {
  UpdateTolerances tolerances;
  Fields optimizers(where, node, line, "'updates'");
  optimizers.take_each([&](const std::string& optimizer, const YamlNode& of_class) {
    Fields iterations(where, of_class, optimizers.last_line(), fmt::format("'{}'", optimizer));
    iterations.take_each([&](const std::string& word, const YamlNode& entry) {
      const std::int32_t iteration = iteration_of(where, word, iterations.last_line());
      Fields fields(where, entry, iterations.last_line(), fmt::format("iteration {} of '{}'", word, optimizer));
      tolerances[{optimizer, iteration}] = read_measures(where, fields, samples);
    });
  });
  return tolerances;
}

std::string to_yaml(const UpdateTolerances& tolerances) {
  std::string text;
  const std::string* optimizer = nullptr;
  for (const auto& [key, tolerance] : tolerances) {
    if (optimizer == nullptr) text += "updates:\n";
    if (optimizer == nullptr || *optimizer != key.first) text += fmt::format("  {}\n", yaml_key(key.first, 2));
    optimizer = &key.first;
    text += fmt::format("    {}: {{", key.second);
    for (std::size_t m = 0; m < kUpdateMeasures.size(); ++m) {
      text += fmt::format("{}{}: [{}]", m == 0 ? "" : ", ", kUpdateMeasures[m], fmt::join(tolerance[m], ", "));
    }
    text += "}\n";
  }
  return text;
}

}  // namespace ttrace
