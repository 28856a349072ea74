#include "record/gather.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace ttrace {
namespace {

constexpr std::int64_t kBufferBytes = 4 << 20;  // large enough to make the write's cost vanish

struct Dim {
  std::int64_t size, stride;
};

// The dimensions without those of size 1, and with neighbours joined where the outer one steps over
// exactly the inner one.
std::vector<Dim> joined_dims(const TensorView& tensor) {
  std::vector<Dim> dims;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const Dim dim{tensor.shape[i], tensor.strides[i]};
    if (dim.size == 1) continue;
    if (!dims.empty() && dims.back().stride == dim.stride * dim.size) {
      dims.back() = {dims.back().size * dim.size, dim.stride};
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

template <typename T>
void copy_strided(const std::byte* from, std::int64_t stride, std::int64_t count, char* to) {
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * sizeof(T), from + i * stride, sizeof(T));
}

// `count` elements that are `stride` bytes apart.
void copy_row(const std::byte* from, std::int64_t stride, std::int64_t size, std::int64_t count, char* to) {
  if (stride == size) {
    std::memcpy(to, from, static_cast<std::size_t>(count * size));
    return;
  }
  switch (size) {
    case 1:
      return copy_strided<std::uint8_t>(from, stride, count, to);
    case 2:
      return copy_strided<std::uint16_t>(from, stride, count, to);
    case 4:
      return copy_strided<std::uint32_t>(from, stride, count, to);
    default:
      return copy_strided<std::uint64_t>(from, stride, count, to);
  }
}

// The last dimension is copied row by row; the others count like an odometer.
void gather(const std::byte* data, std::int64_t element, const std::vector<Dim>& dims, std::int64_t total,
            const std::function<void(std::string_view)>& consume) {
  std::string buffer(static_cast<std::size_t>(std::min(kBufferBytes, total * element)), '\0');
  const std::int64_t capacity = static_cast<std::int64_t>(buffer.size()) / element;
  const Dim row = dims.back();
  std::vector<std::int64_t> at(dims.size() - 1, 0);
  std::int64_t filled = 0;
  for (std::int64_t done = 0; done < total; done += row.size) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < at.size(); ++i) start += at[i] * dims[i].stride;
    for (std::int64_t column = 0; column < row.size;) {
      const std::int64_t count = std::min(row.size - column, capacity - filled);
      copy_row(data + (start + column * row.stride) * element, row.stride * element, element, count,
               buffer.data() + filled * element);
      column += count;
      filled += count;
      if (filled < capacity) continue;
      consume(buffer);
      filled = 0;
    }
    for (std::size_t i = at.size(); i > 0 && ++at[i - 1] == dims[i - 1].size; --i) at[i - 1] = 0;
  }
  if (filled > 0) consume(std::string_view(buffer).substr(0, static_cast<std::size_t>(filled * element)));
}

}  // namespace

void for_each_block(const TensorView& tensor, const std::function<void(std::string_view)>& consume) {
  const std::int64_t element = size_of(tensor.dtype);
  std::int64_t total = 1;
  for (const std::int64_t size : tensor.shape) total *= size;
  if (total == 0) return;
  const std::vector<Dim> dims = tensor.strides.empty() ? std::vector<Dim>() : joined_dims(tensor);
  if (dims.empty() || (dims.size() == 1 && dims[0].stride == 1)) {
    consume({static_cast<const char*>(tensor.data), static_cast<std::size_t>(total * element)});
  } else {
    gather(static_cast<const std::byte*>(tensor.data), element, dims, total, consume);
  }
}

}  // namespace ttrace
