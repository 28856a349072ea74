#include "host/write_file.h"

#include "host/replaced_file.h"

namespace ttrace {

void write_file(const std::filesystem::path& path, std::string_view text) {
  ReplacedFile file(path);
  file.write(text);
  file.finish();
}

}  // namespace ttrace
