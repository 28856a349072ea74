#include "host/write_file.h"

#include <fmt/format.h>

#include <fstream>

#include "base/error.h"

namespace ttrace {

void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  write_text(stream, path, text);
}

void write_text(std::ostream& stream, const std::filesystem::path& path, std::string_view text) {
  stream << text << std::flush;
  if (!stream) throw InputError(fmt::format("{}: cannot be written; expected a file", path.string()));
}

}  // namespace ttrace
