#include "format/provenance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/trace.h"
#include "format/format.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

Json value_or_null(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? Json() : *found;
}

std::string string_or_empty(const Json& object, const char* key) {
  const Json value = value_or_null(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// Returns an empty list where one of the values is no text: such a command cannot be run again.
std::vector<std::string> string_list(const Json& value) {
  std::vector<std::string> words;
  if (!value.is_array()) return words;
  for (const Json& word : value) {
    if (!word.is_string()) return {};
    words.push_back(word.get<std::string>());
  }
  return words;
}

bool is_seed_or_null(const Json& value) { return value.is_null() || value.is_number_unsigned(); }

std::optional<std::uint64_t> optional_seed(const Json& object, const char* key) {
  const Json value = value_or_null(object, key);
  return value.is_null() ? std::nullopt : std::optional(value.get<std::uint64_t>());
}

RecordingSelection selection_of(const Json& json) {
  RecordingSelection selection;
  if (!json.is_object()) return selection;
  selection.only = string_list(value_or_null(json, "only"));
  selection.except = string_list(value_or_null(json, "except"));
  selection.kinds = string_list(value_or_null(json, "kinds"));
  const Json depth = value_or_null(json, "depth");
  if (depth.is_number_unsigned()) selection.depth = depth.get<std::int32_t>();
  selection.sketch = value_or_null(json, "sketch") == Json(true);
  selection.whole = string_list(value_or_null(json, "whole"));
  selection.no_grad = value_or_null(json, "no_grad") == Json(true);
  return selection;
}

void parse_perturbation(const Json& json, std::string_view where, Provenance& provenance) {
  if (!is_seed_or_null(value_or_null(json, "perturb_seed"))) {
    throw InputError(
        fmt::format("{}: its provenance has a perturb_seed that is no seed; expected an integer from 0", where));
  }
  provenance.perturb_seed = optional_seed(json, "perturb_seed");
  if (!provenance.perturb_seed) return;
  const Json place = json.value("perturb_at", Json("input"));
  const auto estimator = estimator_from_name(place.is_string() ? place.get<std::string>() : "");
  if (!estimator) {
    throw InputError(fmt::format("{}: its provenance has a perturb_at {}; expected one of {}", where,
                                 printable(place.dump(-1, ' ', false, Json::error_handler_t::replace)),
                                 fmt::join(kEstimatorNames, ", ")));
  }
  provenance.perturb_at = *estimator;
}

bool names_source_of_values(const Json& rewritten, const char* key) {
  if (!rewritten.contains(key)) return false;
  const Json& value = rewritten[key];
  return value.is_null() || value == "recorded" || value == "generated";
}

std::optional<RewrittenFrom> parse_rewritten(const Json& value, std::string_view where) {
  if (value.is_null()) return std::nullopt;
  const bool is_known = value.is_object() && value_or_null(value, "source").is_string() &&
                        names_source_of_values(value, "activations") && names_source_of_values(value, "parameters") &&
                        is_seed_or_null(value_or_null(value, "seed"));
  if (!is_known) {
    throw InputError(
        fmt::format("{}: its provenance has a 'rewritten' that is none; expected what `ttrace collect` writes", where));
  }
  return RewrittenFrom{string_or_empty(value, "source"), string_or_empty(value, "activations"),
                       string_or_empty(value, "parameters"), optional_seed(value, "seed")};
}

// Throws std::invalid_argument.
void require_names(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!objection_to_name(name).empty()) throw std::invalid_argument(fmt::format("the name '{}'", printable(name)));
  }
}

// Throws the exceptions of nlohmann::json, and std::invalid_argument.
NotSeen parse_statement(const Json& json) {
  NotSeen statement;
  json.at("reason").get_to(statement.reason);
  statement.everything = json.value("everything", false);
  if (statement.everything) return statement;
  for (const std::string& name : json.at("kinds").get<std::vector<std::string>>()) {
    const auto kind = kind_from_name(name);
    if (!kind) throw std::invalid_argument(fmt::format("the kind '{}'", printable(name)));
    statement.kinds.insert(*kind);
  }
  json.at("iterations").get_to(statement.iterations);
  statement.chunk = json.value("chunk", 0);
  statement.by_design = json.value("by_design", false);
  statement.tensors = json.value("tensors", std::vector<std::string>());
  statement.modules = json.value("modules", std::vector<std::string>());
  require_names(statement.tensors);
  require_names(statement.modules);
  return statement;
}

