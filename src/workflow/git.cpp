#include "workflow/git.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "host/shell_words.h"
#include "workflow/fingerprint.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPathsAtOnce = 64;  // in one command line

// Returns what `git ARGUMENTS` prints in the directory; nothing where it fails.
std::optional<std::string> git(const fs::path& directory, const std::string& arguments) {
  const std::string command = fmt::format("git -C {} {} 2>/dev/null", shell_word(directory.string()), arguments);
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 16);
  for (std::size_t read = 0; (read = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), read);
  }
  if (pclose(pipe) != 0) return std::nullopt;
  return text;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// True for what ttrace wrote, whatever its name: a report, tolerances, a draft of annotations or of a correspondence.
bool is_written_by_ttrace(const fs::path& file) {
  std::string start(48, '\0');
  std::ifstream(file).read(start.data(), static_cast<std::streamsize>(start.size()));
  constexpr std::array<std::string_view, 3> kBeginnings = {"\"schema\": \"ttrace-", "# Drafted by `ttrace annotate",
                                                           "# What each tensor may differ by in `ttrace"};
  return std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [&](std::string_view text) { return start.find(text) != std::string::npos; });
}

// False for what an untracked file usually is: a report, a log, a note, a checkpoint, data.
bool may_be_code(const fs::path& path) {
  const std::string suffix = path.extension().string();
  if (suffix == ".json" || suffix == ".yaml" || suffix == ".yml") return !is_written_by_ttrace(path);
  constexpr std::array<std::string_view, 13> kSuffixes = {".py", ".pyi", ".pyx", ".so",  ".c",    ".cc", ".cpp",
                                                          ".h",  ".hpp", ".cu",  ".cuh", ".toml", ".cfg"};
  return std::find(kSuffixes.begin(), kSuffixes.end(), suffix) != kSuffixes.end();
}

using Files = std::map<std::string, std::string>;

// Parses what ls-tree says of HEAD: `mode type id TAB path` for each file.
Files parse_listing(const std::string& listing) {
  Files files;
  for (const std::string& line : split(listing, '\0')) {
    const std::size_t tab = line.find('\t');
    const std::size_t space = line.rfind(' ', tab);
    files.emplace(line.substr(tab + 1), line.substr(space + 1, tab - space - 1));
  }
  return files;
}

void add_ids(const fs::path& top, const std::vector<std::string>& paths, Files& files) {
  for (std::size_t begin = 0; begin < paths.size(); begin += kPathsAtOnce) {
    const std::size_t end = std::min(begin + kPathsAtOnce, paths.size());
    std::string command = "hash-object --";
    for (std::size_t i = begin; i < end; ++i) command += " " + shell_word(paths[i]);
    const std::vector<std::string> ids = split(git(top, command).value_or(""), '\n');
    if (ids.size() != end - begin) {
      throw InputError(fmt::format("{}: git cannot read all of its files, such as {}; expected readable ones",
                                   top.string(), paths[begin]));
    }
    for (std::size_t i = begin; i < end; ++i) files[paths[i]] = ids[i - begin];
  }
}

// Adds the files that differ from HEAD or that it lacks, and removes those that were deleted.
void add_changes(const fs::path& top, const std::vector<std::string>& changed, Files& files) {
  std::vector<std::string> regular;
  for (const std::string& path : changed) {
    const fs::path file = top / path;
    if (fs::is_directory(file)) {
      const auto changes =
          git(top, "diff HEAD --submodule=diff --no-ext-diff --no-textconv --no-color -- " + shell_word(path));
      files[path] = fingerprint(changes.value_or(""));
    } else if (fs::exists(file)) {
      regular.push_back(path);
    } else {
      files.erase(path);
    }
  }
  add_ids(top, regular, files);
}

}  // namespace

std::string Repository::commit() const {
  const std::string text = git(directory_, "rev-parse HEAD").value_or("");
  return text.substr(0, text.find('\n'));
}

std::optional<fs::path> Repository::top() const {
  const auto line = git(directory_, "rev-parse --show-toplevel");
  if (!line || line->size() <= 1) return std::nullopt;
  return line->substr(0, line->size() - 1);
}

std::optional<Files> Repository::files(const std::set<fs::path>& left_out) const {
  const auto top = this->top();
  const auto listing = git(directory_, "ls-tree -r -z --full-tree HEAD");
  const auto changed = git(directory_, "diff HEAD --name-only --no-renames -z");
  const auto untracked = git(directory_, "ls-files --others --exclude-standard --full-name -z :/");
  if (!top || !listing || !changed || !untracked) return std::nullopt;
  Files files = parse_listing(*listing);
  std::vector<std::string> differing = split(*changed, '\0');
  for (std::string& path : split(*untracked, '\0')) {
    if (may_be_code(*top / path)) differing.push_back(std::move(path));
  }
  std::erase_if(differing, [&](const std::string& path) { return left_out.contains(*top / path); });
  add_changes(*top, differing, files);
  std::erase_if(files, [&](const auto& item) { return left_out.contains(*top / item.first); });
  return files;
}

}  // namespace ttrace
