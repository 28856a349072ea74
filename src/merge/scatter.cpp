#include "merge/scatter.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "merge/runs.h"
#include "numeric/convert.h"

namespace ttrace {
namespace {

template <class Integer>
void store_integer(double value, std::byte* out) {
  const Integer integer = static_cast<Integer>(value);
  std::memcpy(out, &integer, sizeof integer);
}

// Stores `value`, which was read from a tensor of this dtype and fits it.
void store(double value, Dtype dtype, std::byte* out) {
  switch (dtype) {
    case Dtype::kInt8:
      return store_integer<std::int8_t>(value, out);
    case Dtype::kInt16:
      return store_integer<std::int16_t>(value, out);
    case Dtype::kInt32:
      return store_integer<std::int32_t>(value, out);
    case Dtype::kInt64:
      return store_integer<std::int64_t>(value, out);
    case Dtype::kUInt8:
    case Dtype::kBool:
      return store_integer<std::uint8_t>(value, out);
    default:
      return narrow(&value, dtype, 1, out);
  }
}

void require_exact(const Values& values, const LogicalTensor& layout) {
  constexpr double kExact = 9007199254740992;  // 2^53
  for (const double value : values) {
    if (std::abs(value) < kExact) continue;
    throw InputError(fmt::format("{}: holds the integer {}; expected less than 2^53 where it is to be injected",
                                 to_string(layout.id), value));
  }
}

void store_piece(const Piece& piece, const Values& values, const LogicalTensor& layout, std::byte* out) {
  const Dtype dtype = piece.entry->dtype;
  Values scaled;
  for_each_run(piece, layout.shape,
               [&](std::int64_t local, std::int64_t stride, std::int64_t place, std::int64_t length) {
                 scaled.resize(static_cast<std::size_t>(length));
                 for (std::int64_t j = 0; j < length; ++j) {
                   const double value = values[static_cast<std::size_t>(place + j)] * layout.scale;
                   scaled[static_cast<std::size_t>(j)] = piece.term > 0 ? 0 : value;
                 }
                 std::byte* data = out + local * size_of(dtype);
                 if (is_floating(dtype) && stride == 1) return narrow(scaled.data(), dtype, length, data);
                 for (std::int64_t j = 0; j < length; ++j) {
                   store(scaled[static_cast<std::size_t>(j)], dtype, data + j * stride * size_of(dtype));
                 }
               });
}

// Returns what a shard holds before values are stored: elements that no piece has, as those of padding, stay what they
// were. A sketch will do where there are none; of `held` elements pieces have one each.
std::vector<std::byte> bytes_before(const Piece& piece, std::int64_t held) {
  const Entry& entry = *piece.entry;
  if (!entry.sketch || held != element_count(entry.shape)) return {piece.elements(), piece.elements() + entry.bytes};
  return std::vector<std::byte>(static_cast<std::size_t>(held * size_of(entry.dtype)));
}

}  // namespace

std::vector<RewrittenShard> scatter(const Values& values, const LogicalTensor& layout) {
  if (!is_floating(layout.dtype)) require_exact(values, layout);
  std::map<const Entry*, std::size_t> positions;
  std::map<const Entry*, std::int64_t> held;
  std::vector<RewrittenShard> shards;
  const std::vector<Piece> pieces = layout.pieces();
  for (const Piece& piece : pieces) held[piece.entry] += element_count(piece.logical.size);
  for (const Piece& piece : pieces) {
    const auto [found, is_new] = positions.emplace(piece.entry, shards.size());
    if (is_new) shards.push_back({piece.rank, piece.entry, bytes_before(piece, held[piece.entry])});
    store_piece(piece, values, layout, shards[found->second].bytes.data());
  }
  return shards;
}

}  // namespace ttrace
