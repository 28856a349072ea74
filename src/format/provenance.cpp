#include "format/provenance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "ttrace/error.h"
#include "ttrace/trace.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

Json value_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? Json() : *found;
}

std::string text_of(const Json& object, const char* key) {
  const Json value = value_of(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// Empty where one of them is no text: such a command cannot be run again.
std::vector<std::string> words_of(const Json& value) {
  std::vector<std::string> words;
  if (!value.is_array()) return words;
  for (const Json& word : value) {
    if (!word.is_string()) return {};
    words.push_back(word.get<std::string>());
  }
  return words;
}

bool is_seed_or_null(const Json& value) { return value.is_null() || value.is_number_unsigned(); }

std::optional<std::uint64_t> seed_of(const Json& object, const char* key) {
  const Json value = value_of(object, key);
  return value.is_null() ? std::nullopt : std::optional(value.get<std::uint64_t>());
}

void parse_perturbation(const Json& json, std::string_view where, Provenance& provenance) {
  if (!is_seed_or_null(value_of(json, "perturb_seed"))) {
    throw InputError(
        fmt::format("{}: its provenance has a perturb_seed that is no seed; expected an integer from 0", where));
  }
  provenance.perturb_seed = seed_of(json, "perturb_seed");
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

bool says_which_values(const Json& rewritten, const char* key) {
  if (!rewritten.contains(key)) return false;
  const Json& value = rewritten[key];
  return value.is_null() || value == "recorded" || value == "generated";
}

std::optional<RewrittenFrom> parse_rewritten(const Json& value, std::string_view where) {
  if (value.is_null()) return std::nullopt;
  const bool is_known = value.is_object() && value_of(value, "source").is_string() &&
                        says_which_values(value, "activations") && says_which_values(value, "parameters") &&
                        is_seed_or_null(value_of(value, "seed"));
  if (!is_known) {
    throw InputError(
        fmt::format("{}: its provenance has a 'rewritten' that is none; expected what `ttrace collect` writes", where));
  }
  return RewrittenFrom{text_of(value, "source"), text_of(value, "activations"), text_of(value, "parameters"),
                       seed_of(value, "seed")};
}

}  // namespace

Provenance parse_provenance(std::string text, std::string_view where) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw InputError(fmt::format("{}: its provenance is no JSON object; expected one", where));
  Provenance provenance;
  provenance.command = words_of(value_of(json, "command"));
  provenance.directory = text_of(json, "directory");
  if (value_of(json, "axes").is_string()) provenance.axes = text_of(json, "axes");
  provenance.started = text_of(json, "started");
  provenance.git_commit = text_of(json, "git_commit");
  provenance.python = text_of(json, "python");
  provenance.torch = text_of(json, "torch");
  provenance.device = text_of(json, "device");
  const Json seconds = value_of(json, "recording_seconds");
  if (seconds.is_number()) provenance.recording_seconds = seconds.get<double>();
  parse_perturbation(json, where, provenance);
  provenance.rewritten = parse_rewritten(value_of(json, "rewritten"), where);
  provenance.text = std::move(text);
  return provenance;
}

}  // namespace ttrace
