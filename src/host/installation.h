// Finds the files that belong to this program. They lie beside it, in the build tree as in an installation.
#pragma once

#include <filesystem>
#include <string>

namespace ttrace {

// Sets the directory that holds bin/, in a process that runs another program: the Python package says where it lies.
void set_installation(const std::filesystem::path& directory);

// Returns the path `relative` to the directory that holds bin/. Throws InputError where it does not exist.
std::filesystem::path beside_program(const std::filesystem::path& relative);

// Returns "PYTHONPATH=..." for the environment of a command: `directory`, then what this process has there.
std::string python_path_with(const std::filesystem::path& directory);

}  // namespace ttrace
