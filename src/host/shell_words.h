// Writes commands as a shell would read them.
#pragma once

#include <string>
#include <vector>

namespace ttrace {

std::string shell_word(const std::string& word);  // quoted where it must be

// Returns the command on one line; a command for `sh -c` as the line that the shell gets.
std::string shell_line(const std::vector<std::string>& command);

}  // namespace ttrace
