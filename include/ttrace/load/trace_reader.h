// Reads traces. A trace is untrusted: no size, offset, count or name in it is believed before it is
// checked against the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ttrace/trace.h"

namespace ttrace {

// Reads the index of every rank's file and maps the files; no tensor data is touched. Ranks that are
// missing, appear twice or lack the completion mark are left for `align` to report; the entries of a
// crashed rank come from its journal. Throws InputError when the directory is missing or holds no rank
// file, or a file is not HDF5, is truncated, has another version, another run id or world size than its
// neighbours, or an index that does not fit the file.
Trace read_trace(const std::filesystem::path& directory);

// The same of one rank's file alone, `rank-00000.h5`. Throws InputError also where the file is of another rank.
Trace read_rank(const std::filesystem::path& directory, std::int32_t rank);

// True when the stored checksum is that of the bytes in the file.
bool verify_checksum(const RankTrace& rank, const Entry& entry);

}  // namespace ttrace
