#include "merge/rewritten.h"

#include <fmt/format.h>

#include <string>

#include "base/error.h"

namespace ttrace {
namespace {

bool was_given_recorded_values(const std::optional<RewrittenFrom>& given, const Trace& reference) {
  const auto is_recorded = [](const std::string& words) { return words.empty() || words == "recorded"; };
  return given && given->source == reference.run_id && is_recorded(given->activations) &&
         is_recorded(given->parameters);
}

std::string describe_values(const std::optional<RewrittenFrom>& given) {
  if (!given) return "its own values";
  std::string text;
  if (!given->activations.empty()) text = given->activations + " activations";
  if (!given->parameters.empty()) {
    text += fmt::format("{}{} parameters", text.empty() ? "" : ", ", given->parameters);
  }
  return printable(fmt::format("{} of run {}", text, given->source));
}

}  // namespace

bool has_rewritten_modules(const Trace& trace) {
  const std::optional<RewrittenFrom>& given = trace.provenance.rewritten;
  return given && !given->activations.empty();
}

void require_same_values(const Trace& reference, const Trace& trace) {
  const std::optional<RewrittenFrom>&of_reference = reference.provenance.rewritten,
        &of_trace = trace.provenance.rewritten;
  if (of_reference == of_trace || was_given_recorded_values(of_trace, reference)) return;
  throw InputError(fmt::format("{}: computed with {}, and {} with {}; expected the same values in both",
                               trace.directory.string(), describe_values(of_trace), reference.directory.string(),
                               describe_values(of_reference)));
}

}  // namespace ttrace
