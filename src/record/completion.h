// Removes the completion mark from a rank's file.
#pragma once

#include <filesystem>

namespace ttrace {

// Sets the attribute `complete` of a closed rank file to 0 and seals the file again: the rank's job failed
// after its recording was complete. A file without the mark, or one that was never closed, is left as it
// is. Throws InputError where the file cannot be read or written.
void remove_completion_mark(const std::filesystem::path& rank_file);

}  // namespace ttrace
