#include "host/shell_words.h"

namespace ttrace {

std::string shell_word(const std::string& word) {
  const std::string plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./=,:+@%-";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shell_words(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

std::string shell_line(const std::vector<std::string>& command) {
  if (command.size() == 3 && command[0] == "/bin/sh" && command[1] == "-c") return command[2];
  return shell_words(command);
}

}  // namespace ttrace
