#include "load/sealed_file.h"

#include <fmt/format.h>

#include <cstring>

#include "format/run_attributes.h"
#include "load/mapped_file.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";

class SealedFileReader {
 public:
  SealedFileReader(const std::filesystem::path& path, const MappedFile& file)
      : where_(path.string()), bytes_(mapped_text(file)) {}

  SealedFile read() const {
    const Seal seal = checked_seal();
    const std::optional<RunAttributes> run = attributes_from_json(table_bytes(seal, seal.run, 1, "/ttrace/run"));
    require(run.has_value(), "/ttrace/run does not parse", "expected the run's attributes as JSON");
    SealedFile sealed{*run, seal.complete == 1, {}, {}, seal.metadata.offset};
    read_entries(seal, sealed);
    return sealed;
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
    const Seal seal = read_seal(bytes_);
    require(std::string_view(seal.magic, sizeof seal.magic) == kSealMagic, "an HDF5 file, but not a trace",
            "expected one written by ttrace");
    require(seal.version == static_cast<std::uint32_t>(kTraceVersion),
            fmt::format("trace format version {}", seal.version),
            fmt::format("this ttrace reads version {}", kTraceVersion));
    const bool fits = seal.metadata.offset >= kHeaderBytes && seal.metadata.offset <= bytes_.size() &&
                      seal.metadata.bytes == bytes_.size() - seal.metadata.offset;
    const std::uint64_t end = seal.metadata.offset + seal.metadata.bytes;
    require(fits, fmt::format("{}has {} bytes", bytes_.size() < end ? "truncated: " : "", bytes_.size()),
            fmt::format("expected {}", end));
    require(seal.checksum == seal_checksum(bytes_.substr(0, kHeaderBytes), bytes_.substr(seal.metadata.offset)),
            "the metadata is damaged: its checksum differs", "expected the file as it was recorded");
    return seal;
  }

  // Returns the bytes of a table, after a check of its extent.
  std::string_view table_bytes(const Seal& seal, Extent extent, std::size_t element, std::string_view name) const {
    if (extent.bytes == 0) return {};
    const bool inside = extent.offset >= seal.metadata.offset && extent.offset <= bytes_.size() &&
                        extent.bytes <= bytes_.size() - extent.offset && extent.bytes % element == 0;
    require(inside, fmt::format("{} with {} bytes at {} does not fit", name, extent.bytes, extent.offset),
            fmt::format("expected it between {} and {}", seal.metadata.offset, bytes_.size()));
    return bytes_.substr(extent.offset, extent.bytes);
  }

  void read_entries(const Seal& seal, SealedFile& sealed) const {
    const std::string_view rows = table_bytes(seal, seal.index, sizeof(IndexRow), "/ttrace/index");
    const std::string_view text = table_bytes(seal, seal.text, 1, "/ttrace/text");
    const std::string_view shapes = table_bytes(seal, seal.shapes, sizeof(std::int64_t), "/ttrace/shapes");
    const std::size_t count = rows.size() / sizeof(IndexRow);
    sealed.entries.reserve(count);
    sealed.mappings.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      IndexRow row;
      std::memcpy(&row, rows.data() + i * sizeof row, sizeof row);
      sealed.entries.push_back(decode(row, text, shapes, i));
      sealed.mappings.push_back(text.substr(row.mapping, row.mapping_length));
    }
  }

  Entry decode(const IndexRow& row, std::string_view text, std::string_view shapes, std::size_t number) const {
    const std::uint64_t dims = shapes.size() / sizeof(std::int64_t);
    const bool inside = row.name <= text.size() && row.name_length <= text.size() - row.name &&
                        row.module <= text.size() && row.module_length <= text.size() - row.module &&
                        row.mapping <= text.size() && row.mapping_length <= text.size() - row.mapping &&
                        row.shape <= dims && row.ndim <= dims - row.shape;
    require(inside, fmt::format("tensor {} of the index: its name, shape or mapping lies outside the tables", number),
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
  return SealedFileReader(path, file).read();
}

}  // namespace ttrace
