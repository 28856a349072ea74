#include "merge/rounded.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "merge/parts.h"
#include "merge/region.h"
#include "merge/values.h"
#include "numeric/convert.h"
#include "numeric/shape.h"

namespace ttrace {
namespace {

std::vector<std::byte> narrowed(const Values& values, Dtype dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  narrow(values.data(), dtype, static_cast<std::int64_t>(values.size()), bytes.data());
  return bytes;
}

Values widened(const std::vector<std::byte>& bytes, Dtype dtype) {
  Values values(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
  widen(bytes.data(), dtype, static_cast<std::int64_t>(values.size()), values.data());
  return values;
}

// Takes a number of a floating dtype to its neighbour that is nearer to zero: bits behind the sign count magnitudes.
void step_toward_zero(std::byte* number, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) {  // takes 1 off, little-endian
    const auto byte = std::to_integer<unsigned>(number[i]);
    number[i] = static_cast<std::byte>(byte - 1);
    if (byte != 0) return;
  }
}

Values rounded_values(const Values& values, Dtype dtype, RoundingMode rounding) {
  std::vector<std::byte> bytes = narrowed(values, dtype);
  Values rounded = widened(bytes, dtype);
  if (rounding == RoundingMode::kNearest) return rounded;
  const std::int64_t size = size_of(dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::abs(rounded[i]) > std::abs(values[i])) {
      step_toward_zero(bytes.data() + static_cast<std::int64_t>(i) * size, size);
    }
  }
  return widened(bytes, dtype);
}

bool overflow(const Values& values, const Values& rounded) {
  return !std::equal(values.begin(), values.end(), rounded.begin(),
                     [](double value, double narrow) { return std::isfinite(narrow) || !std::isfinite(value); });
}

bool are_rounded(const Values& reference, const Values& candidate, Dtype dtype, RoundingMode rounding) {
  const Values rounded = rounded_values(reference, dtype, rounding);
  return !overflow(reference, rounded) &&
         std::equal(rounded.begin(), rounded.end(), candidate.begin(),
                    [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
}

// Holds a tensor that no file has.
struct InMemory {
  Entry entry;
  std::vector<std::byte> bytes;
};

}  // namespace

bool is_narrower(const LogicalTensor& reference, const LogicalTensor& candidate) {
  const auto is_whole = [](const LogicalTensor& tensor) {
    return is_floating(tensor.dtype) && !tensor.rows && !tensor.sketched;
  };
  return is_whole(reference) && is_whole(candidate) && reference.shape == candidate.shape &&
         epsilon_of(candidate.dtype) > epsilon_of(reference.dtype);
}

bool is_rounded(const LogicalTensor& reference, const LogicalTensor& candidate, RoundingMode rounding) {
  return for_each_part(reference.shape, [&](const Box& part) {
    return are_rounded(values_of(region_of(reference, part)), values_of(region_of(candidate, part)), candidate.dtype,
                       rounding);
  });
}

std::optional<LogicalTensor> rounded_to(const LogicalTensor& tensor, Dtype dtype) {
  auto memory = std::make_shared<InMemory>();
  memory->bytes.reserve(static_cast<std::size_t>(element_count(tensor.shape) * size_of(dtype)));
  const bool fits = for_each_part(tensor.shape, [&](const Box& part) {
    const Values values = values_of(region_of(tensor, part));
    const std::vector<std::byte> bytes = narrowed(values, dtype);
    memory->bytes.insert(memory->bytes.end(), bytes.begin(), bytes.end());
    return !overflow(values, widened(bytes, dtype));
  });
  if (!fits) return std::nullopt;
  memory->entry.id = tensor.id;
  memory->entry.dtype = dtype;
  memory->entry.shape = tensor.shape;
  memory->entry.order = tensor.order;
  memory->entry.bytes = memory->bytes.size();
  LogicalTensor rounded = tensor;
  rounded.dtype = dtype;
  rounded.scale = 1;
  rounded.bytes = memory->entry.bytes;
  rounded.pieces = [memory = std::shared_ptr<const InMemory>(std::move(memory))] {
    Piece piece;
    piece.entry = &memory->entry;
    piece.data = memory->bytes.data();
    piece.logical = whole_box(memory->entry.shape);
    piece.strides = row_major_strides(memory->entry.shape);
    return std::vector<Piece>{piece};
  };
  return rounded;
}

}  // namespace ttrace
