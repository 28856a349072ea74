#include "rewrite/scatter.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>

#include "ttrace/error.h"
#include "ttrace/numeric/convert.h"

namespace ttrace {
namespace {

template <class Integer>
void store_integer(double value, std::byte* out) {
  const Integer integer = static_cast<Integer>(value);
  std::memcpy(out, &integer, sizeof integer);
}

// `value` fits the dtype: it was read from a tensor of it.
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

// The elements of one piece, a run of the last dimension at a time.
void store_piece(const Piece& piece, const Values& values, const LogicalTensor& layout, std::byte* out) {
  const std::size_t dims = layout.shape.size();
  const Dtype dtype = piece.entry->dtype;
  const Shape size = dims == 0 ? Shape{1} : piece.logical.size;
  const Shape strides = dims == 0 ? Shape{1} : piece.strides;
  const std::int64_t run = size.back();
  if (element_count(size) == 0) return;
  Values scaled(static_cast<std::size_t>(run));
  Shape index(size.size(), 0);  // of the run's first element
  for (std::int64_t i = 0; i < element_count(size) / run; ++i) {
    std::int64_t from = 0, to = piece.offset;
    for (std::size_t d = 0; d < dims; ++d) {
      from = from * layout.shape[d] + piece.logical.start[d] + index[d];
      to += index[d] * strides[d];
    }
    for (std::int64_t j = 0; j < run; ++j) {
      scaled[static_cast<std::size_t>(j)] =
          piece.term > 0 ? 0 : values[static_cast<std::size_t>(from + j)] * layout.scale;
    }
    if (is_floating(dtype) && strides.back() == 1) {
      narrow(scaled.data(), dtype, run, out + to * size_of(dtype));
    } else {
      for (std::int64_t j = 0; j < run; ++j) {
        store(scaled[static_cast<std::size_t>(j)], dtype, out + (to + j * strides.back()) * size_of(dtype));
      }
    }
    for (std::size_t d = size.size() - 1; d-- > 0 && ++index[d] == size[d];) index[d] = 0;
  }
}

}  // namespace

std::vector<RewrittenShard> scatter(const Values& values, const LogicalTensor& layout) {
  if (!is_floating(layout.dtype)) require_exact(values, layout);
  std::map<const Entry*, std::size_t> positions;
  std::vector<RewrittenShard> shards;
  for (const Piece& piece : layout.pieces()) {
    const auto [found, is_new] = positions.emplace(piece.entry, shards.size());
    if (is_new) shards.push_back({piece.rank, piece.entry, {piece.data, piece.data + piece.entry->bytes}});
    store_piece(piece, values, layout, shards[found->second].bytes.data());
  }
  return shards;
}

}  // namespace ttrace
