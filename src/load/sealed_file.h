// Reads the run and the index of a closed trace file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"
#include "format/format.h"
#include "load/shared_by_files.h"

namespace ttrace {

// Holds what a sealed file says of itself, as it lies in the file.
struct SealedTables {
  std::string_view run, index, text, shapes;
  bool complete = false;
  std::uint64_t data_end = 0;
  std::uint64_t file_bytes = 0;
  bool taken_back = false;  // the mark of `complete`, after the job had failed
};

// The checksums of the index's rows.
std::vector<std::uint64_t> checksums_in(std::string_view index);
// The index with other checksums, of which there is one a row.
std::string with_checksums(std::string_view index, const std::vector<std::uint64_t>& checksums);

// True where the tables say the same of their tensors, but for the checksums.
bool differ_in_checksums_only(const SealedTables& a, const SealedTables& b);

// Holds what the index says.
struct DecodedIndex {
  std::vector<Entry> entries;              // not checked, without mappings
  std::vector<std::string_view> mappings;  // by entry, the text of its mapping, empty for none; inside the file
};

// Throws InputError for a file that is not HDF5, not ttrace's, of another version, cut or changed, and for one whose
// seal points outside the file. The HDF5 library is not used: it crashes and loops on files that are made for that.
SealedTables read_sealed_tables(const std::filesystem::path& path, const MappedFile& file);

// Throws InputError where the run does not parse.
RunAttributes decode_run(const SealedTables& tables, const std::filesystem::path& path);

// Throws InputError where names, shapes or mappings lie outside the tables, or rows read the same of them again.
// `mappings` are inside the tables.
DecodedIndex decode_index(const SealedTables& tables, const std::filesystem::path& path, SharedByFiles& shared);

}  // namespace ttrace
