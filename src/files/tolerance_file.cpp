#include "files/tolerance_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "base/tensor_name.h"
#include "files/coherence_tolerances.h"
#include "files/tolerance_seal.h"
#include "files/update_tolerances.h"
#include "files/yaml_fields.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostTensors = 1'000'000;  // the largest model recorded so far has 200,000

struct FilePlace {
  const std::string& file;
  int line;
};

Kind read_kind(const std::string& where, const Fields& fields, std::string_view word) {
  const auto kind = kind_from_name(word);
  if (!kind) {
    fail_at(where, fields.last_line(), fmt::format("'{}' is no kind of tensor; expected output, main_grad, ...", word));
  }
  return *kind;
}

// Refuses a number that is not what the file itself says it is made of; `expected` is that. Numbers are written in
// full, and read back as they were.
void require_made_of(double value, double expected, const char* key, const char* rule, const std::string& what,
                     const FilePlace& at) {
  constexpr double kRounding = 1e-9;  // for those who compute with other tools
  if (std::abs(value - expected) <= kRounding * expected) return;
  fail_at(at.file, at.line,
          fmt::format("'{}' of {} is {}; expected {}, {}: to allow something else, add an override with a reason", key,
                      what, value, expected, rule));
}

void read_perturbed(const std::string& where, Fields& header, ToleranceFile& file) {
  if (const auto anchor = header.take_if("anchor")) {
    file.perturbed_runs.emplace_back(anchor->word());
    return;
  }
  for (const YamlNode& node : header.take_list("perturbed")) {
    Fields run(where, node, node.line(), "a perturbed run");
    file.perturbed_runs.push_back(run.take_word("run"));
    const std::string word = run.take_word("seed");
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), seed);
    if (error != std::errc() || end != word.data() + word.size()) {
      fail_at(where, run.last_line(), fmt::format("seed '{}'; expected an integer from 0", word));
    }
    file.seeds.push_back(seed);
    run.done();
  }
  const std::set<std::string> different(file.perturbed_runs.begin(), file.perturbed_runs.end());
  if (different.size() < std::max(kLeastPerturbedRuns, file.perturbed_runs.size())) {
    fail_at(where, header.last_line(),
            fmt::format("{} different perturbed runs of {}; expected {} or more, each once", different.size(),
                        file.perturbed_runs.size(), kLeastPerturbedRuns));
  }
}

void read_overrides(const std::string& where, Fields& header, ToleranceFile& file) {
  for (const YamlNode& node : header.take_list("overrides")) {
    Fields fields(where, node, node.line(), "an override");
    ToleranceOverride item;
    item.line = fields.line();
    item.pattern = fields.take_word("pattern");
    item.allowed = fields.take_number("allowed");
    item.reason = fields.take_word("reason");
    if (const auto kind = fields.take_if("kind")) item.kind = read_kind(where, fields, kind->word());
    fields.done();
    file.overrides.push_back(std::move(item));
  }
}

// Reads what is said of a statistic beside the norm.
StatisticTolerance read_statistic(const std::string& where, const YamlNode& node, Statistic statistic,
                                  const std::string& name, const FilePlace& at, const ToleranceFile& file) {
  const std::string what = fmt::format("{} of '{}'", name_of(statistic), name);
  Fields fields(where, node, at.line, what);
  StatisticTolerance tolerance;
  for (const YamlNode& sample : fields.take_list("samples")) {
    tolerance.samples.push_back(fields.signed_number_of(sample, "samples"));
  }
  if (const auto rerun = fields.take_if("rerun")) tolerance.rerun = fields.signed_number_of(*rerun, "rerun");
  tolerance.estimate = fields.take_number("estimate");
  const double responses = fields.take_number("responses");
  tolerance.responses = responses < 1e15 ? static_cast<std::int64_t>(responses) : 0;
  tolerance.floor = fields.take_number("floor");
  tolerance.allowed = fields.take_number("allowed");
  fields.done();
  const auto runs = static_cast<std::int64_t>(file.perturbed_runs.size());
  if (static_cast<std::int64_t>(tolerance.samples.size()) != runs || tolerance.responses < runs) {
    fail_at(where, at.line,
            fmt::format("{} has {} samples and {} responses; expected {} samples, one for each perturbed run, and as "
                        "many responses or more",
                        what, tolerance.samples.size(), tolerance.responses, runs));
  }
  require_made_of(
      tolerance.allowed,
      factor_of(statistic, tolerance.responses, file.margin) * std::max(tolerance.estimate, tolerance.floor), "allowed",
      "its factor * max(estimate, floor)", what, at);
  return tolerance;
}

