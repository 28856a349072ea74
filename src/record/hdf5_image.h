// The HDF5 metadata of a trace file, built around tensors that already lie in the file.
#pragma once

#include <cstdint>
#include <string>

#include "format/format.h"

namespace ttrace {

// The bytes that make a valid, sealed trace file of a file that holds the tensors of `index`. `metadata` belongs at
// `metadata_offset` and ends the file. `header`, of kHeaderBytes, belongs at 0 and is written last, because only it
// makes the rest reachable.
struct Hdf5Image {
  std::string header;
  std::uint64_t metadata_offset = 0;
  std::string metadata;
};

// `data_end` is the end of the last tensor. Throws Hdf5Error; std::bad_alloc, with HDF5 untouched, where memory is short.
// The bytes depend on nothing but the arguments (and HDF5's version).
Hdf5Image build_image(const RunAttributes& run, const Index& index, std::uint64_t data_end, bool complete);

}  // namespace ttrace
