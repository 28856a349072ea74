// One rank's file, read and checked; and traces made of such files, whichever process has read them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ttrace/run_description.h"
#include "ttrace/trace.h"

namespace ttrace {

struct RankFile {
  RunDescription run;
  RankTrace rank;
};

// Lists the rank files, sorted. The number in a file's name is not read: a copy under another name counts as a
// duplicate rank. Throws InputError where there is none.
std::vector<std::filesystem::path> list_rank_files(const std::filesystem::path& directory);

// Reads what a rank had recorded when it died from its journal. Throws InputError as `read_trace`.
RankFile read_rank_file(const std::filesystem::path& path);

// Sorts by rank. Throws InputError where the files, of which there is at least one, are not of one run.
Trace make_trace(const std::filesystem::path& directory, std::vector<RankFile> files);

// Reads and checks a rank's file, which is mapped, and packs what it says of itself: what another process makes the
// same RankFile of. That one maps the file, and looks at no byte of it; it throws InputError where it sees another file
// under that path.
std::string pack_rank_file(const std::filesystem::path& path, const std::shared_ptr<const MappedFile>& file);
RankFile unpack_rank_file(const std::filesystem::path& path, std::string_view packed);

}  // namespace ttrace
