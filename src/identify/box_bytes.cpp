#include "identify/box_bytes.h"

#include <algorithm>

namespace ttrace {

std::vector<std::byte> bytes_in(const Box& box, const std::byte* data, const Entry& entry) {
  const Shape strides = row_major_strides(entry.shape);
  const auto size = static_cast<std::int64_t>(size_of(entry.dtype));
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < element_count(box.size); ++i) {
    const Shape index = index_at(i, box.size);
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += (box.start[d] + index[d]) * strides[d];
    bytes.insert(bytes.end(), data + at * size, data + (at + 1) * size);
  }
  return bytes;
}

bool are_varied(const std::vector<std::byte>& bytes, Dtype dtype) {
  const auto element = static_cast<std::ptrdiff_t>(size_of(dtype));
  return std::ssize(bytes) > element && !std::equal(bytes.begin() + element, bytes.end(), bytes.begin());
}

}  // namespace ttrace