bool is_number_to(const Json& value, std::int64_t most) {
  return value.is_number_integer() && value >= 0 && value <= most;
}

// Returns a whole number from 0 to `most`. Throws the exceptions of nlohmann::json, and std::invalid_argument.
std::int64_t count_of(const Json& object, const char* key, std::int64_t most) {
  const Json& value = object.at(key);
  if (!is_number_to(value, most)) {
    throw std::invalid_argument(fmt::format("a '{}' that is no number from 0 to {}", key, most));
  }
  return value.get<std::int64_t>();
}

std::optional<double> optional_number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : std::optional(found->get<double>());
}

// Throws the exceptions of nlohmann::json, and std::invalid_argument.
OptimizerStep parse_step(const Json& json, const std::vector<std::vector<std::string>>& lists) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  OptimizerStep step;
  step.iteration = static_cast<std::int32_t>(count_of(json, "iteration", kMost));
  step.chunk = static_cast<std::int32_t>(count_of(json, "chunk", kMost));
  json.at("optimizer").get_to(step.optimizer);
  json.at("options").get_to(step.options);
  step.step = optional_number(json, "step");
  step.calls = count_of(json, "calls", kMost);
  step.clip_factor = optional_number(json, "clip_factor");
  step.master = json.value("master", "");
  if (!step.master.empty() && !dtype_from_name(step.master)) {
    throw std::invalid_argument(fmt::format("the dtype '{}'", printable(step.master)));
  }
  step.changed_after = json.value("changed_after", false);
  if (const auto after = json.find("options_after"); after != json.end()) {
    step.options_after = after->get<std::map<std::string, double>>();
  }
  const std::int64_t list = count_of(json, "parameters", kMost);
  if (static_cast<std::size_t>(list) >= lists.size()) {
    throw std::invalid_argument(fmt::format("list {} of {} lists of parameters", list, lists.size()));
  }
  step.parameters = lists[static_cast<std::size_t>(list)];
  return step;
}

// Throws the exceptions of nlohmann::json, and std::invalid_argument.
std::map<std::string, CodeLine> parse_lines(const Json& json, const std::vector<std::string>& files) {
  std::map<std::string, CodeLine> lines;
  for (const auto& [name, line] : json.get<std::map<std::string, std::vector<std::int64_t>>>()) {
    const bool is_line = line.size() == 2 && line[0] >= 0 && static_cast<std::size_t>(line[0]) < files.size() &&
                         line[1] >= 1 && line[1] <= std::numeric_limits<std::int32_t>::max();
    if (!is_line) throw std::invalid_argument(fmt::format("the line of '{}'", printable(name)));
    lines[name] = {files[static_cast<std::size_t>(line[0])], static_cast<std::int32_t>(line[1])};
  }
  return lines;
}

}  // namespace

std::vector<NotSeen> parse_not_seen(const std::string& provenance, std::string_view where) try {
  const Json json = value_or_null(Json::parse(provenance), "not_seen");
  std::vector<NotSeen> statements;
  std::size_t names = 0;
  if (json.is_null()) return statements;
  for (const Json& item : json.get<std::vector<Json>>()) {
    statements.push_back(parse_statement(item));
    names += statements.back().tensors.size() + statements.back().modules.size();
  }
  if (names > kMaxNamesNotSeen) throw std::invalid_argument(fmt::format("{} names", names));
  return statements;
} catch (const nlohmann::json::exception&) {
  throw InputError(
      fmt::format("{}: its provenance has a 'not_seen' that is none; expected what `ttrace collect` writes", where));
} catch (const std::invalid_argument& error) {
  throw InputError(
      fmt::format("{}: its provenance says of {} that it was not seen; expected kinds and names of tensors, "
                  "at most {}",
                  where, error.what(), kMaxNamesNotSeen));
}

