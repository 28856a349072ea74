#include "workflow/software.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "ttrace/error.h"
#include "ttrace/load/trace_reader.h"
#include "workflow/fingerprint.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// The directory of the program, as a shell finds it; empty: there is none.
fs::path directory_of(const std::string& program) {
  std::error_code ignored;
  if (program.find('/') != program.npos) return fs::exists(program, ignored) ? fs::path(program).parent_path() : "";
  const char* path = std::getenv("PATH");
  std::istringstream directories(path != nullptr ? path : "");
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (!directory.empty() && fs::exists(fs::path(directory) / program, ignored)) return directory;
  }
  return "";
}

// torch/version.py of the environment whose bin/ this is, or empty.
fs::path version_file(const fs::path& bin) {
  std::error_code ignored;
  for (const auto& python : fs::directory_iterator(bin.parent_path() / "lib", ignored)) {
    if (!python.path().filename().string().starts_with("python")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      fs::path file = python.path() / packages / "torch" / "version.py";
      if (fs::exists(file, ignored)) return file;
    }
  }
  return {};
}

// `__version__ = '2.13.0+cpu'`
std::string version_in(const fs::path& file) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t begin = line.find('\'');
    const std::size_t end = line.find('\'', begin + 1);
    if (line.starts_with("__version__") && end != line.npos) return line.substr(begin + 1, end - begin - 1);
  }
  return fingerprint_of(file);
}

}  // namespace

std::map<std::string, std::string> torch_versions(const std::vector<std::string>& command) {
  std::map<std::string, std::string> versions;
  std::set<fs::path> seen;
  for (const std::string& text : command) {
    std::istringstream words(text);  // a line for a shell holds several
    for (std::string word; words >> word;) {
      const fs::path bin = directory_of(word);
      const fs::path file = bin.empty() ? fs::path() : version_file(bin);
      if (!file.empty() && seen.insert(file).second) versions.emplace("torch of " + word, version_in(file));
    }
  }
  return versions;
}

void require_same_software(const fs::path& reference, const fs::path& candidate) {
  const Provenance ours = read_trace(candidate).provenance, theirs = read_trace(reference).provenance;
  const auto require_same = [&](std::string_view what, const std::string& value, const std::string& other) {
    if (value.empty() || other.empty() || value == other) return;
    throw InputError(
        fmt::format("{}: stale: it ran on {} \"{}\", the candidate on \"{}\"; expected the same (rm -r {} makes the "
                    "next run collect it again)",
                    reference.string(), what, printable(other), printable(value), reference.parent_path().string()));
  };
  require_same("python", ours.python, theirs.python);
  require_same("torch", ours.torch, theirs.torch);
}

}  // namespace ttrace
