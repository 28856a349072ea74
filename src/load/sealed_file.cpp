#include "load/sealed_file.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "format/run_attributes.h"
#include "load/mapped_file.h"

namespace ttrace {
namespace {

constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";
// The names of classes may share their bytes. A tensor takes more than 256 bytes of a file beside them (400 as HDF5
// 1.10 writes it), and such a name has kMaxNameBytes at most.
constexpr std::uint64_t kMaxClassSharing = 16;

// Throws InputErrors about a file.
class Where {
 public:
  explicit Where(const std::filesystem::path& path) : path_(path.string()) {}

  void require(bool holds, std::string_view what, std::string_view expected) const {
    if (!holds) refuse(what, expected);
  }

  [[noreturn]] void refuse(std::string_view what, std::string_view expected) const {
    throw InputError(fmt::format("{}: {}; {}", path_, what, expected));
  }

 private:
  std::string path_;
};

class SealedFileReader : Where {
 public:
  SealedFileReader(const std::filesystem::path& path, const MappedFile& file)
      : Where(path), bytes_(mapped_text(file)) {}

  SealedTables read() const {
    const Seal seal = checked_seal();
    return {table_bytes(seal, seal.run, 1, "/ttrace/run"),
            table_bytes(seal, seal.index, sizeof(IndexRow), "/ttrace/index"),
            table_bytes(seal, seal.text, 1, "/ttrace/text"),
            table_bytes(seal, seal.shapes, sizeof(std::int64_t), "/ttrace/shapes"),
            seal.complete == 1,
            seal.metadata.offset,
            bytes_.size(),
            seal.complete == kTakenBack};
  }

 private:
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

  std::string_view bytes_;
};

void check_inside(const IndexRow& row, std::string_view text, std::string_view shapes, std::size_t number,
                  const Where& where) {
  const std::uint64_t dims = shapes.size() / sizeof(std::int64_t);
  const bool inside = row.name <= text.size() && row.name_length <= text.size() - row.name &&
                      row.module <= text.size() && row.module_length <= text.size() - row.module &&
                      row.mapping <= text.size() && row.mapping_length <= text.size() - row.mapping &&
                      row.shape <= dims && stored_shape_size(row.dtype, row.ndim) <= dims - row.shape;
  if (inside) return;
  where.refuse(fmt::format("tensor {} of the index: its name, shape or mapping lies outside the tables", number),
               "expected it inside");
}

// Counts how much rows have read of the tables. The writer stores every name and every shape in a place of its own:
// rows that read the same bytes again would take memory out of proportion to the file.
struct TablesRead {
  std::uint64_t names = 0, classes = 0, dims = 0;