std::vector<OptimizerStep> parse_optimizer_steps(const std::string& provenance, std::string_view where) try {
  const Json json = value_or_null(Json::parse(provenance), "optimizer_steps");
  std::vector<OptimizerStep> steps;
  if (json.is_null()) return steps;
  const auto lists = json.at("parameters").get<std::vector<std::vector<std::string>>>();
  for (const std::vector<std::string>& names : lists) require_names(names);
  std::size_t names = 0;
  for (const Json& item : json.at("steps").get<std::vector<Json>>()) {
    steps.push_back(parse_step(item, lists));
    names += steps.back().parameters.size();
    if (names > kMaxNamesInSteps) {
      throw std::invalid_argument(fmt::format("more than {} names of parameters", kMaxNamesInSteps));
    }
  }
  return steps;
} catch (const nlohmann::json::exception&) {
  throw InputError(fmt::format(
      "{}: its provenance has 'optimizer_steps' that are none; expected what `ttrace collect` writes", where));
} catch (const std::invalid_argument& error) {
  throw InputError(fmt::format(
      "{}: its provenance has 'optimizer_steps' with {}; expected what `ttrace collect` writes", where, error.what()));
}

Rehearsals parse_rehearsals(const std::string& provenance, std::string_view where) try {
  Rehearsals rehearsals;
  if (provenance.find("\"rehearsals\"") == provenance.npos) return rehearsals;
  const Json json = value_or_null(Json::parse(provenance), "rehearsals");
  if (json.is_null()) return rehearsals;
  rehearsals.chunks = json.value("chunks", std::set<std::int32_t>());
  rehearsals.microbatches = json.value("microbatches", std::set<std::array<std::int32_t, 3>>());
  const auto is_negative = [](std::int32_t number) { return number < 0; };
  if (std::ranges::any_of(rehearsals.chunks, is_negative) ||
      std::ranges::any_of(rehearsals.microbatches,
                          [&](const auto& id) { return std::ranges::any_of(id, is_negative); })) {
    throw std::invalid_argument("a negative number");
  }
  return rehearsals;
} catch (const std::exception&) {  // of JSON that is none, or something else
  throw InputError(
      fmt::format("{}: its provenance has 'rehearsals' that are none; expected what `ttrace collect` writes", where));
}

std::optional<FurtherIterations> parse_further(const std::string& provenance, std::string_view where) try {
  if (provenance.find("\"further\"") == provenance.npos) return std::nullopt;
  const Json json = value_or_null(Json::parse(provenance), "further");
  if (json.is_null()) return std::nullopt;
  return FurtherIterations{json.at("asked").get<std::set<std::int32_t>>(),
                           json.at("finished").get<std::set<std::int32_t>>(),
                           json.value("light", std::set<std::int32_t>())};
} catch (const std::exception&) {  // of JSON that is none, or something else
  throw InputError(fmt::format(
      "{}: its provenance has 'further' that are no iterations; expected what `ttrace collect` writes", where));
}

std::vector<UnsteppedOptimizer> parse_unstepped(const std::string& provenance, std::string_view where) try {
  const Json json = value_or_null(value_or_null(Json::parse(provenance), "optimizer_steps"), "unstepped");
  std::vector<UnsteppedOptimizer> unstepped;
  if (json.is_null()) return unstepped;
  for (const Json& item : json.get<std::vector<Json>>()) {
    unstepped.push_back({item.at("optimizer").get<std::string>(),
                         count_of(item, "parameters", std::numeric_limits<std::int32_t>::max())});
  }
  return unstepped;
} catch (const std::exception&) {
  throw InputError(fmt::format(
      "{}: its provenance has 'unstepped' that are no optimizers; expected what `ttrace collect` writes", where));
}

std::optional<KeptModels> parse_kept(const std::string& provenance, std::string_view where) try {
  if (provenance.find("\"kept\"") == provenance.npos) return std::nullopt;
  const Json json = value_or_null(Json::parse(provenance), "kept");
  return json.is_null() ? std::nullopt : std::optional(json.at("titles").get<KeptModels>());
} catch (const std::exception&) {
  throw InputError(
      fmt::format("{}: its provenance has 'kept' that are no names; expected what `ttrace collect` writes", where));
}

