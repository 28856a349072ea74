// Takes the completion mark back from a rank's file.
#pragma once

#include <filesystem>

namespace ttrace {

// Sets the attribute `complete` of a closed rank file to 0 and seals the file again: the rank's job failed
// after its recording was complete, which the seal goes on to say. Returns false for a file without the mark, or one
// that was never closed, which is left as it is. Throws InputError where the file cannot be read or written.
bool take_back_completion_mark(const std::filesystem::path& rank_file);

}  // namespace ttrace
