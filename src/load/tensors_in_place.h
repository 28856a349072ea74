// Adds to what was imported the tensors that the import left where they lie.
#pragma once

#include <filesystem>

#include "base/trace.h"

namespace ttrace {

// `trace` is of one rank; `places` is what the import wrote beside it (ttrace_import/places.py). Maps the files that it
// names and reads their tensors once, for the checksums that the entries of a trace have. Throws InputError, also for a
// file that has changed since the import, and for two tensors of one name.
void add_tensors_in_place(Trace& trace, const std::filesystem::path& places, int threads = 0);

}  // namespace ttrace
