#include "base/module_source.h"

#include <fmt/format.h>

#include "base/tensor_name.h"
#include "base/trace.h"

namespace ttrace {
namespace {

std::optional<CodeLine> find_line(const std::map<std::string, CodeLine>& lines, const std::string& name) {
  const auto found = lines.find(name);
  return found == lines.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::string text_of(const CodeLine& line) { return printable(fmt::format("{}:{}", line.file, line.line)); }

bool is_in_repository(const CodeLine& line) { return !line.file.starts_with('/'); }

std::string text_of(const ModuleSource& source) {
  std::string text = source.forward ? "in " + text_of(*source.forward) : "";
  if (source.call) text += (text.empty() ? "called at " : ", called at ") + text_of(*source.call);
  if (source.variable) {
    text += fmt::format("{}of the program's '{}'", text.empty() ? "" : ", ", printable(*source.variable));
  }
  return text;
}

const CodeLine* best_line(const ModuleSource& source) {
  const CodeLine* best = nullptr;
  for (const std::optional<CodeLine>* line : {&source.forward, &source.call}) {
    if (!*line || (best != nullptr && (is_in_repository(*best) || !is_in_repository(**line)))) continue;
    best = &**line;
  }
  return best;
}

ModuleSource ModuleSources::of(const std::string& module, const std::string& module_class) const {
  ModuleSource source{find_line(forwards, module_class), find_line(calls, module)};
  if (!source.call) source.call = find_line(calls, without_numbers(module));
  return source;
}

std::optional<std::string> ModuleSources::variable_of(std::string_view name, bool is_of_other) const {
  if (variables.size() < 2) return std::nullopt;
  auto found = variables.find(components_of(name).front());
  if (found == variables.end() && !is_of_other) found = variables.find("");
  return found == variables.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace ttrace
