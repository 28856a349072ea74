// One rank's file, read and checked; and traces made of such files, whichever process has read them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/run_description.h"
#include "base/trace.h"
#include "load/sealed_file.h"
#include "load/shared_by_files.h"

namespace ttrace {

struct RankFile {
  RunDescription run;
  RankTrace rank;
};

// Lists the rank files, sorted. The number in a file's name is not read: a copy under another name counts as a
// duplicate rank. Throws InputError where there is none.
std::vector<std::filesystem::path> list_rank_files(const std::filesystem::path& directory);

// Reads what a rank had recorded when it died from its journal. Throws InputError as `read_trace`.
RankFile read_rank_file(const std::filesystem::path& path, SharedByFiles& shared);

// Sorts by rank. Throws InputError where the files, of which there is at least one, are not of one run.
Trace make_trace(const std::filesystem::path& directory, std::vector<RankFile> files);

// Holds what a rank's file, or else its journal, says of itself: what one process sends to another.
struct RankTables {
  std::shared_ptr<const MappedFile> file, journal_file;
  SealedTables sealed;       // of a file that was closed
  std::string_view journal;  // of another: the journal's text
};

// Reads and checks a rank's file, which is mapped.
RankTables check_rank_file(const std::filesystem::path& path, const std::shared_ptr<const MappedFile>& file,
                           SharedByFiles& shared);

// Packs the tables of some files. Of one that differs from another in checksums only, these are packed.
std::string pack_rank_files(const std::vector<RankTables>& files);

// Holds what another process has packed of a file. The tables lie in its message, but for an index that was made anew.
struct PackedFile {
  std::string version;
  RankTables tables;  // without the files
  std::string index;
};
std::vector<PackedFile> unpack_rank_files(std::string_view packed);

// Returns what `read_rank_file` makes of a file that another process has packed. Maps the file, and looks at no byte of
// it; throws InputError where this process sees another file under that path.
RankFile decode_packed_file(const std::filesystem::path& path, const PackedFile& packed, SharedByFiles& shared);

// Threads that read files, and what the files that each has read share.
class FileThreads {
 public:
  explicit FileThreads(int threads);  // as in `parallel_for`

  // Calls `body` for the numbers 0 to `count` - 1; throws as `parallel_for`.
  void for_each(std::size_t count, const std::function<void(std::size_t, SharedByFiles&)>& body);

 private:
  std::vector<SharedByFiles> shared_;  // by thread
};

}  // namespace ttrace
