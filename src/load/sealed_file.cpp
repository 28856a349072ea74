#include "load/sealed_file.h"

#include <fmt/format.h>

#include <cstring>

#include "load/mapped_file.h"
#include "record/hdf5.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";

class Reader {
 public:
  Reader(const std::filesystem::path& path, const MappedFile& file) : where_(path.string()), bytes_(text_of(file)) {}

  SealedFile read() {
    const Seal seal = checked_seal();
    // What HDF5 cannot make sense of it may be unable to let go of, and says so at exit. Nothing is left to write.
    H5dont_atexit();
    const SilentHdf5 silent;
    SealedFile result;
    result.data_end = seal.metadata_offset;
    try {
      const Handle file = open();
      result.run = read_attributes(file);
      result.complete = H5Aexists(file, "complete") > 0 && read_number(file, "complete") == 1;
      result.entries = read_entries(file);
    } catch (const Hdf5Error& error) {
      fail(error.what(), "expected the metadata of a trace");
    }
    return result;
  }

 private:
  [[noreturn]] void fail(std::string_view what, std::string_view expected) const {
    throw InputError(fmt::format("{}: {}; {}", where_, what, expected));
  }

  void require(bool holds, std::string_view what, std::string_view expected) const {
    if (!holds) fail(what, expected);
  }

  Seal checked_seal() const {
    require(bytes_.substr(0, kHdf5Signature.size()) == kHdf5Signature, "not an HDF5 file",
            "expected one written by ttrace");
    require(bytes_.size() >= kHeaderBytes, fmt::format("truncated to {} bytes", bytes_.size()),
            "expected the file as it was recorded");
    Seal seal;
    std::memcpy(&seal, bytes_.data() + kSealOffset, sizeof seal);
    require(std::string_view(seal.magic, sizeof seal.magic) == kSealMagic, "an HDF5 file, but not a trace",
            "expected one written by ttrace");
    require(seal.version == static_cast<std::uint32_t>(kTraceVersion),
            fmt::format("trace format version {}", seal.version),
            fmt::format("this ttrace reads version {}", kTraceVersion));
    const bool fits = seal.metadata_offset >= kHeaderBytes && seal.metadata_offset <= bytes_.size() &&
                      seal.metadata_bytes == bytes_.size() - seal.metadata_offset;
    const std::uint64_t end = seal.metadata_offset + seal.metadata_bytes;
    require(fits, fmt::format("{}has {} bytes", bytes_.size() < end ? "truncated: " : "", bytes_.size()),
            fmt::format("expected {}", end));
    require(seal.checksum == seal_checksum(bytes_.substr(0, kHeaderBytes), bytes_.substr(seal.metadata_offset)),
            "the metadata is damaged: its checksum differs", "expected the file as it was recorded");
    return seal;
  }

  Handle open() const {
    const Handle access(H5Pcreate(H5P_FILE_ACCESS), "creating properties");
#if H5_VERSION_GE(1, 10, 7)
    // Some network file systems know no locks, and nobody writes this file any more.
    hdf5_check(H5Pset_file_locking(access, false, true), "creating properties");
#endif
    return Handle(H5Fopen(where_.c_str(), H5F_ACC_RDONLY, access), "opening the file");
  }

  std::int32_t read_number(hid_t file, const char* name) const {
    const Handle attribute(H5Aopen(file, name, H5P_DEFAULT), fmt::format("attribute {}", name));
    const Handle type(H5Aget_type(attribute), name);
    const Handle space(H5Aget_space(attribute), name);
    require(H5Tget_class(type) == H5T_INTEGER && H5Sget_simple_extent_type(space) == H5S_SCALAR,
            fmt::format("attribute {} is malformed", name), "expected an integer");
    std::int32_t value = 0;
    hdf5_check(H5Aread(attribute, H5T_NATIVE_INT32, &value), fmt::format("attribute {}", name));
    return value;
  }

