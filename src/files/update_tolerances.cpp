#include "files/update_tolerances.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>
#include <utility>
#include <vector>

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

// Reads the samples of `name`, of which there must be `expected`.
UpdateSamples read_samples(const std::string& where, const Fields& fields, const std::string& name,
                           const YamlNode::Items& nodes, std::size_t expected) {
  UpdateSamples samples;
  for (const YamlNode& node : nodes) samples.push_back(fields.number_of(node, name));
  if (samples.size() != expected) {
    fail_at(where, fields.last_line(),
            fmt::format("'{}' has {} samples; expected {}, one for each perturbed run and the rerun", name,
                        samples.size(), expected));
  }
  for (const double sample : samples) {
    if (sample <= 1) continue;
    fail_at(where, fields.last_line(), fmt::format("'{}' has the sample {}; expected at most 1", name, sample));
  }
  return samples;
}

// Calls read(key, fields) for each optimizer's class and iteration of a section.
template <typename Read>
void read_section(const std::string& where, const YamlNode& node, int line, const std::string& section, Read read) {
  Fields optimizers(where, node, line, fmt::format("'{}'", section));
  optimizers.take_each([&](const std::string& optimizer, const YamlNode& of_class) {
    Fields iterations(where, of_class, optimizers.last_line(), fmt::format("'{}'", optimizer));
    iterations.take_each([&](const std::string& word, const YamlNode& entry) {
      const std::int32_t iteration = iteration_of(where, word, iterations.last_line());
      Fields fields(where, entry, iterations.last_line(), fmt::format("iteration {} of '{}'", word, optimizer));
      read(std::pair(optimizer, iteration), fields);
    });
  });
}

// Writes a section; pairs_of(tolerance) has the names and their samples.
template <typename Tolerances, typename PairsOf>
std::string write_section(std::string_view section, const Tolerances& tolerances, PairsOf pairs_of) {
  std::string text;
  const std::string* optimizer = nullptr;
  for (const auto& [key, tolerance] : tolerances) {
    if (optimizer == nullptr) text += fmt::format("{}:\n", section);
    if (optimizer == nullptr || *optimizer != key.first) text += fmt::format("  {}\n", yaml_key(key.first, 2));
    optimizer = &key.first;
    std::vector<std::string> pairs;
    for (const auto& [name, samples] : pairs_of(tolerance)) {
      pairs.push_back(fmt::format("{}: [{}]", name, fmt::join(samples, ", ")));
    }
    text += fmt::format("    {}: {{{}}}\n", key.second, fmt::join(pairs, ", "));
  }
  return text;
}

}  // namespace

UpdateTolerances read_update_tolerances(const std::string& where, const YamlNode& node, int line, std::size_t samples) {
  UpdateTolerances tolerances;
  read_section(where, node, line, "updates", [&](const auto& key, Fields& fields) {
    for (std::size_t m = 0; m < kUpdateMeasures.size(); ++m) {
      const std::string measure(kUpdateMeasures[m]);
      tolerances[key][m] = read_samples(where, fields, measure, fields.take_list(measure), samples);
    }
    fields.done();
  });
  return tolerances;
}

OptionTolerances read_option_tolerances(const std::string& where, const YamlNode& node, int line, std::size_t samples) {
  OptionTolerances tolerances;
  read_section(where, node, line, "options", [&](const auto& key, Fields& fields) {
    fields.take_each([&](const std::string& option, const YamlNode& entry) {
      if (!entry.is_list()) fail_at(where, fields.last_line(), fmt::format("'{}' is no list; expected one", option));
      tolerances[key][option] = read_samples(where, fields, option, entry.items(), samples);
    });
  });
  return tolerances;
}

std::string to_yaml(const UpdateTolerances& tolerances) {
  return write_section("updates", tolerances, [](const UpdateTolerance& tolerance) {
    std::vector<std::pair<std::string_view, UpdateSamples>> pairs;
    for (std::size_t m = 0; m < kUpdateMeasures.size(); ++m) pairs.emplace_back(kUpdateMeasures[m], tolerance[m]);
    return pairs;
  });
}

std::string to_yaml(const OptionTolerances& tolerances) {
  return write_section("options", tolerances, [](const OptionSamples& options) {
    std::vector<std::pair<std::string, UpdateSamples>> pairs;
    for (const auto& [name, samples] : options) pairs.emplace_back(yaml_word(name), samples);
    return pairs;
  });
}

}  // namespace ttrace
