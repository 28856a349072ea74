// Annotations as commands of GitHub's workflows:
// https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
#include <fmt/format.h>

#include <string_view>

#include "report/problem.h"
#include "report/render.h"

namespace ttrace {
namespace {

// Replaces what would end the text, or in a property the value.
std::string escaped(std::string_view text, bool is_property) {
  std::string result;
  for (const char c : text) {
    const bool is_special = c == '%' || c == '\r' || c == '\n' || (is_property && (c == ':' || c == ','));
    result += is_special ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return result;
}

std::string annotation_of(const Problem& problem) {
  std::string properties;
  // GitHub shows lines of files that the repository has.
  if (problem.line && is_in_repository(*problem.line)) {
    properties = fmt::format("file={},line={},", escaped(printable(problem.line->file), true), problem.line->line);
  }
  const std::string title = problem.who.empty() ? "ttrace" : "ttrace: " + printable(problem.who);
  return fmt::format("::error {}title={}::{}\n", properties, escaped(title, true), escaped(problem.text, false));
}

template <class SomeReport>
std::string annotations_of(const SomeReport& report) {
  std::string text;
  for (const Problem& problem : problems_of(report)) text += annotation_of(problem);
  return text;
}

}  // namespace

std::string to_github(const Report& report) { return annotations_of(report); }
std::string to_github(const RunReport& report) { return annotations_of(report); }

}  // namespace ttrace