  std::string read_text(hid_t file, const char* name) const {
    const Handle attribute(H5Aopen(file, name, H5P_DEFAULT), fmt::format("attribute {}", name));
    const Handle type(H5Aget_type(attribute), name);
    const Handle space(H5Aget_space(attribute), name);
    const bool is_text = H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0;
    const std::size_t bytes = is_text ? H5Tget_size(type) : 0;
    require(bytes >= 1 && bytes <= kMaxAttributeBytes && H5Sget_simple_extent_type(space) == H5S_SCALAR,
            fmt::format("attribute {} is malformed", name), "expected a string of fixed length");
    std::string text(bytes, '\0');
    hdf5_check(H5Aread(attribute, hdf5_string_type(bytes), text.data()), fmt::format("attribute {}", name));
    text.resize(text.find_last_not_of('\0') + 1);
    return text;
  }

  RunAttributes read_attributes(hid_t file) const {
    return {read_number(file, "ttrace_version"), read_text(file, "run_id"),        read_number(file, "world_size"),
            read_number(file, "rank"),           read_text(file, "axes"),          read_text(file, "aliases"),
            read_text(file, "coordinates"),      read_text(file, "compute_dtype"), read_text(file, "provenance")};
  }

  // The bytes of a one-dimensional dataset of `type`, in the mapping: no read through HDF5 is needed.
  std::string_view table(hid_t file, const char* path, hid_t type, std::size_t element) const {
    const Handle dataset(H5Dopen2(file, path, H5P_DEFAULT), path);
    const Handle stored_type(H5Dget_type(dataset), path);
    const Handle space(H5Dget_space(dataset), path);
    require(H5Tequal(stored_type, type) > 0 && H5Sget_simple_extent_ndims(space) == 1,
            fmt::format("{} has another type than a trace's", path), "expected it as ttrace wrote it");
    const auto count = static_cast<std::uint64_t>(H5Sget_simple_extent_npoints(space));
    if (count == 0) return {};
    const haddr_t offset = H5Dget_offset(dataset);
    const bool inside = offset != HADDR_UNDEF && offset <= bytes_.size() && count <= (bytes_.size() - offset) / element;
    require(inside, fmt::format("{} with {} elements lies outside the file", path, count), "expected it inside");
    return bytes_.substr(offset, count * element);
  }

  std::vector<Entry> read_entries(hid_t file) const {
    const std::string_view rows = table(file, "/ttrace/index", hdf5_index_type(), sizeof(IndexRow));
    const std::string_view text = table(file, "/ttrace/text", H5T_STD_U8LE, 1);
    const std::string_view shapes = table(file, "/ttrace/shapes", H5T_STD_I64LE, sizeof(std::int64_t));
    std::vector<Entry> entries(rows.size() / sizeof(IndexRow));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      IndexRow row;
      std::memcpy(&row, rows.data() + i * sizeof row, sizeof row);
      entries[i] = decode(row, text, shapes, i);
    }
    return entries;
  }

  Entry decode(const IndexRow& row, std::string_view text, std::string_view shapes, std::size_t number) const {
    const std::uint64_t dims = shapes.size() / sizeof(std::int64_t);
    const bool inside = row.name <= text.size() && row.name_length <= text.size() - row.name &&
                        row.module <= text.size() && row.module_length <= text.size() - row.module &&
                        row.shape <= dims && row.ndim <= dims - row.shape;
    require(inside, fmt::format("tensor {} of the index: its name or shape lies outside the tables", number),
            "expected it inside");
    Entry entry;
    entry.id = {row.iteration,
                row.microbatch,
                row.chunk,
                static_cast<Pass>(row.pass),
                static_cast<Kind>(row.kind),
                std::string(text.substr(row.name, row.name_length))};
    entry.dtype = static_cast<Dtype>(row.dtype);
    entry.shape.resize(row.ndim);
    const std::string_view sizes = shapes.substr(row.shape * sizeof(std::int64_t), row.ndim * sizeof(std::int64_t));
    sizes.copy(reinterpret_cast<char*>(entry.shape.data()), sizes.size());
    entry.order = row.order;
    entry.offset = row.offset;
    entry.bytes = row.bytes;
    entry.checksum = row.checksum;
    entry.module_class = text.substr(row.module, row.module_length);
    return entry;
  }

  std::string where_;
  std::string_view bytes_;
};

}  // namespace

SealedFile read_sealed_file(const std::filesystem::path& path, const MappedFile& file) {
  return Reader(path, file).read();
}

}  // namespace ttrace