Tolerance read_tolerance(const std::string& where, const YamlNode& node, int line, const std::string& name,
                         const ToleranceFile& file) {
  Fields fields(where, node, line, fmt::format("'{}'", name));
  Tolerance tolerance;
  for (const YamlNode& sample : fields.take_list("samples")) {
    tolerance.samples.push_back(fields.number_of(sample, "samples"));
  }
  if (const auto rerun = fields.take_if("rerun")) tolerance.rerun = fields.number_of(*rerun, "rerun");
  tolerance.estimate = fields.take_number("estimate");
  tolerance.floor = fields.take_number("floor");
  tolerance.allowed = fields.take_number("allowed");
  for (const Statistic statistic : {Statistic::kScale, Statistic::kRow, Statistic::kElement, Statistic::kCell}) {
    const auto said = fields.take_if(name_of(statistic));
    if (!said) continue;
    tolerance.statistics.emplace(statistic, read_statistic(where, *said, statistic, name, {where, line}, file));
  }
  if (const auto light = fields.take_if("light")) tolerance.light = fields.number_of(*light, "light");
  if (const auto norm = fields.take_if("of_zero")) tolerance.of_zero = fields.number_of(*norm, "of_zero");
  fields.done();
  if (tolerance.samples.size() != file.perturbed_runs.size()) {
    fail_at(where, line,
            fmt::format("'{}' has {} samples; expected {}, one for each perturbed run", name, tolerance.samples.size(),
                        file.perturbed_runs.size()));
  }
  const double largest = *std::max_element(tolerance.samples.begin(), tolerance.samples.end());
  const FilePlace at{where, line};
  const std::string quoted = fmt::format("'{}'", name);
  require_made_of(tolerance.estimate, std::max(largest, tolerance.rerun.value_or(0)), "estimate",
                  "the largest of its samples and rerun", quoted, at);
  require_made_of(tolerance.allowed, file.margin * std::max(tolerance.estimate, tolerance.floor), "allowed",
                  "margin * max(estimate, floor)", quoted, at);
  return tolerance;
}

void read_tensors(const std::string& where, Fields& header, ToleranceFile& file) {
  const YamlNode tensors = header.take("tensors");
  Fields kinds(where, tensors, header.last_line(), "'tensors'");
  kinds.take_each([&](const std::string& word, const YamlNode& node) {
    const Kind kind = read_kind(where, kinds, word);
    Fields names(where, node, kinds.last_line(), fmt::format("'{}'", word));
    names.take_each([&](const std::string& name, const YamlNode& entry) {
      if (file.tensors.size() == kMostTensors) {
        fail_at(where, names.last_line(), fmt::format("more than {} tensors; expected fewer", kMostTensors));
      }
      file.tensors.emplace(ToleranceKey{kind, name}, read_tolerance(where, entry, names.last_line(), name, file));
    });
  });
}

void read_epsilon(const std::string& where, Fields& header, ToleranceFile& file) {
  file.compute_dtype = header.take_word("compute_dtype");
  const auto dtype = dtype_from_name(file.compute_dtype);
  if (!dtype || !is_floating(*dtype)) {
    fail_at(where, header.last_line(),
            fmt::format("compute_dtype is '{}'; expected a floating-point one, such as bfloat16", file.compute_dtype));
  }
  file.epsilon = header.take_number("epsilon");
  if (file.epsilon != epsilon_of(*dtype)) {
    fail_at(
        where, header.last_line(),
        fmt::format("epsilon is {}; expected {}, that of {}", file.epsilon, epsilon_of(*dtype), file.compute_dtype));
  }
}

