#include "team/launcher.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "host/installation.h"

namespace ttrace {
namespace {

// The variables that say a process's rank, and of how many it is one.
constexpr std::array<std::pair<const char*, const char*>, 3> kVariables = {{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},                 // MPICH, Intel MPI, and srun --mpi=pmi2
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}  // of a step: in a batch script, outside of srun, the second is not set
}};

std::optional<int> number(const std::optional<std::string>& text) {
  int value = 0;
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

Launched launched(const std::function<std::optional<std::string>(const char*)>& variable) {
  if (!variable("TTRACE_ALONE").value_or("").empty()) return {};
  for (const auto& [rank_name, size_name] : kVariables) {
    const std::optional<int> rank = number(variable(rank_name)), size = number(variable(size_name));
    if (rank && size && *rank < *size) return {*rank, *size};
  }
  return {};
}

Launched launched() {
  return launched([](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

std::string mpi_library() { return TTRACE_MPI_LIBRARY; }

std::unique_ptr<Communicator> start_mpi(const Launched& launched) {
  const std::string what = fmt::format("started as {} processes", launched.size);
  if (mpi_library() == "no") {
    throw InputError(what +
                     ", but this ttrace is built without MPI (`ttrace --version`); expected one process, or a "
                     "build on a machine with MPI's development files");
  }
  // Open MPI's own modules look for its symbols among the global ones.
  void* const library = ::dlopen(beside_program(TTRACE_MPI_MODULE).c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* const start = library == nullptr ? nullptr : ::dlsym(library, "ttrace_start_mpi");
  if (start == nullptr) {
    const char* const why = ::dlerror();
    throw InputError(
        fmt::format("{}, and MPI cannot be loaded: {}; expected {} as on the machine that ttrace was built on", what,
                    why == nullptr ? "no reason given" : why, mpi_library()));
  }
  std::unique_ptr<Communicator> communicator(reinterpret_cast<Communicator* (*)()>(start)());
  if (communicator->size() != launched.size) {
    throw InputError(
        fmt::format("{}, of which MPI ({}) finds {}; expected a launcher of that MPI: its own mpirun, or "
                    "srun --mpi=pmix",
                    what, mpi_library(), communicator->size()));
  }
  return communicator;
}

}  // namespace ttrace
