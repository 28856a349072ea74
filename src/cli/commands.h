// The subcommands: each file in this folder but main.cpp and commands.cpp registers one.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>

#include "process/exit_codes.h"
#include "terminal/report_files.h"

namespace ttrace::cli {

// Registers a subcommand: options go to a struct it owns, and when it is parsed `run` is set to what
// executes it and returns the exit code.
using Run = std::function<int()>;
void add_collect(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_estimate_tolerance(CLI::App& app, Run& run);
void add_check(CLI::App& app, Run& run);
void add_localize(CLI::App& app, Run& run);
void add_run(CLI::App& app, Run& run);
void add_annotate(CLI::App& app, Run& run);
void add_abft(CLI::App& app, Run& run);
void add_calibrate(CLI::App& app, Run& run);
void add_sdc(CLI::App& app, Run& run);
void add_history(CLI::App& app, Run& run);

// Options that several subcommands have.
void add_report_options(CLI::App& command, ReportOptions& options);

}  // namespace ttrace::cli