std::vector<TrainedGroup> parse_trained(const std::string& provenance, std::string_view where) try {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  std::vector<TrainedGroup> groups;
  if (provenance.find("\"trained\"") == provenance.npos) return groups;
  const Json json = value_or_null(Json::parse(provenance), "optimizer_steps");
  if (value_or_null(json, "trained").is_null()) return groups;
  const auto lists = json.at("parameters").get<std::vector<std::vector<std::string>>>();
  std::size_t names = 0;
  for (const Json& item : json.at("trained").get<std::vector<Json>>()) {
    TrainedGroup& group = groups.emplace_back();
    group.chunk = static_cast<std::int32_t>(count_of(item, "chunk", kMost));
    group.parameters = lists.at(static_cast<std::size_t>(count_of(item, "parameters", kMost)));
    if (const Json optimizer = value_or_null(item, "optimizer"); !optimizer.is_null()) {
      group.optimizer = optimizer.get<std::string>();
    }
    group.number = count_of(item, "number", kMost);
    group.group = count_of(item, "group", kMost);
    names += group.parameters.size();
    if (names > kMaxNamesInSteps) throw std::invalid_argument("too many names");
  }
  return groups;
} catch (const std::exception&) {
  throw InputError(fmt::format(
      "{}: its provenance has 'trained' that are no parameters; expected what `ttrace collect` writes", where));
}

std::shared_ptr<const ModuleSources> parse_sources(const std::string& provenance, std::string_view where) try {
  if (provenance.find("\"sources\"") == provenance.npos) return nullptr;  // of a recorder that knows none
  const Json json = value_or_null(Json::parse(provenance), "sources");
  if (json.is_null()) return nullptr;
  const auto files = json.at("files").get<std::vector<std::string>>();
  const Json variables = value_or_null(json, "variables");  // a recorder that knows none says nothing of them
  return std::make_shared<ModuleSources>(
      ModuleSources{parse_lines(json.at("forwards"), files), parse_lines(json.at("calls"), files),
                    variables.is_null() ? std::map<std::string, std::string>()
                                        : variables.get<std::map<std::string, std::string>>()});
} catch (const nlohmann::json::exception&) {
  throw InputError(
      fmt::format("{}: its provenance has 'sources' that are none; expected what `ttrace collect` writes", where));
} catch (const std::invalid_argument& error) {
  throw InputError(fmt::format("{}: its provenance has 'sources' with {}; expected the place of a file and a line",
                               where, error.what()));
}

