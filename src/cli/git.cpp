#include "cli/git.h"

#include <cstdio>
#include <filesystem>
#include <vector>

#include "ttrace/load/fingerprint.h"

namespace ttrace::cli {
namespace {

namespace fs = std::filesystem;

// What `git ARGUMENTS` prints; absent where it fails.
std::optional<std::string> git(const std::string& arguments) {
  FILE* const pipe = popen(("git " + arguments + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 16);
  for (std::size_t read = 0; (read = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), read);
  }
  if (pclose(pipe) != 0) return std::nullopt;
  return text;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<std::string> split_at_zeros(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::string git_commit() { return first_line(git("rev-parse HEAD").value_or("")); }

std::optional<std::map<std::string, std::string>> git_version(const std::set<std::string>& outputs) {
  const std::string commit = git_commit();
  const auto top = git("rev-parse --show-toplevel");
  const auto changes = git("diff HEAD --binary --submodule=diff --no-ext-diff --no-textconv --no-color");
  const auto untracked = git("ls-files --others --exclude-standard --full-name -z :/");
  if (commit.empty() || !top || !changes || !untracked) return std::nullopt;
  std::map<std::string, std::string> version = {{"git commit", commit}};
  if (!changes->empty()) version["changes of tracked files"] = fingerprint(*changes);
  for (const std::string& name : split_at_zeros(*untracked)) {
    const fs::path path = fs::path(top->substr(0, top->size() - 1)) / name;
    if (!outputs.contains(path.string())) version["untracked " + name] = fingerprint_of(path);
  }
  return version;
}

}  // namespace ttrace::cli
