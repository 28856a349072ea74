#include "support/shards.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

namespace ttrace::test {
namespace {

bool next_index(Shape& index, const Shape& size) {
  for (std::size_t i = index.size(); i-- > 0; index[i] = 0) {
    if (++index[i] < size[i]) return true;
  }
  return false;
}

std::int64_t linear(const Shape& index, const Shape& size) {
  std::int64_t position = 0;
  for (std::size_t i = 0; i < size.size(); ++i) position = position * size[i] + index[i];
  return position;
}

template <class T>
void append(Bytes& bytes, T value) {
  const auto raw = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

}  // namespace

Bytes random_elements(std::mt19937_64& random, Dtype dtype, std::int64_t count, double magnitude) {
  std::normal_distribution<double> normal;
  Bytes bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = normal(random) * magnitude;
    const auto bits = static_cast<std::uint64_t>(random());
    switch (dtype) {
      case Dtype::kFloat64:
        append(bytes, value);
        break;
      case Dtype::kFloat32:
        append(bytes, static_cast<float>(value));
        break;
      case Dtype::kBFloat16:
        append(bytes, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
        break;
      // Below the largest exponent.
      case Dtype::kFloat16:
        append(bytes, static_cast<std::uint16_t>(bits & 0xbbff));
        break;
      case Dtype::kFloat8E4M3:
      case Dtype::kFloat8E5M2:
        append(bytes, static_cast<std::uint8_t>(bits & 0xbb));
        break;
      case Dtype::kInt16:
        append(bytes, static_cast<std::int16_t>(bits));
        break;
      case Dtype::kInt32:
        append(bytes, static_cast<std::int32_t>(bits));
        break;
      case Dtype::kInt64:
        append(bytes, bits);
        break;
      case Dtype::kInt8:
      case Dtype::kUInt8:
        append(bytes, static_cast<std::uint8_t>(bits));
        break;
      case Dtype::kBool:
        append(bytes, static_cast<std::uint8_t>(bits & 1));
        break;
    }
  }
  return bytes;
}

void set_pieces(LogicalTensor& tensor, std::vector<Piece> pieces) {
  tensor.pieces = [pieces = std::move(pieces)] { return pieces; };
}

LogicalTensor Shards::tensor(Dtype dtype, Shape shape) {
  LogicalTensor tensor;
  tensor.id.name = "layer";
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  set_pieces(tensor, {});
  return tensor;
}

void Shards::add(LogicalTensor& tensor, const Bytes& elements, const Cut& cut, Dtype dtype) {
  const std::int64_t width = size_of(dtype);
  std::vector<Piece> pieces = tensor.pieces();
  Shape part(tensor.shape.size(), 0);
  std::int32_t rank = cut.first_rank;
  do {
    Piece piece;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const std::int64_t begin = tensor.shape[i] * part[i] / cut.parts[i];
      piece.logical.start.push_back(begin);
      piece.logical.size.push_back(tensor.shape[i] * (part[i] + 1) / cut.parts[i] - begin);
    }
    Entry& entry = entries_.emplace_back();
    entry.dtype = dtype;
    Shape recorded = piece.logical.size;
    for (std::int64_t& size : recorded) size += 2 * cut.margin;
    entry.shape = std::move(recorded);
    entry.bytes = static_cast<std::uint64_t>(element_count(entry.shape) * width);
    piece.strides.assign(entry.shape.size(), 1);
    for (std::size_t i = entry.shape.size(); i-- > 1;) piece.strides[i - 1] = piece.strides[i] * entry.shape[i];
    for (const std::int64_t stride : piece.strides) piece.offset += cut.margin * stride;
    // One byte in front: recorded data need not be aligned.
    Bytes& bytes = bytes_.emplace_back(static_cast<std::size_t>(element_count(entry.shape) * width + 1));
    if (element_count(piece.logical.size) > 0) {
      Shape index(part.size(), 0);
      do {
        Shape from = piece.logical.start, to(part.size(), cut.margin);
        for (std::size_t i = 0; i < index.size(); ++i) from[i] += index[i], to[i] += index[i];
        std::memcpy(&bytes[static_cast<std::size_t>(1 + linear(to, entry.shape) * width)],
                    &elements[static_cast<std::size_t>(linear(from, tensor.shape) * width)],
                    static_cast<std::size_t>(width));
      } while (next_index(index, piece.logical.size));
    }
    piece.rank = rank++;
    piece.entry = &entry;
    piece.data = bytes.data() + 1;
    piece.replica = cut.replica;
    piece.term = cut.term;
    tensor.bytes += static_cast<std::uint64_t>(element_count(piece.logical.size) * width);
    pieces.push_back(std::move(piece));
  } while (next_index(part, cut.parts));
  set_pieces(tensor, std::move(pieces));
}

LogicalTensor counted(Shards& shards, const Shape& shape, const std::vector<Cut>& cuts) {
  std::vector<std::int32_t> positions(static_cast<std::size_t>(element_count(shape)));
  std::iota(positions.begin(), positions.end(), 0);
  LogicalTensor tensor = shards.tensor(Dtype::kInt32, shape);
  for (const Cut& cut : cuts) shards.add(tensor, bytes_of(positions), cut);
  return tensor;
}

}  // namespace ttrace::test
