// An HDF5 file driver that keeps metadata in memory and puts datasets where tensors already lie.
//
// HDF5 has no call that says "a dataset starts at this offset"; it asks its file driver for space. This
// driver answers with the address that was announced for the next dataset. Everything else gets space after
// the tensors, in memory. So HDF5 never touches the disk: it can't fail halfway for lack of space, and a
// file that it failed to close is only memory.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ttrace {

struct MemoryFile {
  std::string header;    // addresses [0, header.size()); its size is fixed
  std::string metadata;  // addresses [metadata_offset, metadata_offset + metadata.size())
  std::uint64_t metadata_offset = 0;
  std::uint64_t end = 0;                      // of the allocated space; HDF5 takes 0 as "a new file"
  std::uint64_t alignment = 1;                // of datasets for which no address was announced
  std::optional<std::uint64_t> next_dataset;  // the announced address; the next allocation of raw data takes it
};

// An identifier of the registered driver class; the caller unregisters it with H5FDunregister.
hid_t register_memory_driver();

// Makes `access` (a file access property list) open `file`, whatever the file's name. `file` must live
// until it is open; from then on HDF5 shares it, because a file that HDF5 could not close lives on until
// the process exits.
herr_t use_memory_driver(hid_t access, hid_t driver, const std::shared_ptr<MemoryFile>& file);

}  // namespace ttrace
