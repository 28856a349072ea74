#include "identify/stacked_blocks.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "identify/box_bytes.h"
#include "identify/samples.h"

namespace ttrace {
namespace {

bool is_part_along(std::size_t dim, const Entry& part, const Entry& whole) {
  const bool is_readable = !part.sketch && !whole.sketch && part.dtype == whole.dtype;
  if (!is_readable || part.shape.size() != whole.shape.size()) return false;
  for (std::size_t d = 0; d < part.shape.size(); ++d) {
    if (d != dim && part.shape[d] != whole.shape[d]) return false;
  }
  return part.shape[dim] > 0 && whole.shape[dim] % part.shape[dim] == 0;
}

// True where the row that tells, the last one of the first part and the first one of others, lies as in parts one behind
// the other: it saves a look at all of them.
bool begins_as_contiguous(const RecordedElements& part, const RecordedElements& whole, std::int64_t coordinate,
                          std::size_t dim) {
  const std::int64_t row = coordinate == 0 ? part.entry->shape[dim] - 1 : 0;
  Box own = whole_box(part.entry->shape);
  own.size[dim] = 1;
  own.start[dim] = row;
  Box other = own;
  other.start[dim] = coordinate * part.entry->shape[dim] + row;
  const std::vector<std::byte> bytes = bytes_in(own, part.data, *part.entry);
  return are_varied(bytes, part.entry->dtype) && bytes == bytes_in(other, whole.data, *whole.entry);
}

// Where each row of the part lies in the whole; empty where the whole has some of them twice or not at all.
std::vector<std::int64_t> rows_in_whole(const RecordedElements& part, const RecordedElements& whole, std::size_t dim) {
  std::unordered_map<std::uint64_t, std::int64_t> row_of;  // -1: several have the hash
  const auto of_whole = hashes_of_rows(whole.data, whole.entry->shape, dim, whole.entry->dtype);
  for (std::size_t i = 0; i < of_whole.size(); ++i) {
    const auto [known, is_new] = row_of.emplace(of_whole[i], static_cast<std::int64_t>(i));
    if (!is_new) known->second = -1;
  }
  std::vector<std::int64_t> rows;
  for (const std::uint64_t hash : hashes_of_rows(part.data, part.entry->shape, dim, part.entry->dtype)) {
    const auto found = row_of.find(hash);
    if (found == row_of.end() || found->second < 0) return {};
    rows.push_back(found->second);
  }
  return rows;
}

// The sizes of the runs of rows, where each is this coordinate's share of one of several blocks; else empty.
std::vector<std::int64_t> blocks_of(const std::vector<std::int64_t>& rows, std::int64_t coordinate,
                                    std::int64_t parts) {
  std::vector<std::int64_t> blocks;
  std::int64_t before = 0;
  while (before < std::ssize(rows)) {
    const auto begin = rows.begin() + before;
    const auto end = std::adjacent_find(begin, rows.end(), [](auto row, auto next) { return next != row + 1; });
    const std::int64_t size = end == rows.end() ? rows.end() - begin : end - begin + 1;
    if (*begin != before * parts + coordinate * size) return {};
    blocks.push_back(size);
    before += size;
  }
  return blocks;
}

}  // namespace

std::vector<std::int64_t> blocks_by_bits(const RecordedElements& part, const RecordedElements& whole,
                                         std::int64_t coordinate, std::size_t dim) {
  if (!is_part_along(dim, *part.entry, *whole.entry)) return {};
  const std::int64_t parts = whole.entry->shape[dim] / part.entry->shape[dim];
  if (coordinate >= parts) return {};
  if (begins_as_contiguous(part, whole, coordinate, dim)) return {1};
  std::vector<std::int64_t> blocks = blocks_of(rows_in_whole(part, whole, dim), coordinate, parts);
  const std::int64_t factor =
      std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}, std::gcd<std::int64_t, std::int64_t>);
  for (std::int64_t& size : blocks) size /= factor;
  return blocks;
}

}  // namespace ttrace