  void add(const IndexRow& row) {
    names += row.name_length;
    classes += row.module_length;
    dims += stored_shape_size(row.dtype, row.ndim);
  }
};

void check_read(const TablesRead& read, const SealedTables& tables, std::size_t number, const Where& where) {
  const auto check = [&](std::string_view what, std::uint64_t bytes, std::uint64_t most) {
    if (bytes <= most) return;
    where.refuse(fmt::format("tensor {} of the index: with it the {} have {} bytes", number, what, bytes),
                 fmt::format("expected at most {}", most));
  };
  check("names", read.names, tables.text.size());
  check("shapes", read.dims * sizeof(std::int64_t), tables.shapes.size());
  check("names of classes", read.classes, kMaxClassSharing * tables.file_bytes);
}

std::vector<std::int64_t> numbers_in(std::string_view bytes) {
  std::vector<std::int64_t> numbers(bytes.size() / sizeof(std::int64_t));
  bytes.copy(reinterpret_cast<char*>(numbers.data()), bytes.size());
  return numbers;
}

Entry decode_row(const IndexRow& row, std::string_view text, std::string_view shapes, SharedByFiles& shared) {
  Entry entry;
  entry.id = {row.iteration,
              row.microbatch,
              row.chunk,
              static_cast<Pass>(row.pass),
              static_cast<Kind>(row.kind),
              shared.names.find(text.substr(row.name, row.name_length))};
  const std::string_view stored =
      shapes.substr(row.shape * sizeof(std::int64_t), stored_shape_size(row.dtype, row.ndim) * sizeof(std::int64_t));
  const std::size_t shape_bytes = row.ndim * sizeof(std::int64_t);
  const std::vector<std::int64_t> behind = numbers_in(stored.substr(shape_bytes));  // of a sketch
  set_shape(entry, row.dtype, shared.shapes.find(stored.substr(0, shape_bytes)), behind.data());
  entry.order = row.order;
  entry.offset = row.offset;
  entry.bytes = row.bytes;
  entry.checksum = row.checksum;
  if (row.module_length > 0) {
    entry.module_class = shared.classes.find(text.substr(row.module, row.module_length));
  }
  return entry;
}

}  // namespace

SealedTables read_sealed_tables(const std::filesystem::path& path, const MappedFile& file) {
  return SealedFileReader(path, file).read();
}

std::vector<std::uint64_t> checksums_in(std::string_view index) {
  std::vector<std::uint64_t> checksums(index.size() / sizeof(IndexRow));
  const char* from = index.data() + offsetof(IndexRow, checksum);
  for (std::uint64_t& checksum : checksums) {
    std::memcpy(&checksum, from, sizeof checksum);
    from += sizeof(IndexRow);
  }
  return checksums;
}

std::string with_checksums(std::string_view index, const std::vector<std::uint64_t>& checksums) {
  if (checksums.size() * sizeof(IndexRow) != index.size()) throw std::logic_error("an index of other checksums");
  std::string changed(index);
  char* to = changed.data() + offsetof(IndexRow, checksum);
  for (const std::uint64_t checksum : checksums) {
    std::memcpy(to, &checksum, sizeof checksum);
    to += sizeof(IndexRow);
  }
  return changed;
}

bool differ_in_checksums_only(const SealedTables& a, const SealedTables& b) {
  if (a.index.size() != b.index.size() || a.data_end != b.data_end || a.text != b.text || a.shapes != b.shapes) {
    return false;
  }
  constexpr std::size_t kBefore = offsetof(IndexRow, checksum), kBehind = kBefore + sizeof(IndexRow::checksum);
  for (std::size_t row = 0; row < a.index.size(); row += sizeof(IndexRow)) {
    const char *of_a = a.index.data() + row, *of_b = b.index.data() + row;
    if (std::memcmp(of_a, of_b, kBefore) != 0) return false;
    if (std::memcmp(of_a + kBehind, of_b + kBehind, sizeof(IndexRow) - kBehind) != 0) return false;
  }
  return true;
}

RunAttributes decode_run(const SealedTables& tables, const std::filesystem::path& path) {
  const std::optional<RunAttributes> run = attributes_from_json(tables.run);
  Where(path).require(run.has_value(), "/ttrace/run does not parse", "expected the run's attributes as JSON");
  return *run;
}

DecodedIndex decode_index(const SealedTables& tables, const std::filesystem::path& path, SharedByFiles& shared) {
  const Where where(path);
  DecodedIndex decoded;
  const std::size_t count = tables.index.size() / sizeof(IndexRow);
  TablesRead read;
  decoded.entries.reserve(count);
  decoded.mappings.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    IndexRow row;
    std::memcpy(&row, tables.index.data() + i * sizeof row, sizeof row);
    check_inside(row, tables.text, tables.shapes, i, where);
    read.add(row);
    check_read(read, tables, i, where);
    decoded.entries.push_back(decode_row(row, tables.text, tables.shapes, shared));
    decoded.mappings.push_back(tables.text.substr(row.mapping, row.mapping_length));
  }
  return decoded;
}

}  // namespace ttrace
