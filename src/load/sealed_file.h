// Reads the run and the index of a closed trace file.
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
  std::vector<std::string_view> mappings;  // by entry, the text of its mapping, empty for none; inside the file
  std::uint64_t data_end = 0;
};

// Throws InputError for a file that is not HDF5, not ttrace's, of another version, cut or changed, and for one whose
// seal points outside the file. The HDF5 library is not used: it crashes and loops on files that are made for that.
SealedFile read_sealed_file(const std::filesystem::path& path, const MappedFile& file);

}  // namespace ttrace
