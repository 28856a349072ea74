#include "host/temporary_directory.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <system_error>

#include "base/error.h"

namespace ttrace {

TemporaryDirectory::TemporaryDirectory(const std::string& use) {
  std::error_code ignored;
  std::string made = (std::filesystem::temp_directory_path(ignored) / "ttrace-XXXXXX").string();
  if (::mkdtemp(made.data()) == nullptr) {
    throw InputError(fmt::format("{}: cannot be made; expected room for {} (TMPDIR says where)", made, use));
  }
  path_ = made;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ttrace
