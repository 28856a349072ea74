// Writes commands as a shell would read them.
#pragma once

#include <string>
#include <vector>

namespace ttrace {

std::string shell_word(const std::string& word);  // quoted where it must be

// The command on one line. What is for `sh -c` is shown as it stands.
std::string shell_line(const std::vector<std::string>& command);

}  // namespace ttrace
