// Runs commands in the foreground, as a shell would.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ttrace {

struct CommandResult {
  int exit_code = 0;    // as a shell gives it: 128 + n for signal n, 127 not found, 126 could not be run
  std::string failure;  // "exited with code 3", "was killed by signal 9 (Killed)"; empty for success
  bool started = true;
};

struct Launch {
  std::vector<std::string> environment;  // "NAME=value", added to this process's
  bool stdout_to_stderr = false;         // for a process that needs its stdout for something else
  std::string directory;                 // to run in; empty: this process's
  std::function<void()> on_second;       // called about every second; may be empty
};

// Runs the command with this process's stdin, stdout and stderr. SIGINT, SIGTERM and SIGHUP that are sent to this
// process alone are forwarded; the terminal sends its own to both.
CommandResult run_command(const std::vector<std::string>& command, const Launch& launch);

// Returns the last signal that came for this process while it ran a command, or 0.
int interrupted_by();

constexpr std::size_t kMostSideBySide = 64;

struct LoggedCommand {
  std::vector<std::string> command;
  std::string log;  // file for its stdout and stderr; its stdin is empty
};

// What `run_side_by_side` calls, with indices among its commands. Nothing of it may throw.
struct SideBySideEvents {
  std::function<void(std::size_t)> on_start;
  std::function<void(std::size_t, const CommandResult&)> on_end;  // of each that ended well, and the first that failed
  std::function<void()> on_second = {};                           // about every second; may be empty
};

// Runs all commands, at most `jobs` (up to kMostSideBySide) at a time, and forwards signals to each that runs. Once one
// has failed, no further one is started, and those that run get SIGTERM and are waited for.
void run_side_by_side(const std::vector<LoggedCommand>& commands, std::size_t jobs, const SideBySideEvents& events);

}  // namespace ttrace
