#include "cli/misuse.h"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <set>
#include <vector>

#include "annotate/close_names.h"

namespace ttrace::cli {
namespace {

bool is_option(const std::string& word) { return word.starts_with('-'); }

std::set<std::string> options_of(const CLI::App& command) {
  std::set<std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) options.insert("--" + name);
  }
  return options;
}

std::string with_advice(const CLI::App& app, const CLI::App& command, const std::string& what) {
  const std::string name = &command == &app ? app.get_name() : app.get_name() + " " + command.get_name();
  return fmt::format("{}: {}; expected what `{} --help` says", name, what, name);
}

}  // namespace

std::set<std::string> commands_of(const CLI::App& app) {
  std::set<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.insert(command->get_name());
  return names;
}

std::string describe_unknown(const CLI::App& app, const CLI::App& command, const std::string& word) {
  const bool is_command = &command == &app && !is_option(word);
  std::string what = fmt::format(fmt::runtime(is_command ? "there is no command '{}'" : "'{}' was not expected"), word);
  if (is_command || is_option(word)) {
    const std::string name = word.substr(0, word.find('='));
    const auto close = close_names(name, is_command ? commands_of(app) : options_of(command));
    if (!close.empty()) what += fmt::format(" (did you mean '{}'?)", close.front());
  }
  return with_advice(app, command, what);
}

// CLI11 says what is missing before it says what is unknown, and so hides the misspelt option behind the one that it
// stands for.
std::string describe_misuse(const CLI::App& app, const CLI::ParseError& error) {
  const auto given = app.get_subcommands();
  const CLI::App& command = given.empty() ? app : *given.front();
  std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  std::erase(unknown, "--");
  if (unknown.empty()) return with_advice(app, command, given.empty() ? "no command" : error.what());
  const auto option = std::find_if(unknown.begin(), unknown.end(), is_option);
  const bool is_first = given.empty() || option == unknown.end();
  return describe_unknown(app, command, is_first ? unknown.front() : *option);
}

}  // namespace ttrace::cli
