// What a closed trace file says of itself: its attributes and its index, by way of HDF5.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "record/format.h"
#include "ttrace/trace.h"

namespace ttrace {

struct SealedFile {
  RunAttributes run;
  bool complete = false;
  std::vector<Entry> entries;  // decoded, not checked
  std::uint64_t data_end = 0;
};

// Throws InputError for a file that is not HDF5, not ttrace's, of another version, cut, changed, or
// without the attributes and tables of a trace. The seal is checked before HDF5 sees the file: HDF5 is
// not made for damaged ones.
SealedFile read_sealed_file(const std::filesystem::path& path, const MappedFile& file);

}  // namespace ttrace
