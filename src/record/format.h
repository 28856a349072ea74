// The parts of a trace file as values, shared by the writer and the reader. The grammar is at the top of
// ttrace/trace.h.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ttrace/trace.h"

namespace ttrace {

static_assert(std::endian::native == std::endian::little, "trace files are little-endian and are mapped as they are");

// The first bytes of the file: HDF5's superblock and, at kSealOffset, the seal. Tensors follow.
inline constexpr std::uint64_t kHeaderBytes = 4096;
inline constexpr std::uint64_t kDataAlignment = 64;
inline constexpr std::uint64_t kSealOffset = 64;
inline constexpr std::size_t kMaxNameBytes = 4096;
inline constexpr std::size_t kMaxAttributeBytes = 60'000;  // HDF5 keeps an attribute in 64 KiB, with its header
inline constexpr std::int32_t kMaxWorldSize = 1'000'000;

// The root attributes, as they are stored.
struct RunAttributes {
  std::int32_t version = kTraceVersion;
  std::string run_id;
  std::int32_t world_size = 1;
  std::int32_t rank = 0;
  std::string axes, aliases, coordinates;  // JSON
  std::string compute_dtype;
  std::string provenance;  // JSON
};

// One row of /ttrace/index.
struct IndexRow {
  std::int32_t iteration, microbatch, chunk;
  std::uint8_t pass, kind, dtype, ndim;
  std::uint64_t order, offset, bytes, checksum;
  std::uint64_t name, module, shape;  // positions in the text table, the text table, the shape table
  std::uint32_t name_length, module_length;
};
static_assert(sizeof(IndexRow) == 80, "stored as it is");

// /ttrace/index, /ttrace/text, /ttrace/shapes.
struct Index {
  std::vector<IndexRow> rows;
  std::string text;
  std::vector<std::int64_t> shapes;

  std::string_view name_of(const IndexRow& row) const {
    return std::string_view(text).substr(row.name, row.name_length);
  }
};

// What shows that nobody cut or changed the file's metadata since it was closed.
struct Seal {
  char magic[8];
  std::uint32_t version;  // of the trace; stays at this place in later versions
  std::uint32_t reserved;
  std::uint64_t metadata_offset, metadata_bytes;  // they end the file
  std::uint64_t checksum;                         // see seal_checksum
};
static_assert(sizeof(Seal) == 40, "stored as it is");
inline constexpr std::string_view kSealMagic = "TTRACE\r\n";

// XXH3-64 of the header with the seal's checksum taken as 0, then of the metadata.
std::uint64_t seal_checksum(std::string_view header, std::string_view metadata);

std::string rank_file_name(std::int32_t rank);     // "rank-00003.h5"
std::string journal_file_name(std::int32_t rank);  // "rank-00003.journal"

// Why `name` can't be a tensor's name, or empty.
std::string_view objection_to_name(std::string_view name);
bool is_utf8(std::string_view text);

}  // namespace ttrace
