// Describes a command line that cannot be understood: one line, with what may have been meant.
#pragma once

#include <CLI/App.hpp>
#include <set>
#include <string>

namespace ttrace::cli {

std::set<std::string> commands_of(const CLI::App& app);  // their names

// CLI11's error about the command line that `app` has parsed.
std::string describe_misuse(const CLI::App& app, const CLI::ParseError& error);

// Describes a `word` in the place of a command of `app`, or of an option or argument of `command`, which may be `app`
// itself.
std::string describe_unknown(const CLI::App& app, const CLI::App& command, const std::string& word);

}  // namespace ttrace::cli
