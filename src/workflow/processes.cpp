#include "workflow/processes.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "distribute/comparison.h"
#include "distribute/index.h"
#include "distribute/steps.h"
#include "host/exit_codes.h"
#include "team/launcher.h"
#include "workflow/fingerprint.h"

namespace ttrace {
namespace {

// The arguments of this process without its own name.
std::string own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  text.erase(0, text.find('\0') + 1);
  if (text.ends_with('\0')) text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

Identity own_identity() {
  const std::string build = fingerprint_of("/proc/self/exe").substr(0, 8);
  return {fmt::format("ttrace " TTRACE_VERSION " (build {})", build), own_arguments()};
}

// An error that leaves this process alone in the middle of the work ends all processes: the launcher sees to that.
void serve_or_end(Communicator& communicator) {
  try {
    SharedFiles files;
    serve(communicator, own_identity(), [&](Work work, std::string_view request) {
      switch (work) {
        case Work::kReadIndex:
          return answer_index(request);
        case Work::kCompare:
          return answer_comparison(request, files);
        case Work::kReplaySteps:
          return answer_steps(request, files);
      }
      throw std::logic_error("a kind of work that is not known");
    });
  } catch (const std::exception& error) {
    fmt::print(stderr, "ttrace: error: process {} on {}: {}\n", communicator.rank(), communicator.host(), error.what());
    std::_Exit(kExitCouldNotLook);
  }
}

}  // namespace

int run_with_team(const std::function<int(Team&)>& command) {
  const Launched several = launched();
  if (several.size == 1) {
    Team alone;
    return command(alone);
  }
  std::unique_ptr<Communicator> communicator = start_mpi(several);
  if (several.rank > 0) {
    serve_or_end(*communicator);
    return kExitSame;  // a launcher ends all where one ends with another code, and process 0 has things to say
  }
  Team team(std::move(communicator), own_identity());
  return command(team);
}

}  // namespace ttrace
