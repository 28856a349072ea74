#include "record/memory_driver.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace ttrace {
namespace {

// Holds what HDF5 hands to `open_file`, which reads it and keeps nothing of it.
struct DriverInfo {
  const std::shared_ptr<MemoryFile>* file;
};

// HDF5's part comes first, as its driver interface requires.
struct OpenFile {
  H5FD_t base;
  std::shared_ptr<MemoryFile> file;
};

MemoryFile& memory_of(const H5FD_t* base) { return *reinterpret_cast<const OpenFile*>(base)->file; }

H5FD_t* open_file(const char*, unsigned, hid_t access, haddr_t) {
  const auto* info = static_cast<const DriverInfo*>(H5Pget_driver_info(access));
  if (info == nullptr) return nullptr;
  auto* open = new (std::nothrow) OpenFile{};
  if (open == nullptr) return nullptr;
  open->file = *info->file;
  return &open->base;
}

herr_t close_file(H5FD_t* base) {
  delete reinterpret_cast<OpenFile*>(base);
  return 0;
}

int compare_files(const H5FD_t* a, const H5FD_t* b) {
  return &memory_of(a) == &memory_of(b) ? 0 : &memory_of(a) < &memory_of(b) ? -1 : 1;
}

herr_t query_features(const H5FD_t*, unsigned long* flags) {
  *flags = 0;  // aggregation would put metadata behind the superblock, where tensors lie
  return 0;
}

haddr_t allocate(H5FD_t* base, H5FD_mem_t type, hid_t, hsize_t size) {
  MemoryFile& file = memory_of(base);
  if (type == H5FD_MEM_SUPER) {  // once per file, before all else, and it must lie at 0
    file.end = file.metadata_offset;
    return 0;
  }
  if (type == H5FD_MEM_DRAW && file.next_dataset) {
    const haddr_t address = *file.next_dataset;
    file.next_dataset.reset();
    return address;
  }
  if (type == H5FD_MEM_DRAW) file.end = (file.end + file.alignment - 1) / file.alignment * file.alignment;
  const haddr_t address = file.end;
  file.end += size;
  return address;
}

haddr_t get_end(const H5FD_t* base, H5FD_mem_t) { return memory_of(base).end; }

// HDF5 gives back unused space at the end, but never what lies before the metadata.
herr_t set_end(H5FD_t* base, H5FD_mem_t, haddr_t end) {
  MemoryFile& file = memory_of(base);
  if (file.end > 0) file.end = std::max<std::uint64_t>(end, file.metadata_offset);
  return 0;
}

// The bytes at [address, address + size), or null where there is neither header nor metadata.
char* bytes_at(MemoryFile& file, haddr_t address, std::size_t size) {
  if (size <= file.header.size() && address <= file.header.size() - size) return file.header.data() + address;
  if (address < file.metadata_offset || address > file.end || size > file.end - address) return nullptr;
  const std::uint64_t offset = address - file.metadata_offset;
  if (file.metadata.size() < offset + size) file.metadata.resize(offset + size);
  return file.metadata.data() + offset;
}

herr_t read_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, std::size_t size, void* buffer) try {
  const char* bytes = bytes_at(memory_of(base), address, size);
  if (bytes == nullptr) return -1;
  std::memcpy(buffer, bytes, size);
  return 0;
} catch (const std::bad_alloc&) {
  return -1;  // an exception must not pass through HDF5
}

herr_t write_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, std::size_t size, const void* buffer) try {
  char* bytes = bytes_at(memory_of(base), address, size);
  if (bytes == nullptr) return -1;
  std::memcpy(bytes, buffer, size);
  return 0;
} catch (const std::bad_alloc&) {
  return -1;
}

}  // namespace

hid_t register_memory_driver() {
  static const H5FD_class_t driver = [] {
    constexpr H5FD_mem_t kMap[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;  // raw data apart from metadata
    H5FD_class_t fields{};
#ifdef H5FD_CLASS_VERSION
    fields.version = H5FD_CLASS_VERSION;                  // since HDF5 1.14
    fields.value = static_cast<H5FD_class_value_t>(510);  // any of the range for unregistered drivers
#endif
    fields.name = "ttrace_memory";
    fields.maxaddr = HADDR_MAX >> 1;
    fields.fc_degree = H5F_CLOSE_STRONG;
    fields.fapl_size = sizeof(DriverInfo);
    fields.open = open_file;
    fields.close = close_file;
    fields.cmp = compare_files;
    fields.query = query_features;
    fields.alloc = allocate;
    fields.get_eoa = get_end;
    fields.set_eoa = set_end;
    fields.get_eof = get_end;
    fields.read = read_bytes;
    fields.write = write_bytes;
    std::copy(std::begin(kMap), std::end(kMap), fields.fl_map);
    return fields;
  }();
  return H5FDregister(&driver);
}

herr_t use_memory_driver(hid_t access, hid_t driver, const std::shared_ptr<MemoryFile>& file) {
  const DriverInfo info{&file};
  return H5Pset_driver(access, driver, &info);
}

}  // namespace ttrace
