// What a closed trace file says of itself: the run and the index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "format/format.h"
#include "ttrace/trace.h"

namespace ttrace {

struct SealedFile {
  RunAttributes run;
  bool complete = false;
  std::vector<Entry> entries;              // decoded, not checked, without mappings
  std::vector<std::string_view> mappings;  // the text of each entry's, empty for none; inside the file
  std::uint64_t data_end = 0;
};

// Throws InputError for a file that is not HDF5, not ttrace's, of another version, cut, changed, or whose
// seal leads nowhere. HDF5 itself is not asked: it crashes and loops on files that are made to do so.
SealedFile read_sealed_file(const std::filesystem::path& path, const MappedFile& file);

}  // namespace ttrace
