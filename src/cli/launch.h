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

// stdin, stdout and stderr are the command's. SIGINT, SIGTERM and SIGHUP that are sent to this process
// alone are passed on; the terminal sends its own to both. `environment` is added to this process's
// ("NAME=value"). `on_second` is called about every second; may be empty.
Outcome run_command(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                    const std::function<void()>& on_second);

}  // namespace ttrace::cli
