// Runs commands in the foreground, as a shell would.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ttrace {

inline constexpr int kExitTimeout = 124;  // as timeout(1) has it

// The one variable that commands do not get: what they run may be anybody's.
inline constexpr const char* kSealKeyVariable = "TTRACE_SEAL_KEY";

struct CommandResult {
  // The code as a shell gives it: 128 + n for signal n, 127 not found, 126 could not be run; kExitTimeout.
  int exit_code = 0;
  // "exited with code 3", "was killed by signal 9 (Killed)", "did not end within 600 s"; empty for success
  std::string failure;
  bool started = true;
};

struct Launch {
  std::vector<std::string> environment;  // "NAME=value", added to this process's
  bool stdout_to_stderr = false;         // for a process that needs its stdout for something else
  std::string directory;                 // to run in; empty: this process's
  std::function<void()> on_second = {};  // called about every second; may be empty
  std::chrono::seconds timeout{0};       // then the command gets SIGTERM, and SIGKILL ten seconds later; 0: none
  bool in_own_group = true;              // false: it ends with this process's group, as a part of ttrace does
};

// Runs the command with this process's stdin, stdout and stderr. SIGINT, SIGTERM and SIGHUP that are sent to this
// process alone are forwarded; the terminal sends its own to both. Where stdin is no terminal, or there is a time limit,
// the command leads a group, and a signal goes to all that it has started: a shell that is killed leaves its training
// running.
CommandResult run_command(const std::vector<std::string>& command, const Launch& launch);

// Returns the last signal that came for this process while it ran a command, or 0.
int interrupted_by();

constexpr std::size_t kMostSideBySide = 64;

struct LoggedCommand {
  std::vector<std::string> command;
  std::string log;                       // file for its stdout and stderr; its stdin is empty
  std::vector<std::string> environment;  // "NAME=value", added to this process's
  std::chrono::seconds timeout{0};       // as that of Launch
};

// Runs a command beside one that `run_command` runs in another thread, and waits for it. It has no part in the signals
// of this process.
CommandResult run_beside(const LoggedCommand& command);

// Holds what `run_side_by_side` calls, with indices among its commands. Nothing of it may throw.
struct SideBySideEvents {
  std::function<void(std::size_t)> on_start;
  std::function<bool(std::size_t, const CommandResult&)> on_end;  // returns whether to go on
  std::function<void()> on_second = {};                           // about every second; may be empty
};

// Runs all commands, at most `jobs` (up to kMostSideBySide) at a time, and forwards signals to each that runs. Once
// `on_end` has said not to go on, no further one is started, those that run get SIGTERM and are waited for, and nothing
// is called any more.
void run_side_by_side(const std::vector<LoggedCommand>& commands, std::size_t jobs, const SideBySideEvents& events);

// Returns a TCP port of this machine that nobody listens at now.
int free_port();

}  // namespace ttrace
