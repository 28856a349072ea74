// The parts of a trace file as values, shared by the writer and the reader. The grammar is at the top of
// base/trace.h.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"

namespace ttrace {

static_assert(std::endian::native == std::endian::little, "trace files are little-endian and are mapped as they are");

// The first bytes of the file: HDF5's superblock and, at kSealOffset, the seal. Tensors follow.
inline constexpr std::uint64_t kHeaderBytes = 4096;
inline constexpr std::uint64_t kDataAlignment = 64;
inline constexpr std::uint64_t kSealOffset = 64;
inline constexpr std::size_t kMaxNameBytes = 4096;
inline constexpr std::size_t kMaxAttributeBytes = 1 << 20;
inline constexpr std::int32_t kMaxWorldSize = 1'000'000;
// So many tensors may be written to one place in a file. All tensors together have at most so many times the bytes of
// the file, so that what it costs to look at each of them is in proportion to the file.
inline constexpr std::uint64_t kMaxSharing = 64;

// The root attributes, as they are stored.
struct RunAttributes {
  std::int32_t version = kTraceVersion;
  std::string run_id;
  std::int32_t world_size = 1;
  std::int32_t rank = 0;
  std::string axes, aliases, coordinates;  // JSON
  std::string compute_dtype;
  std::string provenance;    // JSON
  std::string views = "[]";  // JSON
};

// Added to the dtype of a tensor that was recorded as a sketch, by version 1 of the table of signs.
inline constexpr std::uint8_t kSketchFlag = 128;
// Added as well where the checksum of the tensor's own bytes is a fingerprint.
inline constexpr std::uint8_t kFingerprintFlag = 64;

// The numbers that /ttrace/shapes holds of a tensor: its shape and, of a sketch, the cell's edges and the checksum.
// `ndim` of them with kSketchFlag in `dtype` are 2 * ndim + 1, else `ndim`.
std::vector<std::int64_t> stored_shape(const Entry& entry);
std::uint8_t stored_dtype(const Entry& entry);
std::size_t stored_shape_size(std::uint8_t dtype, std::uint8_t ndim);
// Sets `dtype`, `shape` and `sketch` from what is stored: the shape, and what is behind it, whose size is right.
void set_shape(Entry& entry, std::uint8_t dtype, SharedValue<Shape> shape, const std::int64_t* behind);

// One row of /ttrace/index.
struct IndexRow {
  std::int32_t iteration, microbatch, chunk;
  std::uint8_t pass, kind, dtype, ndim;
  std::uint64_t order, offset, bytes, checksum;
  std::uint64_t name, module, mapping,
      shape;  // positions: the first three in the text table, `shape` in that of shapes
  std::uint32_t name_length, module_length, mapping_length;
  std::uint32_t unused;  // 0
};
static_assert(sizeof(IndexRow) == 96, "stored as it is");

// The tables /ttrace/index, /ttrace/text and /ttrace/shapes.
struct Index {
  std::vector<IndexRow> rows;
  std::string text;
  std::vector<std::int64_t> shapes;

  std::string_view name_of(const IndexRow& row) const {
    return std::string_view(text).substr(row.name, row.name_length);
  }
};

// A range of bytes in the file; offset 0 where it is empty.
struct Extent {
  std::uint64_t offset, bytes;
};

// The part of the header that is ttrace's own, not HDF5's. It shows that nobody cut or changed the file's metadata
// since the file was closed, and leads a reader to the index without HDF5, which is not made for hostile files.
struct Seal {
  char magic[8];
  std::uint32_t version;            // of the trace; stays at this place in later versions
  std::uint32_t complete;           // 1 or 0, as the attribute; kTakenBack where that was 1, and the job failed then
  Extent metadata;                  // reaches to the end of the file; the other extents lie in it
  Extent run, index, text, shapes;  // the data of the datasets in /ttrace
  std::uint64_t checksum;           // XXH3-64 of the header with this field 0, then (that as seed) of the metadata
};
static_assert(sizeof(Seal) == 104, "stored as it is");
inline constexpr std::string_view kSealMagic = "TTRACE\r\n";

inline constexpr std::uint32_t kTakenBack = 2;

// The file beside the ranks' that says in one line how their job failed, after what it was to record was recorded.
inline constexpr std::string_view kJobFailureName = "job.failure";

Seal read_seal(std::string_view header);  // `header` has kHeaderBytes
std::uint64_t seal_checksum(std::string_view header, std::string_view metadata);
void put_seal(std::string& header, Seal seal, std::string_view metadata);  // sets the checksum

std::string rank_file_name(std::int32_t rank);     // "rank-00003.h5"
std::string journal_file_name(std::int32_t rank);  // "rank-00003.journal"

// Says why `name` can't be a tensor's name; empty where it can.
std::string_view objection_to_name(std::string_view name);
bool is_utf8(std::string_view text);

}  // namespace ttrace
