// The versions of Python and PyTorch behind a command: results of other ones are no measure.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ttrace {

// `torch of .venv/bin/python` -> "2.13.0", for each Python environment with a program that the command names. A command
// that names none, such as a script that activates one, says nothing here.
std::map<std::string, std::string> torch_versions(const std::vector<std::string>& command);

// What ran is known for sure from the traces. Throws InputError where the two sides ran on different versions.
void require_same_software(const std::filesystem::path& reference, const std::filesystem::path& candidate);

}  // namespace ttrace
