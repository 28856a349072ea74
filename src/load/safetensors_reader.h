// Reads safetensors where they lie, as a trace of one rank that holds parameters before iteration 0.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/trace.h"
#include "format/safetensors.h"

namespace ttrace {

// True of a file of safetensors, and of a folder with `model.safetensors` or its index.
bool is_safetensors(const std::filesystem::path& source);

// Maps the files, which are untrusted as those of any trace, and reads them once, for the checksums that the entries of a
// trace have. Throws InputError, also where an index says otherwise than its files.
Trace read_safetensors(const std::filesystem::path& source, int threads = 0);

// The entry of a parameter before iteration 0, but for its checksum. `start` is where its file begins in the mapping.
Entry parameter_entry(const SafetensorsTensor& tensor, std::uint64_t start, std::uint64_t order);

}  // namespace ttrace
