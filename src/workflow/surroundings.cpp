#include "workflow/surroundings.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "format/provenance.h"
#include "host/shell_words.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostLetters = 120;  // of the words of a command
constexpr auto kSecrets = std::to_array<std::string_view>({"token", "secret", "password", "key", "credential"});

bool names_secret(std::string_view word) {
  return std::ranges::any_of(kSecrets, [&](std::string_view secret) { return word.find(secret) != word.npos; });
}

// The words of the command that the other does not have, without what may be secrets.
std::string words_only_in(const std::vector<std::string>& command, const std::vector<std::string>& other) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (std::ranges::find(other, command[i]) != other.end()) continue;
    if (names_secret(command[i]) || (i > 0 && names_secret(command[i - 1]))) continue;
    words.push_back(command[i]);
  }
  std::string line = shell_line(words);
  return line.size() <= kMostLetters ? line : line.substr(0, kMostLetters) + "...";
}

}  // namespace

std::vector<OtherSurrounding> compare_surroundings(const Trace& reference, const Trace& candidate) {
  std::vector<OtherSurrounding> others;
  const auto wanted = parse_surroundings(reference.provenance.text);
  const auto found = parse_surroundings(candidate.provenance.text);
  if (wanted.empty() || found.empty()) return others;  // of a recorder that does not say them
  std::map<std::string, OtherSurrounding> by_name;
  for (const auto& [what, value] : wanted) by_name[what] = {what, value, ""};
  for (const auto& [what, value] : found) {
    OtherSurrounding& other = by_name[what];
    other.what = what;
    other.candidate = value;
  }
  for (const auto& [what, other] : by_name) {
    if (other.reference != other.candidate) others.push_back(other);
  }
  const std::vector<std::string>&one = reference.provenance.command, &two = candidate.provenance.command;
  OtherSurrounding command{"command", words_only_in(one, two), words_only_in(two, one)};
  if (!command.reference.empty() || !command.candidate.empty()) others.push_back(std::move(command));
  return others;
}

}  // namespace ttrace
