#include "workflow/installation.h"

#include <fmt/format.h>

#include "ttrace/error.h"

namespace ttrace {

namespace fs = std::filesystem;

fs::path beside_program(const fs::path& relative) {
  const fs::path path = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / relative;
  if (!fs::exists(path)) throw InputError(fmt::format("{}: not there; expected a whole installation", path.string()));
  return path;
}

}  // namespace ttrace
