#include "files/read_run_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "base/integer.h"
#include "files/yaml_fields.h"
#include "tolerance/estimate.h"

namespace ttrace {
namespace {

constexpr std::string_view kSeeMore = "`ttrace run --help` shows one";

// The file and line of a field, for error messages.
struct FileLine {
  const std::string& file;
  int line;

  [[noreturn]] void fail(const std::string& what) const { fail_at(file, line, what); }
};

std::string read_word(const YamlNode& node, const FileLine& source, const std::string& key) {
  if (!node.is_word()) source.fail(fmt::format("'{}' holds what is no word; expected words", key));
  return std::string(node.word());
}

std::vector<std::string> read_words(const YamlNode& node, const FileLine& source, const std::string& key) {
  if (!node.is_list() || node.items().empty()) source.fail(fmt::format("'{}' is no list of words; expected one", key));
  std::vector<std::string> words;
  for (const YamlNode& item : node.items()) words.push_back(read_word(item, source, key));
  return words;
}

std::string optional_word(const std::string& file, Fields& fields, const std::string& key, std::string otherwise) {
  const auto node = fields.take_if(key);
  return node ? read_word(*node, {file, fields.last_line()}, key) : std::move(otherwise);
}

std::vector<std::string> optional_words(const std::string& file, Fields& fields, const std::string& key) {
  const auto node = fields.take_if(key);
  return node ? read_words(*node, {file, fields.last_line()}, key) : std::vector<std::string>();
}

bool optional_truth(const std::string& file, Fields& fields, const std::string& key, bool otherwise) {
  const std::string word = optional_word(file, fields, key, otherwise ? "true" : "false");
  if (word != "true" && word != "false") {
    fail_at(file, fields.last_line(), fmt::format("'{}' is '{}'; expected true or false", key, word));
  }
  return word == "true";
}

std::vector<std::string> read_command(const std::string& file, Fields& fields) {
  const YamlNode node = fields.take("command");
  const FileLine source{file, fields.last_line()};
  if (node.is_list()) return read_words(node, source, "command");
  const std::string text = read_word(node, source, "command");
  if (text.empty()) source.fail("'command' is empty; expected a command");
  return shell_command(text);
}

// `90s`, `30m`, `2h`.
std::chrono::seconds optional_timeout(const std::string& file, Fields& fields) {
  const std::string word = optional_word(file, fields, "timeout", "");
  if (word.empty()) return std::chrono::seconds(0);
  const auto number = integer_of(word.substr(0, word.size() - 1));
  const std::size_t unit = std::string_view("smh").find(word.back());
  constexpr std::int64_t kMost = 10'000;
  if (!number || *number < 1 || *number > kMost || unit == std::string_view::npos) {
    fail_at(file, fields.last_line(), fmt::format("timeout is '{}'; expected a time, as in 90s, 30m or 2h", word));
  }
  constexpr std::array<std::int64_t, 3> kSeconds = {1, 60, 3600};
  return std::chrono::seconds(*number * kSeconds[unit]);
}

// Reads the fields that the reference and candidates have in common.
Job read_job(const std::string& file, Fields& fields) {
  Job job;
  job.line = fields.line();
  job.command = read_command(file, fields);
  job.axes = optional_word(file, fields, "axes", "");
  job.inputs = optional_words(file, fields, "inputs");
  job.timeout = optional_timeout(file, fields);
  return job;
}

void check_variable_name(const std::string& name, const FileLine& source) {
  if (name == kRanksName) source.fail("'ranks' is the number of ranks in axes; expected another name");
  if (!is_variable_name(name)) {
    source.fail(fmt::format("'{}' is no name of a variable; expected letters, digits, _ and -", name));
  }
}

// Reads the mappings under `exclude` or `include`.
std::vector<JobMatrix::Entry> read_entries(const YamlNode& node, const FileLine& source, const std::string& key) {
  if (!node.is_list()) source.fail(fmt::format("'{}' is no list; expected one of mappings", key));
  std::vector<JobMatrix::Entry> entries;
  for (const YamlNode& item : node.items()) {
    Fields fields(source.file, item, item.line(), fmt::format("an entry of '{}'", key));
    JobMatrix::Entry entry{{}, fields.line()};
    fields.take_each([&](const std::string& name, const YamlNode& value) {
      const FileLine at{source.file, fields.last_line()};
      check_variable_name(name, at);
      entry.values[name] = read_word(value, at, name);
    });
    if (entry.values.empty()) {
      fail_at(source.file, entry.line, fmt::format("an entry of '{}' is empty; expected `name: value`", key));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

JobMatrix read_matrix(const std::string& file, const YamlNode& node, int line) {
  Fields fields(file, node, line, "'matrix'");
  JobMatrix matrix;
  matrix.line = line;
  fields.take_each([&](const std::string& name, const YamlNode& value) {
    const FileLine source{file, fields.last_line()};
    if (name == "exclude") {
      matrix.exclude = read_entries(value, source, name);
    } else if (name == "include") {
      matrix.include = read_entries(value, source, name);
    } else {
      check_variable_name(name, source);
      matrix.variables.push_back({name, read_words(value, source, name)});
    }
  });
  return matrix;
}

// Reads the values of a mapping under `parameters`, each as `NAME=VALUE`.
std::vector<std::string> optional_parameters(const std::string& file, Fields& fields) {
  const auto node = fields.take_if("parameters");
  if (!node) return {};
  Fields parameters(file, *node, fields.last_line(), "'parameters'");
  std::vector<std::string> settings;
  parameters.take_each([&](const std::string& name, const YamlNode& value) {
    const FileLine source{file, parameters.last_line()};
    std::string text = value.is_null() ? "null" : std::string(value.word());
    if (value.is_list()) text = fmt::format("[{}]", fmt::join(read_words(value, source, name), ", "));
    if (text.empty()) source.fail(fmt::format("'{}' has no value; expected one", name));
    settings.push_back(fmt::format("{}={}", name, text));
  });
  return settings;
}

CandidateRule read_candidate(const std::string& file, const YamlNode& node) {
  Fields fields(file, node, node.line(), "a candidate");
  CandidateRule rule;
  rule.job = read_job(file, fields);
  rule.job.name = fields.take_word("name");
  if (rule.job.name.starts_with('-')) {
    fail_at(file, fields.last_line(),
            fmt::format("'{}' begins as an option does; expected another name", rule.job.name));
  }
  if (const auto matrix = fields.take_if("matrix")) rule.matrix = read_matrix(file, *matrix, fields.last_line());
  rule.job.annotations = optional_word(file, fields, "annotations", "");
  rule.job.tolerance = optional_word(file, fields, "tolerance", "");
  rule.job.parameters = optional_parameters(file, fields);
  fields.done();
  return rule;
}

Waiver read_waiver(const std::string& file, const YamlNode& node) {
  Fields fields(file, node, node.line(), "a waiver");
  Waiver waiver;
  waiver.line = fields.line();
  waiver.pattern = fields.take_word("pattern");
  waiver.reason = fields.take_word("reason");
  waiver.expires = fields.take_word("expires");
  if (!is_date(waiver.expires)) {
    fail_at(file, fields.last_line(), fmt::format("expires '{}'; expected a day, as in 2027-01-31", waiver.expires));
  }
  waiver.candidates = optional_words(file, fields, "candidates");
  for (const std::string& word : optional_words(file, fields, "kinds")) {
    const auto kind = kind_from_name(word);
    if (!kind) {
      fail_at(file, fields.last_line(),
              fmt::format("'{}' is no kind of tensor; expected output, main_grad, ...", word));
    }
    waiver.kinds.insert(*kind);
  }
  fields.done();
  return waiver;
}

void read_tolerance_options(Fields& fields, RunFile& run) {
  run.iterations = optional_word(run.path, fields, "iterations", run.iterations);
  const auto then = integer_of(optional_word(run.path, fields, "then", fmt::format("{}", run.then)));
  constexpr std::int64_t kMostLight = 1000;
  if (!then || *then < 0 || *then > kMostLight) {
    fail_at(run.path, fields.last_line(), fmt::format("'then'; expected a number from 0 to {}", kMostLight));
  }
  run.then = static_cast<std::size_t>(*then);
  const auto seeds = integer_of(optional_word(run.path, fields, "seeds", fmt::format("{}", kLeastPerturbedRuns)));
  constexpr std::int64_t kMostSeeds = 1000;
  if (!seeds || *seeds < static_cast<std::int64_t>(kLeastPerturbedRuns) || *seeds > kMostSeeds) {
    fail_at(run.path, fields.last_line(),
            fmt::format("'seeds'; expected a number from {} to {}", kLeastPerturbedRuns, kMostSeeds));
  }
  run.seeds = static_cast<std::uint64_t>(*seeds);
  const std::string word = optional_word(run.path, fields, "estimator", std::string(name_of(kDefaultEstimator)));
  const auto estimator = estimator_from_name(word);
  // Tolerances of rewritten runs say nothing of candidates that compute from their own values.
  if (!estimator || estimator == Estimator::kRewritten) {
    fail_at(run.path, fields.last_line(),
            fmt::format("estimator is '{}'; expected one of {}, {}", word, name_of(Estimator::kInput),
                        name_of(Estimator::kModules)));
  }
  run.estimator = *estimator;
  const auto margin = fields.take_if("margin");
  run.margin = margin ? fields.number_of(*margin, "margin") : kDefaultMargin;
  if (run.margin < 1 || run.margin > 1000) {
    fail_at(run.path, fields.last_line(), "'margin'; expected a number from 1 to 1000");
  }
}

RunFile read_fields(Fields& fields, const std::string& where) {
  RunFile run;
  run.path = where;
  const YamlNode reference = fields.take("reference");
  Fields reference_fields(where, reference, fields.last_line(), "'reference'");
  run.reference = read_job(where, reference_fields);
  run.reference.name = "reference";
  run.reference.command = without_needless_shell(run.reference.command);
  reference_fields.done();
  const YamlNode::Items candidates = fields.take_list("candidates");
  if (candidates.empty()) fail_at(where, fields.last_line(), "'candidates' is empty; expected one or more");
  for (const YamlNode& node : candidates) run.candidates.push_back(read_candidate(where, node));
  run.annotations = {optional_word(where, fields, "annotations", ""), optional_parameters(where, fields)};
  run.correspondence = optional_word(where, fields, "correspondence", "");
  read_tolerance_options(fields, run);
  run.environment = optional_words(where, fields, "environment");
  run.localize = optional_truth(where, fields, "localize", true);
  run.accept_overrides = optional_truth(where, fields, "accept_overrides", false);
  if (fields.has("waivers")) {
    for (const YamlNode& node : fields.take_list("waivers")) run.waivers.push_back(read_waiver(where, node));
  }
  const std::chrono::seconds timeout = optional_timeout(where, fields);
  if (run.reference.timeout.count() == 0) run.reference.timeout = timeout;
  for (CandidateRule& rule : run.candidates) {
    if (rule.job.timeout.count() == 0) rule.job.timeout = timeout;
  }
  fields.done();
  return run;
}

}  // namespace

bool is_date(const std::string& text) {
  const auto number = [&](std::size_t at, std::size_t size) { return integer_of(text.substr(at, size)).value_or(-1); };
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  const auto year = number(0, 4), month = number(5, 2), day = number(8, 2);
  if (year < 0 || month < 0 || day < 0) return false;
  return std::chrono::year_month_day(std::chrono::year(static_cast<int>(year)),
                                     std::chrono::month(static_cast<unsigned>(month)),
                                     std::chrono::day(static_cast<unsigned>(day)))
      .ok();
}

RunFile parse_run_file(const std::string& text, const std::string& where) {
  RunFile file;
  read_mapping(text, where, fmt::format("reference and candidates: {}", kSeeMore), fmt::format("YAML: {}", kSeeMore),
               [&](Fields& fields) { file = read_fields(fields, where); });
  return file;
}

RunFile read_run_file(const std::filesystem::path& path) {
  const std::string text = read_text_file(path, fmt::format("a file that says what to run: {}", kSeeMore));
  return parse_run_file(text, path.string());
}

}  // namespace ttrace
