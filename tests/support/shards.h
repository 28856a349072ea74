// Logical tensors for tests, cut into shards in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "base/alignment.h"

namespace ttrace::test {

using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::byte*>(values.data());
  return Bytes(begin, begin + values.size() * sizeof(T));
}

// `count` random elements of about `magnitude`, all finite. fp8 and fp16 take random bits instead.
Bytes random_elements(std::mt19937_64& random, Dtype dtype, std::int64_t count, double magnitude = 1);

// Says how one copy of a tensor is cut: a regular grid, one rank a part.
struct Cut {
  Shape parts;                  // per dimension; uneven where they do not divide the size
  std::int32_t first_rank = 0;  // parts are dealt row-major
  std::int32_t replica = 0, term = 0;
  std::int64_t margin = 0;  // elements that surround the piece in the rank's tensor, on every side
};

// Gives the tensor just these pieces.
void set_pieces(LogicalTensor& tensor, std::vector<Piece> pieces);

// Owns entries and bytes; must outlive the tensors.
class Shards {
 public:
  LogicalTensor tensor(Dtype dtype, Shape shape);
  void add(LogicalTensor& tensor, const Bytes& elements, const Cut& cut, Dtype dtype);
  void add(LogicalTensor& tensor, const Bytes& elements, const Cut& cut) { add(tensor, elements, cut, tensor.dtype); }

 private:
  std::deque<Entry> entries_;
  std::deque<Bytes> bytes_;
};

// An int32 tensor whose elements are their own row-major positions, so that a wrong pointer or stride shows.
LogicalTensor counted(Shards& shards, const Shape& shape, const std::vector<Cut>& cuts);

}  // namespace ttrace::test