void read_estimator(const std::string& where, Fields& header, ToleranceFile& file) {
  const auto node = header.take_if("estimator");
  if (!node) return;
  const std::string_view word = node->word();
  const auto estimator = estimator_from_name(word);
  if (!estimator) {
    fail_at(where, header.last_line(),
            fmt::format("estimator is '{}'; expected one of {}", word, fmt::join(kEstimatorNames, ", ")));
  }
  file.estimator = *estimator;
}

// Refuses a file whose numbers are not those that were measured.
void require_seal(const std::string& where, Fields& header, const std::string& expected) {
  const std::string seal = header.take_word("seal");
  if (seal == expected) return;
  fail_at(where, header.last_line(),
          fmt::format("the seal is {}; expected {}, that of the lines but overrides and comments: they are not those "
                      "that `ttrace estimate-tolerance` wrote; run it again, or add an override with a reason",
                      seal, expected));
}

// Refuses an estimate that is larger than any response of the tensor's group.
void require_made_of_group(const std::string& where, const ToleranceFile& file) {
  std::map<std::tuple<Kind, std::string, Statistic>, double> largest;
  for (const bool first : {true, false}) {
    for (const auto& [key, tolerance] : file.tensors) {
      for (const auto& [statistic, said] : tolerance.statistics) {
        double& most = largest[{key.first, without_numbers(key.second), statistic}];
        if (first) {
          most = std::max(most, std::fabs(said.rerun.value_or(0)));
          for (const double sample : said.samples) most = std::max(most, std::fabs(sample));
        } else if (said.estimate > most) {
          throw InputError(fmt::format(
              "{}: 'estimate' of {} of {} {} is {}; expected at most {}, the largest of the samples of its group: to "
              "allow something else, add an override with a reason",
              where, name_of(statistic), key.second, name_of(key.first), said.estimate, most));
        }
      }
    }
  }
}

ToleranceFile read_header(const std::string& where, Fields& header, const std::string& seal) {
  ToleranceFile file;
  file.path = where;
  const std::string version = header.take_word("ttrace_tolerance");
  if (version != kToleranceVersion) {
    fail_at(where, header.last_line(),
            fmt::format("tolerance file version {}; expected {}: run `ttrace estimate-tolerance` again", version,
                        kToleranceVersion));
  }
  file.reference_run = header.take_word("reference");
  file.reference_digest = header.take_word("digest");
  read_perturbed(where, header, file);
  const YamlNode rerun = header.take("rerun");
  if (!rerun.is_null()) file.rerun = rerun.word();
  read_estimator(where, header, file);
  read_epsilon(where, header, file);
  file.margin = header.take_number("margin");
  if (file.margin < 1) fail_at(where, header.last_line(), fmt::format("margin is {}; expected 1 or more", file.margin));
  for (const YamlNode& note : header.take_list("notes")) {
    file.notes.emplace_back(note.word());
  }
  read_overrides(where, header, file);
  read_tensors(where, header, file);
  if (const auto coherence = header.take_if("coherence")) {
    file.coherence = read_coherence_tolerances(where, *coherence, header.last_line(), file.perturbed_runs.size());
  }
  if (const auto updates = header.take_if("updates")) {
    file.updates =
        read_update_tolerances(where, *updates, header.last_line(), file.perturbed_runs.size() + (file.rerun ? 1 : 0));
  }
  if (const auto options = header.take_if("options")) {
    file.options =
        read_option_tolerances(where, *options, header.last_line(), file.perturbed_runs.size() + (file.rerun ? 1 : 0));
  }
  file.is_sealed = header.has("seal");  // else it was written by hand
  if (file.is_sealed) require_seal(where, header, seal);
  if (header.has("seal_by_key")) header.take_word("seal_by_key");  // whoever has the key looks at it
  header.done();
  require_made_of_group(where, file);
  return file;
}

}  // namespace

ToleranceFile parse_tolerances(std::string text, const std::string& where) {
  ToleranceFile file;
  const std::string seal = seal_of(text);
  read_mapping(std::move(text), where, kToleranceFile, "YAML as `ttrace estimate-tolerance` writes it",
               [&](Fields& header) { file = read_header(where, header, seal); });
  return file;
}

ToleranceFile read_tolerances(const std::filesystem::path& path) {
  return parse_tolerances(read_text_file(path, kToleranceFile), path.string());
}

}  // namespace ttrace
