// Runs a command in the foreground, as a shell would.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ttrace::cli {

struct Outcome {
  int exit_code = 0;    // as a shell has it: 128 + n for signal n, 127 not found, 126 could not be run
  std::string failure;  // "exited with code 3", "was killed by signal 9 (Killed)"; empty for success
  bool started = true;
};

struct Launch {
  std::vector<std::string> environment;  // "NAME=value", added to this process's
  bool stdout_to_stderr = false;         // where this process's stdout is for something else
  std::string directory;                 // to run in; empty: this process's
  std::function<void()> on_second;       // called about every second; may be empty
};

// stdin, stdout and stderr are the command's. SIGINT, SIGTERM and SIGHUP that are sent to this process
// alone are passed on; the terminal sends its own to both.
Outcome run_command(const std::vector<std::string>& command, const Launch& how);

// The last signal that came for this process while it ran a command; 0: none did.
int interrupted_by();

}  // namespace ttrace::cli
