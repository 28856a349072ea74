#include "ttrace/rewrite/provenance.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "ttrace/error.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

// {"source": run id, "activations": "recorded", "generated" or null, "parameters": likewise, "seed"}; null: its own.
Json rewritten(const Trace& trace) {
  const Json provenance = Json::parse(trace.provenance, nullptr, /*allow_exceptions=*/false);
  const Json found = provenance.is_object() ? provenance.value("rewritten", Json()) : Json();
  if (found.is_null()) return found;
  const bool is_known = found.is_object() && found.contains("source") && found["source"].is_string() &&
                        found.contains("activations") && found.contains("parameters");
  if (is_known) return found;
  throw InputError(
      fmt::format("{}: its provenance has a 'rewritten' that is none; expected what `ttrace collect` writes",
                  trace.directory.string()));
}

bool is_recorded_of(const Json& given, const Trace& reference) {
  const auto own_values = [&](const char* what) { return given[what].is_null() || given[what] == "recorded"; };
  return given.is_object() && given["source"] == reference.run_id && own_values("activations") &&
         own_values("parameters");
}

std::string described(const Json& given) {
  if (given.is_null()) return "its own values";
  std::string text;
  for (const char* what : {"activations", "parameters"}) {
    if (given[what].is_string()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", given[what].get<std::string>(), what);
    }
  }
  return printable(fmt::format("{} of run {}", text, given["source"].get<std::string>()));
}

}  // namespace

bool has_rewritten_modules(const Trace& trace) {
  const Json given = rewritten(trace);
  return given.is_object() && !given["activations"].is_null();
}

void require_same_values(const Trace& reference, const Trace& trace) {
  const Json of_reference = rewritten(reference), of_trace = rewritten(trace);
  if (of_reference == of_trace || is_recorded_of(of_trace, reference)) return;
  throw InputError(fmt::format("{}: computed with {}, and {} with {}; expected the same values in both",
                               trace.directory.string(), described(of_trace), reference.directory.string(),
                               described(of_reference)));
}

}  // namespace ttrace
