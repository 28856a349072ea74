#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "files/coherence_tolerances.h"
#include "files/tolerance_file.h"
#include "files/tolerance_seal.h"
#include "files/update_tolerances.h"
#include "text/yaml.h"

namespace ttrace {
namespace {

std::string header_yaml(const ToleranceFile& file) {
  std::string text = fmt::format(
      "# What each tensor may differ by in `ttrace check`: allowed = margin * max(estimate, floor), where\n"
      "# estimate is the largest of `samples` (the perturbed runs) and `rerun`. What `scale`, `row` and `element`\n"
      "# may be comes from the samples of all tensors of a kind whose names differ in numbers. To allow something\n"
      "# else, add an override: {{pattern: mlp.router, kind: output, allowed: 0.2, reason: ...}}\n"
      "ttrace_tolerance: {}\nreference: {}\ndigest: \"{}\"\n",
      kToleranceVersion, yaml_word(file.reference_run), file.reference_digest);
  text += is_by_anchor(file) ? fmt::format("anchor: {}\n", yaml_word(file.perturbed_runs[0])) : "perturbed:\n";
  for (std::size_t i = 0; i < file.seeds.size(); ++i) {
    text += fmt::format("  - {{run: {}, seed: {}}}\n", yaml_word(file.perturbed_runs[i]), file.seeds[i]);
  }
  text += fmt::format("rerun: {}\n", file.rerun ? yaml_word(*file.rerun) : "null");
  if (!is_by_anchor(file)) text += fmt::format("estimator: {}\n", name_of(file.estimator));
  text += fmt::format("compute_dtype: {}\nepsilon: {}\nmargin: {}\n", file.compute_dtype, file.epsilon, file.margin);
  text += file.notes.empty() ? "notes: []\n" : "notes:\n";
  for (const std::string& note : file.notes) text += fmt::format("  - {}\n", yaml_word(note));
  text += file.overrides.empty() ? "overrides: []\n" : "overrides:\n";
  for (const ToleranceOverride& item : file.overrides) {
    text += fmt::format("  - {{pattern: {}, {}allowed: {}, reason: {}}}\n", yaml_word(item.pattern),
                        item.kind ? fmt::format("kind: {}, ", name_of(*item.kind)) : "", item.allowed,
                        yaml_word(item.reason));
  }
  return text + to_yaml(file.coherence) + to_yaml(file.updates) + to_yaml(file.options);
}

std::string statistic_yaml(Statistic statistic, const StatisticTolerance& said) {
  return fmt::format(", {}: {{samples: [{}], {}estimate: {}, responses: {}, floor: {}, allowed: {}}}",
                     name_of(statistic), fmt::join(said.samples, ", "),
                     said.rerun ? fmt::format("rerun: {}, ", *said.rerun) : "", said.estimate, said.responses,
                     said.floor, said.allowed);
}

}  // namespace

std::string to_yaml(const ToleranceFile& file) {
  const std::string header = header_yaml(file);
  std::string text = file.tensors.empty() ? "tensors: {}\n" : "tensors:\n";
  std::optional<Kind> kind;
  for (const auto& [key, tolerance] : file.tensors) {
    if (kind != key.first) text += fmt::format("  {}:\n", name_of(key.first));
    kind = key.first;
    text += fmt::format("    {} {{samples: [{}], ", yaml_key(key.second, 4), fmt::join(tolerance.samples, ", "));
    if (tolerance.rerun) text += fmt::format("rerun: {}, ", *tolerance.rerun);
    text += fmt::format("estimate: {}, floor: {}, allowed: {}", tolerance.estimate, tolerance.floor, tolerance.allowed);
    for (const auto& [statistic, said] : tolerance.statistics) text += statistic_yaml(statistic, said);
    if (tolerance.light) text += fmt::format(", light: {}", *tolerance.light);
    if (tolerance.of_zero) text += fmt::format(", of_zero: {}", *tolerance.of_zero);
    text += "}\n";
  }
  return fmt::format("{}{} {}\n{}", header, kSealKey, seal_of(header + text), text);
}

}  // namespace ttrace
