#include "identify/near_rows.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/layout.h"
#include "numeric/convert.h"

namespace ttrace {
namespace {

using RowOfValues = std::vector<double>;

constexpr double kNear = 1e-4;  // the square of how far rows may be apart, as a share of their size

std::vector<RowOfValues> values_of_rows(const HashedRows& rows, std::size_t dim) {
  std::vector<double> values(static_cast<std::size_t>(element_count(rows.shape)));
  widen(rows.data, rows.dtype, std::ssize(values), values.data());
  const auto extent = static_cast<std::size_t>(rows.shape[dim]);
  std::size_t inner = 1;
  for (std::size_t d = dim + 1; d < rows.shape.size(); ++d) inner *= static_cast<std::size_t>(rows.shape[d]);
  std::vector<RowOfValues> all(extent);
  for (std::size_t i = 0; i < values.size(); ++i) all[i / inner % extent].push_back(values[i]);
  return all;
}

double square_between(const RowOfValues& one, const RowOfValues& other) {
  double square = 0;
  for (std::size_t i = 0; i < one.size(); ++i) square += (one[i] - other[i]) * (one[i] - other[i]);
  return square;
}

// The row of `whole`, among `candidates`, that the row is but for rounding; nothing where none is by far the nearest.
std::optional<std::size_t> nearest(const RowOfValues& row, const std::vector<RowOfValues>& whole,
                                   const std::vector<std::size_t>& candidates) {
  constexpr double kFarther = 1e4;  // a square
  double best = std::numeric_limits<double>::infinity(), second = best;
  std::optional<std::size_t> found;
  for (const std::size_t i : candidates) {
    const double square = square_between(row, whole[i]);
    if (square < best) {
      second = std::exchange(best, square);
      found = i;
    } else {
      second = std::min(second, square);
    }
  }
  const double size = square_between(row, RowOfValues(row.size(), 0));
  return best <= kNear * size && second >= kFarther * best && second > 0 ? found : std::nullopt;
}

// What the reference and the ranks have of a tensor, without hashes.
struct RecordedRows {
  HashedRows whole;
  std::vector<HashedRows> parts;
};

// Nothing where the ranks have not all recorded the reference's elements of the dimension, in its dtype and shape.
std::optional<RecordedRows> recorded_rows(const SlicedInput& tensor) {
  const LogicalTensor& reference = *tensor.reference;
  RecordedRows rows{{elements_of(reference), reference.shape, reference.dtype, {}}, {}};
  if (rows.whole.data == nullptr) return std::nullopt;
  for (std::size_t rank = 0; rank < tensor.parts.size(); ++rank) {
    const Entry* part = tensor.parts[rank];
    if (part == nullptr || part->dtype != reference.dtype || part->sketch) return std::nullopt;
    Shape shape = part->shape;
    shape[tensor.dim] = reference.shape[tensor.dim];
    if (shape != reference.shape) return std::nullopt;
    rows.parts.push_back({tensor.ranks[rank]->bytes_of(*part), part->shape, part->dtype, {}});
  }
  return rows;
}

}  // namespace

void take_hashes_of_near_rows(const HashedRows& whole, std::vector<HashedRows>& parts, std::size_t dim) {
  if (!is_floating(whole.dtype) || whole.hashes.empty()) return;
  const std::set<std::uint64_t> known(whole.hashes.begin(), whole.hashes.end());
  std::set<std::uint64_t> held;
  std::size_t unknown = 0;
  for (const HashedRows& part : parts) {
    held.insert(part.hashes.begin(), part.hashes.end());
    unknown += static_cast<std::size_t>(
        std::count_if(part.hashes.begin(), part.hashes.end(), [&](auto hash) { return !known.contains(hash); }));
  }
  std::vector<std::size_t> candidates;
  for (std::size_t i = 0; i < whole.hashes.size(); ++i) {
    if (!held.contains(whole.hashes[i])) candidates.push_back(i);
  }
  constexpr std::size_t kMostProducts = std::size_t{1} << 28;  // a third of a second
  const std::size_t width = static_cast<std::size_t>(element_count(whole.shape)) / whole.hashes.size();
  if (unknown == 0 || candidates.size() < 2 ||
      unknown * candidates.size() > kMostProducts / std::max<std::size_t>(width, 1)) {
    return;
  }
  const std::vector<RowOfValues> of_whole = values_of_rows(whole, dim);
  for (HashedRows& part : parts) {
    const std::vector<RowOfValues> own = values_of_rows(part, dim);
    for (std::size_t i = 0; i < part.hashes.size(); ++i) {
      if (known.contains(part.hashes[i]) || own[i].size() != width) continue;
      if (const auto row = nearest(own[i], of_whole, candidates)) part.hashes[i] = whole.hashes[*row];
    }
  }
}

std::optional<HeldRows> held_rows(const SlicedInput& tensor) {
  std::optional<RecordedRows> recorded = recorded_rows(tensor);
  if (!recorded) return std::nullopt;
  auto& [whole, parts] = *recorded;
  const auto hash = [&](HashedRows& rows) {
    rows.hashes = hashes_of_rows(rows.data, rows.shape, tensor.dim, rows.dtype);
  };
  hash(whole);
  std::ranges::for_each(parts, hash);
  take_hashes_of_near_rows(whole, parts, tensor.dim);
  HeldRows rows;
  for (HashedRows& part : parts) rows.parts.push_back(std::move(part.hashes));
  rows.whole = std::move(whole.hashes);
  return rows;
}

bool holds_rows_so(const SlicedInput& tensor, const Samples& order) {
  const std::optional<RecordedRows> recorded = recorded_rows(tensor);
  if (!recorded || tensor.dim != 0 || !is_floating(recorded->whole.dtype)) return false;
  const HashedRows& whole = recorded->whole;
  const std::int64_t width = element_count(whole.shape) / std::max<std::int64_t>(whole.shape[0], 1);
  RowOfValues wanted(static_cast<std::size_t>(width)), own = wanted;
  const RowOfValues zeros(wanted.size(), 0);
  const auto read = [&](const HashedRows& rows, std::int64_t row, RowOfValues& values) {
    widen(rows.data + row * width * size_of(rows.dtype), rows.dtype, width, values.data());
  };
  auto next = order.begin();
  for (const HashedRows& part : recorded->parts) {
    for (std::int64_t row = 0; row < part.shape[0]; ++row) {
      if (next == order.end()) return false;
      read(whole, *next++, wanted);
      read(part, row, own);
      if (!(square_between(own, wanted) <= kNear * square_between(wanted, zeros))) return false;
    }
  }
  return next == order.end();
}

std::ptrdiff_t count_of_ranks(const HeldRows& rows, const Samples& order) {
  auto next = order.begin();
  return std::count_if(rows.parts.begin(), rows.parts.end(), [&](const std::vector<std::uint64_t>& part) {
    const auto start = std::exchange(next, next + std::ssize(part));
    return std::equal(part.begin(), part.end(), start, [&](std::uint64_t hash, std::int64_t row) {
      return hash == rows.whole[static_cast<std::size_t>(row)];
    });
  });
}

}  // namespace ttrace
