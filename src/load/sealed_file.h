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

// What a sealed file says of itself, as it lies in the file.
struct SealedTables {
  std::string_view run, index, text, shapes;
  bool complete = false;
  std::uint64_t data_end = 0;
  std::uint64_t file_bytes = 0;
};

struct SealedFile {
  RunAttributes run;
  bool complete = false;
  std::vector<Entry> entries;              // decoded, not checked, without mappings
  std::vector<std::string_view> mappings;  // by entry, the text of its mapping, empty for none; inside the file
  std::uint64_t data_end = 0;
};

// Throws InputError for a file that is not HDF5, not ttrace's, of another version, cut or changed, and for one whose
// seal points outside the file. The HDF5 library is not used: it crashes and loops on files that are made for that.
SealedTables read_sealed_tables(const std::filesystem::path& path, const MappedFile& file);

// Throws InputError where names, shapes or mappings lie outside the tables, or rows read the same of them again.
// `mappings` are inside the tables.
SealedFile decode(const SealedTables& tables, const std::filesystem::path& path);

}  // namespace ttrace
