// Finds the files that a Python program is made of, without running it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ttrace {

// Returns the script, the configurations beside it, and what it imports from its own project, as `inputs` of a run file:
// modules as files, packages as their directories, relative to the working directory, sorted. Imports are looked up where Python would: beside the
// script, in the working directory, and in its `src`. What a program imports by a name that it computes is not found.
// `named`: files that belong to it as well.
std::vector<std::string> program_inputs(const std::filesystem::path& script, const std::vector<std::string>& named);

// Returns the file of a module that `python -m` runs, looked up in the same places; empty where there is none.
std::filesystem::path file_of_module(const std::string& module);

}  // namespace ttrace
