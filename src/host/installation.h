// Finds the files that belong to this program. They lie beside it, in the build tree as in an installation.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// Sets the directory that holds bin/, in a process that runs another program: the Python package says where it lies.
void set_installation(const std::filesystem::path& directory);

// Returns the path `relative` to the directory that holds bin/. Throws InputError where it does not exist.
std::filesystem::path beside_program(const std::filesystem::path& relative);

// Returns "PYTHONPATH=..." for the environment of a command: `directory`, then what this process has there.
std::string python_path_with(const std::filesystem::path& directory);

// Returns the words that run a module of such a directory, as `-m` does; but what lies in the current directory, which
// may be a stranger's, is not imported. Python 3.11 leaves that out by PYTHONSAFEPATH, and those before it never.
std::vector<std::string> run_python_module(const std::string& python, std::string_view module);

}  // namespace ttrace
