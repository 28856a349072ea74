#include "host/installation.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/error.h"

namespace ttrace {

namespace fs = std::filesystem;

namespace {

fs::path& installation() {
  static fs::path directory;  // empty: the program's own
  return directory;
}

}  // namespace

void set_installation(const fs::path& directory) { installation() = directory; }

fs::path beside_program(const fs::path& relative) {
  const fs::path root =
      installation().empty() ? fs::read_symlink("/proc/self/exe").parent_path().parent_path() : installation();
  const fs::path path = root / relative;
  if (!fs::exists(path)) throw InputError(fmt::format("{}: not there; expected a whole installation", path.string()));
  return path;
}

std::string python_path_with(const fs::path& directory) {
  const char* theirs = std::getenv("PYTHONPATH");
  const bool is_set = theirs != nullptr && *theirs != '\0';
  return fmt::format("PYTHONPATH={}{}{}", directory.string(), is_set ? ":" : "", is_set ? theirs : "");
}

std::vector<std::string> run_python_module(const std::string& python, std::string_view module) {
  constexpr std::string_view kRun =
      "import sys; sys.path[:1] == [''] and sys.path.pop(0); import runpy; "
      "runpy.run_module('{}', run_name='__main__', alter_sys=True)";
  return {python, "-c", fmt::format(kRun, module)};
}

}  // namespace ttrace
