// What belongs to this program lies beside it, in the build tree as in an installation.
#pragma once

#include <filesystem>
#include <string>

namespace ttrace {

// Throws InputError where it is not there.
std::filesystem::path beside_program(const std::filesystem::path& relative);

// "PYTHONPATH=...", for the environment of a command: `directory` before what this process's says.
std::string python_path_with(const std::filesystem::path& directory);

}  // namespace ttrace