std::string matmul_precision_of(const std::string& provenance) {
  const Json json = Json::parse(provenance, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? string_or_empty(json, "matmul_precision") : std::string();
}

// Objects that many modules have are short in a file, and long where each of those gets a copy.
constexpr std::size_t kMostCopiedAttributes = 100'000;

std::shared_ptr<const ModuleConfigurations> parse_configurations(const std::string& provenance,
                                                                 std::string_view where) try {
  if (provenance.find("\"configurations\"") == provenance.npos) return nullptr;  // of a recorder that knows none
  const Json json = value_or_null(Json::parse(provenance), "configurations");
  if (json.is_null()) return nullptr;
  const auto objects = json.at("objects").get<std::vector<std::map<std::string, std::string>>>();
  std::vector<std::shared_ptr<const ModuleConfiguration>> values;
  std::size_t copied = 0;
  for (const Json& item : json.at("values").get<std::vector<Json>>()) {
    ModuleConfiguration value{item.at("class").get<std::string>(),
                              item.at("attributes").get<std::map<std::string, std::string>>()};
    for (const auto& [name, place] : item.value("objects", std::map<std::string, std::size_t>())) {
      copied += objects.at(place).size();
      if (copied > kMostCopiedAttributes) return nullptr;
      for (const auto& [attribute, text] : objects.at(place))
        value.attributes[fmt::format("{}.{}", name, attribute)] = text;
    }
    values.push_back(std::make_shared<ModuleConfiguration>(std::move(value)));
  }
  ModuleConfigurations configurations;
  for (const Json& chunk : json.at("modules").get<std::vector<Json>>()) {
    auto& modules = configurations.chunks.emplace_back();
    for (const auto& [module, place] : chunk.get<std::map<std::string, std::size_t>>()) {
      modules[module] = values.at(place);
    }
  }
  for (const auto& [module, place] : json.value("without_grad", std::map<std::string, std::size_t>())) {
    configurations.without_grad[module] = values.at(place);
  }
  return std::make_shared<ModuleConfigurations>(std::move(configurations));
} catch (const std::exception&) {  // of JSON that is none, or of a place that is none
  throw InputError(fmt::format(
      "{}: its provenance has 'configurations' that are none; expected what `ttrace collect` writes", where));
}

std::shared_ptr<const RandomDraws> parse_draws(const std::string& provenance, std::string_view where) try {
  if (provenance.find("\"draws\"") == provenance.npos) return nullptr;  // of a recorder that does not look
  const Json json = value_or_null(Json::parse(provenance), "draws");
  if (json.is_null()) return nullptr;
  const auto modules = json.at("modules").get<std::vector<std::string>>();
  require_names(modules);
  const auto number_of = [](const Json& value) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (!is_number_to(value, kMost)) throw std::invalid_argument("a number");
    return value.get<std::int32_t>();
  };
  std::map<TensorId, std::uint64_t> states;
  for (const Json& call : json.at("calls")) {
    const auto kind = kind_from_name(call.at(1).get<std::string>());
    if (!kind) throw std::invalid_argument("a kind");
    TensorId id;
    id.name = modules.at(call.at(0).get<std::size_t>());
    id.kind = *kind;
    id.iteration = number_of(call.at(2));
    id.microbatch = number_of(call.at(3));
    id.chunk = number_of(call.at(4));
    id.pass = call.at(5) == "recompute" ? Pass::kRecompute : Pass::kForward;
    states.emplace(std::move(id), call.at(6).get<std::uint64_t>());
  }
  return std::make_shared<RandomDraws>(std::move(states), json.value("cut", false));
} catch (const std::exception&) {  // of JSON that is none, or of a place that is none
  throw InputError(
      fmt::format("{}: its provenance has 'draws' that are none; expected what `ttrace collect` writes", where));
}

std::map<std::string, std::string> parse_surroundings(const std::string& provenance) {
  std::map<std::string, std::string> surroundings;
  const Json json = value_or_null(Json::parse(provenance), "surroundings");
  if (!json.is_object()) return surroundings;
  for (const auto& item : json.items()) {
    if (item.value().is_string()) surroundings[item.key()] = item.value().get<std::string>();
  }
  return surroundings;
}

std::optional<Imported> parse_imported(const std::string& provenance) {
  const Json json = value_or_null(Json::parse(provenance), "imported");
  if (!json.is_object()) return std::nullopt;
  return Imported{string_or_empty(json, "format"), string_list(value_or_null(json, "left_out"))};
}

std::string describe_imported(const std::string& format, const std::vector<std::string>& sources) {
  const Json json = {{"imported", {{"format", format}, {"sources", sources}}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Provenance parse_provenance(std::string text, std::string_view where) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw InputError(fmt::format("{}: its provenance is no JSON object; expected one", where));
  Provenance provenance;
  provenance.command = string_list(value_or_null(json, "command"));
  provenance.directory = string_or_empty(json, "directory");
  if (value_or_null(json, "axes").is_string()) provenance.axes = string_or_empty(json, "axes");
  provenance.started = string_or_empty(json, "started");
  provenance.git_commit = string_or_empty(json, "git_commit");
  provenance.python = string_or_empty(json, "python");
  provenance.torch = string_or_empty(json, "torch");
  provenance.device = string_or_empty(json, "device");
  provenance.program_files = string_list(value_or_null(json, "program_files"));
  const Json seconds = value_or_null(json, "recording_seconds");
  if (seconds.is_number()) provenance.recording_seconds = seconds.get<double>();
  const Json parallelism = value_or_null(json, "parallelism");
  if (parallelism.is_object()) {
    for (const auto& item : parallelism.items()) provenance.parallelism[item.key()] = item.value().dump();
  }
  parse_perturbation(json, where, provenance);
  provenance.rewritten = parse_rewritten(value_or_null(json, "rewritten"), where);
  provenance.selection = selection_of(value_or_null(json, "selection"));
  provenance.text = std::move(text);
  return provenance;
}

}  // namespace ttrace
