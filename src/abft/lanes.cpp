#include "abft/lanes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

// Compiled for several widths, chosen when the program starts. Not with sanitizers, which start later than that.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define TTRACE_WIDTHS [[gnu::target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")]]
#else
#define TTRACE_WIDTHS
#endif

namespace ttrace::abft {
namespace {

constexpr int kLanes = 8;
constexpr double kLargest = std::numeric_limits<double>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
static_assert(kLanes == kStrip);
using Lanes [[gnu::vector_size(kLanes * sizeof(double))]] = double;

// Pairwise, so that the order is the same everywhere.
inline double total(const Lanes& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// Knuth's two-sum: `lost` takes what rounding takes from `sum`. Of equal fp64 elements all roundings go one way, and
// would add up to more than a right product of fp64 may be off by.
inline void add(Lanes& sum, Lanes& lost, const Lanes& x) {
  const Lanes next = sum + x, added = next - sum;
  lost += (sum - (next - added)) + (x - added);
  sum = next;
}

inline void load(Lanes& lanes, std::span<const double> values, std::size_t from) {
  const std::size_t count = std::min<std::size_t>(kLanes, values.size() - from);
  lanes = Lanes{};
  std::memcpy(&lanes, values.data() + from, count * sizeof(double));
}

inline void load_whole(Lanes& lanes, std::span<const double> values, std::size_t from) {
  std::memcpy(&lanes, values.data() + from, sizeof lanes);
}

}  // namespace

TTRACE_WIDTHS
RowSums sums_of(std::span<const double> values, std::int64_t start) {
  const Lanes zero{}, one = zero + 1.0;
  Lanes sum{}, lost{}, weighted{}, bad{}, weight = Lanes{1, 2, 3, 4, 5, 6, 7, 8} + static_cast<double>(start);
  for (std::size_t i = 0; i < values.size(); i += kLanes) {
    Lanes x;
    if (i + kLanes <= values.size()) {
      load_whole(x, values, i);
    } else {
      load(x, values, i);
    }
    const auto finite = (x <= kLargest) & (x >= -kLargest);
    x = finite ? x : zero;
    bad += finite ? zero : one;
    add(sum, lost, x);
    weighted += x * weight;
    weight += static_cast<double>(kLanes);
  }
  return {total(sum + lost), total(weighted), static_cast<std::int64_t>(total(bad))};
}

TTRACE_WIDTHS
RowStatistics statistics_of(std::span<const double> values, std::int64_t start) {
  const Lanes zero{}, one = zero + 1.0;
  Lanes sum{}, lost{}, weighted{}, bad{}, weight = Lanes{1, 2, 3, 4, 5, 6, 7, 8} + static_cast<double>(start);
  Lanes smallest = zero + kInfinity, largest = zero - kInfinity, absolute{}, square{};
  const std::size_t whole = values.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < values.size(); i += kLanes) {
    Lanes x;
    if (i < whole) {
      load_whole(x, values, i);
      smallest = x < smallest ? x : smallest;
      largest = x > largest ? x : largest;
    } else {
      load(x, values, i);
    }
    const auto finite = (x <= kLargest) & (x >= -kLargest);
    x = finite ? x : zero;
    bad += finite ? zero : one;
    add(sum, lost, x);
    weighted += x * weight;
    weight += static_cast<double>(kLanes);
    absolute += x < zero ? -x : x;
    square += x * x;
  }
  RowStatistics statistics;
  statistics.sums = {total(sum + lost), total(weighted), static_cast<std::int64_t>(total(bad))};
  for (int lane = 0; lane < kLanes; ++lane) {
    statistics.smallest = std::min(statistics.smallest, smallest[lane]);
    statistics.largest = std::max(statistics.largest, largest[lane]);
  }
  for (const double value : values.subspan(whole)) {
    statistics.smallest = std::min(statistics.smallest, value);
    statistics.largest = std::max(statistics.largest, value);
  }
  statistics.absolute = total(absolute);
  statistics.square = total(square);
  statistics.count = static_cast<std::int64_t>(values.size());
  return statistics;
}

TTRACE_WIDTHS
double dot(std::span<const double> values, std::span<const double> column) {
  const Lanes zero{};
  Lanes sum{};
  for (std::size_t i = 0; i < values.size(); i += kLanes) {
    Lanes x, y;
    if (i + kLanes <= values.size()) {
      load_whole(x, values, i);
      load_whole(y, column, i);
    } else {
      load(x, values, i);
      load(y, column, i);
    }
    const auto finite = (x <= kLargest) & (x >= -kLargest);
    sum += (finite ? x : zero) * y;
  }
  return total(sum);
}

TTRACE_WIDTHS
void statistics_of_strip(const double* tile, std::int64_t pitch, std::int64_t count, std::int64_t start,
                         RowStatistics* rows) {
  const Lanes zero{}, one = zero + 1.0;
  Lanes sum{}, lost{}, weighted{}, bad{}, absolute{}, square{}, smallest = zero + kInfinity, largest = zero - kInfinity;
  for (std::int64_t i = 0; i < count; ++i) {
    Lanes x;
    std::memcpy(&x, tile + i * pitch, sizeof x);
    smallest = x < smallest ? x : smallest;
    largest = x > largest ? x : largest;
    const auto finite = (x <= kLargest) & (x >= -kLargest);
    x = finite ? x : zero;
    bad += finite ? zero : one;
    add(sum, lost, x);
    weighted += x * static_cast<double>(start + i + 1);
    absolute += x < zero ? -x : x;
    square += x * x;
  }
  for (int r = 0; r < kStrip; ++r) {
    rows[r] = {.sums = {sum[r] + lost[r], weighted[r], static_cast<std::int64_t>(bad[r])},
               .smallest = smallest[r],
               .largest = largest[r],
               .absolute = absolute[r],
               .square = square[r],
               .count = count};
  }
}

TTRACE_WIDTHS
void dots_of_strip(const double* tile, std::int64_t pitch, std::span<const double> column, double* rows) {
  const Lanes zero{};
  Lanes sum{};
  for (std::size_t i = 0; i < column.size(); ++i) {
    Lanes x;
    std::memcpy(&x, tile + static_cast<std::int64_t>(i) * pitch, sizeof x);
    const auto finite = (x <= kLargest) & (x >= -kLargest);
    sum += (finite ? x : zero) * column[i];
  }
  std::memcpy(rows, &sum, sizeof sum);
}

}  // namespace ttrace::abft
