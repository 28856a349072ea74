// The commands: each file in this folder registers one, but for main.cpp, commands.cpp and misuse.cpp.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/annotation.h"
#include "host/exit_codes.h"
#include "host/terminal.h"
#include "inspect/selection.h"
#include "workflow/option_values.h"
#include "workflow/options.h"
#include "workflow/report_files.h"

namespace ttrace::cli {

// Registers a command: options go to a struct it owns, and when it is parsed `run` is set to what
// executes it and returns the exit code.
using Run = std::function<int()>;
void add_collect(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_show(CLI::App& app, Run& run);
void add_export(CLI::App& app, Run& run);
void add_import(CLI::App& app, Run& run);
void add_estimate_tolerance(CLI::App& app, Run& run);
void add_check(CLI::App& app, Run& run);
void add_localize(CLI::App& app, Run& run);
void add_run(CLI::App& app, Run& run);
void add_init(CLI::App& app, Run& run);
void add_annotate(CLI::App& app, Run& run);
void add_lint(CLI::App& app, Run& run);
void add_explain(CLI::App& app, Run& run);
void add_abft(CLI::App& app, Run& run);
void add_calibrate(CLI::App& app, Run& run);
void add_watch(CLI::App& app, Run& run);
void add_sdc(CLI::App& app, Run& run);
void add_history(CLI::App& app, Run& run);
void add_completion(CLI::App& app, Run& run);
void add_help(CLI::App& app, Run& run);

// Help pages of at most 80 columns: it wraps the descriptions of commands and options, which are one line in the code.
// Commands take it from their parent when they are registered.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// Registers an option of a table (workflow/options.h), with what its value may be, and returns it, for what a command
// has to add: `required`, another description. The member must live until the command line is parsed.
template <class Member>
CLI::Option* add_option(CLI::App& command, const Option& option, Member& member);

// Registers all options of a struct.
template <class Options>
void add_options(CLI::App& command, Options& options) {
  visit_options(options, [&](const Option& option, auto& member) { add_option(command, option, member); });
}

CLI::Option* add_annotation_options(CLI::App& command, AnnotationSource& annotations);  // -a; also --set
void add_choice_options(CLI::App& command, TensorChoice& choice);  // --kind, --iteration, --microbatch

// Returns the words that a value of this option may be, for completion; empty: it is any text, or a file.
std::vector<std::string> choices_of(const CLI::Option& option);

// --color, --quiet, --verbose: those of every command.
void add_terminal_options(CLI::App& command, TerminalOptions& options);

namespace detail {

// Completes what `add_option` has registered.
CLI::Option* finish_option(CLI::App& command, const Option& option, CLI::Option* registered,
                           const std::vector<std::string>& defaults);

template <class Member>
inline constexpr bool kOfCli11 =
    std::is_arithmetic_v<Member> || std::is_same_v<Member, std::string> ||
    std::is_same_v<Member, std::filesystem::path> || std::is_same_v<Member, std::optional<std::int32_t>> ||
    std::is_same_v<Member, std::optional<std::uint64_t>>;

}  // namespace detail

template <class Member>
CLI::Option* add_option(CLI::App& command, const Option& option, Member& member) {
  CLI::Option* registered = nullptr;
  const bool is_list = option.type == std::string_view("LIST");
  if constexpr (std::is_same_v<Member, bool>) {
    registered = command.add_flag(option.names, member, option.help);
  } else if constexpr (detail::kOfCli11<Member>) {
    registered = command.add_option(option.names, member, option.help);
  } else if constexpr (std::is_same_v<Member, std::vector<std::string>>) {
    if (!is_list) registered = command.add_option(option.names, member, option.help)->allow_extra_args(false);
  }
  if constexpr (std::is_same_v<Member, std::chrono::seconds>) {
    const auto set = [&member](std::int64_t seconds) { member = std::chrono::seconds(seconds); };
    registered = command.add_option_function<std::int64_t>(option.names, set, option.help);
  } else if constexpr (!detail::kOfCli11<Member>) {
    const auto set = [option, &member](const std::string& text) { read_value(option, text, member); };
    if (!registered) registered = command.add_option_function<std::string>(option.names, set, option.help);
  }
  return detail::finish_option(command, option, registered, texts_of(option, member));
}

}  // namespace ttrace::cli
