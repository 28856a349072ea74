// The commands: each file in this folder registers one, but for main.cpp, commands.cpp and misuse.cpp.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/annotation.h"
#include "host/exit_codes.h"
#include "host/terminal.h"
#include "inspect/selection.h"
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
void add_sdc(CLI::App& app, Run& run);
void add_history(CLI::App& app, Run& run);
void add_completion(CLI::App& app, Run& run);
void add_help(CLI::App& app, Run& run);

// Help pages of at most 80 columns: it wraps the descriptions of commands and options, which are one line in the code.
// Commands take it from their parent when they are registered.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// The options that several commands have. Each function returns the option that it has registered, for what a
// command has to add: `required`, another description.
CLI::Option* add_reference_option(CLI::App& command, std::string& trace);
CLI::Option* add_candidate_option(CLI::App& command, std::string& trace);
CLI::Option* add_annotation_options(CLI::App& command, AnnotationSource& annotations);  // -a; also --set
CLI::Option* add_axes_option(CLI::App& command, AnnotationSource& annotations);
CLI::Option* add_tolerance_option(CLI::App& command, std::string& file);
CLI::Option* add_accept_option(CLI::App& command, bool& accept);  // --accept-overrides
CLI::Option* add_correspondence_option(CLI::App& command, std::string& correspondence);
CLI::Option* add_only_option(CLI::App& command, std::string& pattern);
void add_choice_options(CLI::App& command, TensorChoice& choice);  // --kind, --iteration, --microbatch
CLI::Option* add_threads_option(CLI::App& command, int& threads);
CLI::Option* add_json_option(CLI::App& command, std::string& file);
CLI::Option* add_html_option(CLI::App& command, std::string& file);
CLI::Option* add_sarif_option(CLI::App& command, std::string& file);
CLI::Option* add_github_option(CLI::App& command, bool& github);
CLI::Option* add_history_option(CLI::App& command, std::string& file);

// --color, --quiet, --verbose: those of every command.
void add_terminal_options(CLI::App& command, TerminalOptions& options);

// Those of a command that writes a Report.
void add_report_options(CLI::App& command, ReportOptions& options);

}  // namespace ttrace::cli
