// Reads traces. A trace is untrusted: no size, offset, count or name in it is believed before it is
// checked against the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/trace.h"

namespace ttrace {

// Reads the index of every rank's file and maps the files; no tensor data is touched. Ranks that are missing, appear
// twice or lack the completion mark are left for `align` to report; the entries of a crashed rank come from its
// journal. Throws InputError when the directory is missing or holds no rank file, and for a file that is not HDF5, is
// truncated, has another version, belongs to another run than its neighbours, or has an index that does not fit it; and
// for a trace that its recorder called not whole (load/problems.h).
// `threads`: 0 is OpenMP's default; the trace, or the error, is the same for any number.
Trace read_trace(const std::filesystem::path& directory, int threads = 0);

// Reads also a trace that its recorder called not whole: to look at what is there, not to judge it.
Trace read_trace_as_it_is(const std::filesystem::path& directory, int threads = 0);

// Returns the directories of the traces of a run that was collected with --split, `iteration-000000` and so on, by
// iteration; none where `directory` has none, or is not there.
std::map<std::int32_t, std::filesystem::path> list_iterations(const std::filesystem::path& directory);

// The directory that the trace of one iteration has.
std::filesystem::path iteration_in(const std::filesystem::path& directory, std::int32_t iteration);

// Reads one rank's file alone, `rank-00000.h5`. Throws InputError also where the file is of another rank.
Trace read_rank(const std::filesystem::path& directory, std::int32_t rank);

// True when the stored checksum is that of the bytes in the file.
bool verify_checksum(const RankTrace& rank, const Entry& entry);

// Returns a digest of what the trace holds, 16 hexadecimal digits: of each rank's index with its checksums, in order of
// execution. The tensors themselves are not read. XXH3-64 over a line for each tensor:
// `rank iteration microbatch chunk pass kind dtype [shape] checksum name`, numbers in decimal.
std::string digest_of(const Trace& trace);

}  // namespace ttrace
