// Writes commands as a shell would read them.
#pragma once

#include <string>
#include <vector>

namespace ttrace {

std::string shell_word(const std::string& word);  // quoted where it must be

// Returns the command as words that follow others on a line, as after `--`. Each is one word to the shell, so that
// nothing of a command that a trace names is run beside it where the line is typed.
std::string shell_words(const std::vector<std::string>& command);

// Returns the command on one line; a command for `sh -c` as the line that the shell gets.
std::string shell_line(const std::vector<std::string>& command);

}  // namespace ttrace
