#include "compare/bits.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <set>

#include "base/parallel_for.h"
#include "compare/box.h"

namespace ttrace {
namespace {

// How the numbers of a floating-point type are laid out in its bits.
struct NumberFormat {
  std::int64_t bytes;
  std::uint64_t infinity;  // bits of the least magnitude that is no number
};

NumberFormat format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return {8, std::uint64_t{0x7ff} << 52};
    case Dtype::kFloat32:
      return {4, std::uint64_t{0xff} << 23};
    case Dtype::kFloat16:
      return {2, std::uint64_t{0x1f} << 10};
    case Dtype::kBFloat16:
      return {2, std::uint64_t{0xff} << 7};
    case Dtype::kFloat8E4M3:
      return {1, 0x7f};
    default:
      return {1, 0x7c};  // float8_e5m2
  }
}

std::uint64_t bits_at(const std::byte* data, std::int64_t bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, data, static_cast<std::size_t>(bytes));  // little-endian, as files are
  return bits;
}

// Counts the steps from one number to the other; 0 where one of them is none.
std::uint64_t units_between(std::uint64_t a, std::uint64_t b, const NumberFormat& format) {
  const std::uint64_t sign = std::uint64_t{1} << (8 * format.bytes - 1);
  const std::uint64_t a_size = a & ~sign, b_size = b & ~sign;
  if (a_size >= format.infinity || b_size >= format.infinity) return 0;
  if ((a & sign) != (b & sign)) return a_size + b_size;
  return a_size > b_size ? a_size - b_size : b_size - a_size;
}

Shape index_of(const Box& box, std::int64_t position) {
  Shape index = index_at(position, box.size);
  for (std::size_t d = 0; d < index.size(); ++d) index[d] += box.start[d];
  return index;
}

// Counts the elements of a box, one term a side and one dtype, whose bits differ.
void add_box(const OverlayBox& box, BitDifference& total) {
  const BoxReader reader(box);
  const Dtype dtype = reader.dtype(0);
  const std::int64_t bytes = size_of(dtype), run = reader.run_length();
  for (std::int64_t begin = 0; begin < reader.elements(); begin += run) {
    const std::byte *reference = reader.address_of(0, begin), *candidate = reader.address_of(1, begin);
    if (std::memcmp(reference, candidate, static_cast<std::size_t>(run * bytes)) == 0) continue;
    for (std::int64_t i = 0; i < run; ++i) {
      const std::uint64_t a = bits_at(reference + i * bytes, bytes), b = bits_at(candidate + i * bytes, bytes);
      if (a == b) continue;
      ++total.differing;
      const std::uint64_t units = is_floating(dtype) ? units_between(a, b, format_of(dtype)) : 0;
      if (!total.index.empty() && units < total.most_units) continue;
      Shape index = index_of(box.logical, begin + i);
      if (!total.index.empty() && units == total.most_units && !(index < total.index)) continue;
      total.most_units = units;
      total.index = std::move(index);
    }
  }
}

bool is_recorded(const OverlayBox& box) { return box.reference.size() == 1 && box.candidate.size() == 1; }

bool has_same_bits(const OverlayBox& box) {
  if (is_recorded(box)) return same_bytes(box);
  return true;  // sums have none
}

BitDifference compare_pair(const TensorPair& pair, const Difference& difference) {
  BitDifference total;
  const Dtype a = pair.reference->dtype, b = pair.candidate->dtype;
  if (a != b) {
    total.other_dtypes = is_floating(a) || is_floating(b);  // integers are counted, in whatever width
    total.differing = total.other_dtypes ? difference.elements : difference.differing;
    return total;
  }
  if (pair.reference->sketched || pair.candidate->sketched) {
    total.differing = difference.differing;
    return total;
  }
  const Overlay both = overlay(*pair.reference, *pair.candidate);
  total.recorded = both.reference_scale == 1 && both.candidate_scale == 1 &&
                   std::all_of(both.boxes.begin(), both.boxes.end(), is_recorded);
  if (!total.recorded) return total;
  std::set<std::int32_t> ranks, of_copies;
  for (const OverlayBox& box : both.boxes) {
    const std::int64_t before = total.differing;
    add_box(box, total);
    if (total.differing > before) ranks.insert(box.candidate.front().rank);
  }
  for (const std::vector<OverlayBox>& copy : both.candidate_replicas) {
    for (const OverlayBox& box : copy) {
      if (!has_same_bits(box)) of_copies.insert(box.candidate.front().rank);
    }
  }
  total.ranks.assign(ranks.begin(), ranks.end());
  total.of_copies.assign(of_copies.begin(), of_copies.end());
  return total;
}

}  // namespace

std::vector<BitDifference> compare_bits(std::span<const TensorPair> pairs, std::span<const Difference> differences,
                                        int threads) {
  assert(pairs.size() == differences.size());
  std::vector<BitDifference> bits(pairs.size());
  parallel_for(pairs.size(), thread_count(threads),
               [&](std::size_t i) { bits[i] = compare_pair(pairs[i], differences[i]); });
  return bits;
}

}  // namespace ttrace
