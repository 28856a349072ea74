// Finds out whether a launcher such as mpirun or srun has started this process as one of several.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "team/communicator.h"

namespace ttrace {

// Holds what the environment says, before MPI is there.
struct Launched {
  int rank = 0;
  int size = 1;
};

// Reads what Open MPI, MPICH, Intel MPI and Slurm say. Where TTRACE_ALONE is set and not empty, this process works
// alone, whatever it was started in: a script that is one rank of a training job may call ttrace.
Launched launched(const std::function<std::optional<std::string>(const char*)>& variable);
Launched launched();  // of this process's environment

// The MPI that this program was built with, "Open MPI 4.1.4", or "no".
std::string mpi_library();

// Starts MPI: returns once all processes of the launcher have come to it. Throws InputError where this program, or its
// installation, has none, and where MPI and the launcher do not know each other.
std::unique_ptr<Communicator> start_mpi(const Launched& launched);

}  // namespace ttrace
