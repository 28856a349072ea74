// What comes with the program.
#pragma once

#include <filesystem>

namespace ttrace {

// What belongs to this program lies beside it, in the build tree as in an installation: `relative` is a path as from
// the directory that holds `bin`. Throws InputError where it is not there.
std::filesystem::path beside_program(const std::filesystem::path& relative);

}  // namespace ttrace
