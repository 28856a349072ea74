#include <algorithm>
#include <numeric>
#include <set>

#include "base/layout.h"
#include "diagnose/hypothesis.h"
#include "diagnose/slices.h"

namespace ttrace {
namespace {

constexpr std::int64_t kMostBlocks = 64;
constexpr std::int64_t kFewestInBlock = 8;                        // elements; smaller blocks resemble another by chance
constexpr std::int64_t kMostComparisons = std::int64_t{1} << 30;  // of elements, when each row is compared with all

// Returns, for each block of the candidate, the number of the reference's block that it is nearest to.
std::vector<std::int64_t> nearest_blocks(const Suspect& suspect, const Slices& slices, std::int64_t blocks) {
  const std::int64_t size = slices.extent / blocks;
  std::vector<std::int64_t> nearest(static_cast<std::size_t>(blocks));
  for (std::int64_t a = 0; a < blocks; ++a) {
    double least = slices.square_between(suspect.candidate_values, a, suspect.reference_values, a, size);
    nearest[static_cast<std::size_t>(a)] = a;  // its own, if others are as near
    for (std::int64_t b = 0; b < blocks; ++b) {
      const double square = slices.square_between(suspect.candidate_values, a, suspect.reference_values, b, size);
      if (square >= least) continue;
      least = square;
      nearest[static_cast<std::size_t>(a)] = b;
    }
  }
  return nearest;
}

// Returns `values` with block i replaced by block `source[i]`.
Values rearrange(const Values& values, const Slices& slices, const std::vector<std::int64_t>& source) {
  const std::int64_t size = slices.extent / static_cast<std::int64_t>(source.size());
  Values result(values.size());
  for (std::int64_t o = 0; o < slices.outer; ++o) {
    for (std::size_t block = 0; block < source.size(); ++block) {
      const std::int64_t to = (o * slices.extent + static_cast<std::int64_t>(block) * size) * slices.inner;
      const std::int64_t from = (o * slices.extent + source[block] * size) * slices.inner;
      std::copy_n(values.begin() + from, size * slices.inner, result.begin() + to);
    }
  }
  return result;
}

bool is_permutation_of_blocks(std::vector<std::int64_t> source) {
  std::sort(source.begin(), source.end());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

// Returns the block at each place when the ranks hold their parts of n blocks, split zigzag over n / 2 ranks, one after
// the other. n is even.
std::vector<std::int64_t> zigzag_order(std::int64_t n) {
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(n / 2), 2);
  std::vector<std::int64_t> order;
  for (const std::vector<Stretch>& part : zigzag({sizes, {}}).parts) {
    for (const Stretch& stretch : part) {
      for (std::int64_t i = 0; i < stretch.size; ++i) order.push_back(stretch.logical + i);
    }
  }
  return order;
}

std::vector<std::int64_t> invert(const std::vector<std::int64_t>& source) {
  std::vector<std::int64_t> inverse(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    inverse[static_cast<std::size_t>(source[i])] = static_cast<std::int64_t>(i);
  }
  return inverse;
}

// Describes the permutation if it is one of those that parallel programs make; empty for others.
std::string describe_permutation(const std::vector<std::int64_t>& source) {
  const auto n = static_cast<std::int64_t>(source.size());
  const auto follows_rule = [&](auto&& rule) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (source[static_cast<std::size_t>(i)] != rule(i)) return false;
    }
    return true;
  };
  std::vector<std::int64_t> moved;
  for (std::int64_t i = 0; i < n; ++i) {
    if (source[static_cast<std::size_t>(i)] != i) moved.push_back(i);
  }
  if (moved.size() == 2) return fmt::format(": blocks {} and {} are swapped", moved[0], moved[1]);
  if (n % 2 == 0 && source == zigzag_order(n)) return fmt::format(": a zigzag split over {} ranks, not undone", n / 2);
  if (n % 2 == 0 && invert(source) == zigzag_order(n))
    return fmt::format(": a zigzag split over {} ranks, undone where there was none", n / 2);
  if (follows_rule([&](std::int64_t i) { return n - 1 - i; })) return ": in reverse";
  if (follows_rule([&](std::int64_t i) { return (i + source[0]) % n; }))
    return fmt::format(": rotated by {}", source[0]);
  for (std::int64_t groups = 2; groups < n; ++groups) {
    if (n % groups != 0) continue;
    const std::int64_t each = n / groups;
    if (follows_rule([&](std::int64_t i) { return i % groups * each + i / groups; }))
      return fmt::format(": {} groups of {} are interleaved", groups, each);
  }
  return {};
}

}  // namespace

