// Reads safetensors where they lie, as a trace of one rank that holds parameters before iteration 0.
#pragma once

#include <filesystem>

#include "base/trace.h"

namespace ttrace {

// True of a file of safetensors, and of a folder with `model.safetensors` or its index.
bool is_safetensors(const std::filesystem::path& source);

// Maps the files, which are untrusted as those of any trace, and reads them once, for the checksums that the entries of a
// trace have. Throws InputError, also where an index says otherwise than its files.
Trace read_safetensors(const std::filesystem::path& source, int threads = 0);

}  // namespace ttrace
