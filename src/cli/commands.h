// The subcommands: each file in this folder holds one.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>

namespace ttrace::cli {

// Exit codes, the same for all subcommands: stable, for CI.
inline constexpr int kSame = 0;          // done; nothing differs
inline constexpr int kDifferent = 1;     // the traces differ
inline constexpr int kCouldNotLook = 2;  // misuse, unreadable input, no tensor in common

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

}  // namespace ttrace::cli