std::optional<Diagnosis> permuted_blocks(const Suspect& suspect) {
  const Shape& shape = suspect.reference.shape;
  const auto elements = static_cast<std::int64_t>(suspect.reference_values.size());
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const Slices slices(shape, dim);
    for (std::int64_t blocks = 2; blocks <= std::min(kMostBlocks, slices.extent); ++blocks) {
      if (slices.extent % blocks != 0 || elements < blocks * kFewestInBlock) continue;
      const std::vector<std::int64_t> source = nearest_blocks(suspect, slices, blocks);
      std::vector<std::int64_t> identity(source.size());
      std::iota(identity.begin(), identity.end(), 0);
      if (source == identity || !is_permutation_of_blocks(source)) continue;
      const std::string what = fmt::format("of {} blocks of dimension {}, those at 0, 1, ... are the reference's {}{}",
                                           blocks, dim, fmt::join(source, ", "), describe_permutation(source));
      if (auto found =
              suspect.explained_by(Cause::kPermutedBlocks, rearrange(suspect.reference_values, slices, source), what)) {
        return found;
      }
    }
  }
  return std::nullopt;
}

// Tests whether each wrong row of the candidate is another row of the reference. A row is a vector along the last
// dimension.
std::optional<Diagnosis> other_rows(const Suspect& suspect) {
  const Shape& shape = suspect.reference.shape;
  if (shape.size() < 2 || shape.back() < 2) return std::nullopt;
  const auto width = shape.back();
  const auto rows = static_cast<std::int64_t>(suspect.reference_values.size()) / width;
  if (rows * rows * width > kMostComparisons || width < kFewestInBlock / 2) return std::nullopt;
  const Slices slices({rows, width}, 0);
  const Values zeros(suspect.reference_values.size());
  Values explained = suspect.reference_values;
  std::set<std::int64_t> wrong, sources;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double norm = slices.square_between(suspect.reference_values, row, zeros, 0, 1);
    const double own = slices.square_between(suspect.candidate_values, row, suspect.reference_values, row, 1);
    if (own <= suspect.bound * suspect.bound * norm) continue;
    wrong.insert(row);
    double least = own;
    std::int64_t source = row;
    for (std::int64_t other = 0; other < rows; ++other) {
      const double square = slices.square_between(suspect.candidate_values, row, suspect.reference_values, other, 1);
      if (square < least) {
        least = square;
        source = other;
      }
    }
    const double of_source = slices.square_between(suspect.reference_values, source, zeros, 0, 1);
    if (of_source == 0) return std::nullopt;  // zeros are no other row's, though some row may be zero
    if (!(least <= suspect.bound * suspect.bound * of_source)) return std::nullopt;
    sources.insert(source);
    std::copy_n(suspect.reference_values.begin() + source * width, width, explained.begin() + row * width);
  }
  if (wrong.empty() || std::ssize(wrong) == rows) return std::nullopt;
  if (wrong == sources) {
    return suspect.explained_by(Cause::kPermutedBlocks, explained,
                                fmt::format("{} of {} rows have changed places", wrong.size(), rows));
  }
  const std::string from = sources.size() == 1 ? fmt::format("the value of row {}", *sources.begin())
                                               : fmt::format("the values of {} others", sources.size());
  return suspect.explained_by(Cause::kOtherRows, explained,
                              fmt::format("{} of {} rows hold {}; the rest is right", wrong.size(), rows, from));
}

}  // namespace ttrace
