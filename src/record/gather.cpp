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

// Returns the dimensions without those of size 1. Neighbours are joined where one step of the outer one passes exactly
// over the inner one.
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

// A two-dimensional part of the tensor; strides are in elements.
struct Plane {
  const std::byte* data;
  Dim rows, columns;
};

// Copies the plane to `to` in row-major order. It copies squares that fit the cache, because in a transposed matrix,
// whose columns are contiguous, every element of a row lies in another cache line.
template <typename T>
void copy_squares(const Plane& plane, char* to) {
  constexpr std::int64_t kSide = 32;
  for (std::int64_t row_start = 0; row_start < plane.rows.size; row_start += kSide) {
    const std::int64_t row_end = std::min(row_start + kSide, plane.rows.size);
    for (std::int64_t start = 0; start < plane.columns.size; start += kSide) {
      const std::int64_t end = std::min(start + kSide, plane.columns.size);
      for (std::int64_t row = row_start; row < row_end; ++row) {
        for (std::int64_t column = start; column < end; ++column) {
          const std::int64_t from = row * plane.rows.stride + column * plane.columns.stride;
          const std::int64_t index = row * plane.columns.size + column;
          std::memcpy(to + index * std::int64_t{sizeof(T)}, plane.data + from * std::int64_t{sizeof(T)}, sizeof(T));
        }
      }
    }
  }
}

void copy_plane(const Plane& plane, std::int64_t element, char* to) {
  if (plane.columns.stride == 1) {
    const std::int64_t bytes = plane.columns.size * element;
    for (std::int64_t row = 0; row < plane.rows.size; ++row) {
      std::memcpy(to + row * bytes, plane.data + row * plane.rows.stride * element, static_cast<std::size_t>(bytes));
    }
    return;
  }
  switch (element) {
    case 1:
      return copy_squares<std::uint8_t>(plane, to);
    case 2:
      return copy_squares<std::uint16_t>(plane, to);
    case 4:
      return copy_squares<std::uint32_t>(plane, to);
    default:
      return copy_squares<std::uint64_t>(plane, to);
  }
}

// Collects planes, one after the other, in a buffer of bounded size.
class Gatherer {
 public:
  Gatherer(std::int64_t element, std::int64_t total, const std::function<void(std::string_view)>& consume)
      : element_(element), capacity_(std::min(kBufferBytes / element, total)), consume_(consume) {
    buffer_.resize(static_cast<std::size_t>(capacity_ * element));
  }

  void add(Plane plane) {
    // A row that is larger than the whole buffer is cut.
    const std::int64_t widest = std::min(plane.columns.size, capacity_);
    for (std::int64_t row = 0; row < plane.rows.size;) {
      const std::int64_t rows = widest < plane.columns.size ? 1 : std::min(plane.rows.size - row, capacity_ / widest);
      for (std::int64_t column = 0; column < plane.columns.size; column += widest) {
        const std::int64_t columns = std::min(widest, plane.columns.size - column);
        const std::int64_t start = row * plane.rows.stride + column * plane.columns.stride;
        add_part({plane.data + start * element_, {rows, plane.rows.stride}, {columns, plane.columns.stride}});
      }
      row += rows;
    }
  }

  void flush() {
    if (filled_ > 0) consume_(std::string_view(buffer_).substr(0, static_cast<std::size_t>(filled_ * element_)));
    filled_ = 0;
  }

 private:
  // Adds a part that is no larger than the buffer.
  void add_part(const Plane& part) {
    const std::int64_t count = part.rows.size * part.columns.size;
    if (count > capacity_ - filled_) flush();
    copy_plane(part, element_, buffer_.data() + filled_ * element_);
    filled_ += count;
  }

  std::int64_t element_, capacity_;
  std::int64_t filled_ = 0;
  std::string buffer_;
  const std::function<void(std::string_view)>& consume_;
};

// Gathers the tensor as planes of its last two dimensions; the indices of the others count up like an odometer.
void gather(const std::byte* data, std::int64_t element, std::vector<Dim> dims, std::int64_t total,
            const std::function<void(std::string_view)>& consume) {
  if (dims.size() == 1) dims.insert(dims.begin(), {1, 0});
  const Dim rows = dims[dims.size() - 2], columns = dims.back();
  Gatherer gatherer(element, total, consume);
  std::vector<std::int64_t> at(dims.size() - 2, 0);
  for (std::int64_t done = 0; done < total; done += rows.size * columns.size) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < at.size(); ++i) start += at[i] * dims[i].stride;
    gatherer.add({data + start * element, rows, columns});
    for (std::size_t i = at.size(); i > 0 && ++at[i - 1] == dims[i - 1].size; --i) at[i - 1] = 0;
  }
  gatherer.flush();
}

}  // namespace

bool is_row_major(const TensorView& tensor) {
  if (tensor.strides.empty()) return true;
  const std::vector<Dim> dims = joined_dims(tensor);
  return dims.empty() || (dims.size() == 1 && dims[0].stride == 1);
}

void for_each_block(const TensorView& tensor, const std::function<void(std::string_view)>& consume) {
  const std::int64_t element = size_of(tensor.dtype);
  std::int64_t total = 1;
  for (const std::int64_t size : tensor.shape) total *= size;
  if (total == 0) return;
  if (is_row_major(tensor)) {
    consume({static_cast<const char*>(tensor.data), static_cast<std::size_t>(total * element)});
  } else {
    gather(static_cast<const std::byte*>(tensor.data), element, joined_dims(tensor), total, consume);
  }
}

}  // namespace ttrace
