#include "load/problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/trace.h"
#include "format/format.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 1 << 16;  // of a file; a recorder's lines are at most 2,000 characters long

constexpr std::string_view kProblem = ".problem", kWarning = ".warning";

std::vector<fs::path> files_in(const fs::path& directory, std::string_view extension) {
  std::vector<fs::path> files;
  std::error_code ignored;  // the directory may not be there, or go away
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void add_lines_of(const fs::path& file, std::vector<std::string>& lines) {
  std::error_code ignored;  // the file may not be there
  if (fs::symlink_status(file, ignored).type() != fs::file_type::regular) return;
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMostBytes, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  std::istringstream whole(text);
  for (std::string line; std::getline(whole, line);) lines.push_back(printable(line));
}

void add_lines(const fs::path& directory, std::string_view extension, std::vector<std::string>& lines) {
  for (const fs::path& file : files_in(directory, extension)) add_lines_of(file, lines);
}

}  // namespace

std::vector<std::string> problems_in(const fs::path& directory) {
  std::vector<std::string> lines;
  add_lines(directory, kProblem, lines);
  return lines;
}

std::vector<std::string> warnings_in(const fs::path& directory) {
  std::vector<std::string> lines;
  add_lines(directory, kWarning, lines);
  return lines;
}

std::string job_failure_in(const fs::path& directory) {
  std::vector<std::string> lines;
  add_lines_of(directory / kJobFailureName, lines);
  return lines.empty() ? "" : lines.front();
}

void require_no_problems(const fs::path& directory) {
  const std::vector<std::string> problems = problems_in(directory);
  if (problems.empty()) return;
  throw InputError(
      fmt::format("{}: its recorder called it not whole: {}{}; expected a trace that `ttrace collect` ends "
                  "with 0 for",
                  directory.string(), problems.front(),
                  problems.size() == 1 ? "" : fmt::format(" (and {} more)", problems.size() - 1)));
}

}  // namespace ttrace
