// The loops go through one kind of sum after the other, which compilers turn into vector instructions.
#include "abft/line_totals.h"

#include <algorithm>
#include <limits>

namespace ttrace::abft {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Adds by Knuth's two-sum.
void add_sums(double* sums, double* lost, const double* parts, const double* parts_lost, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const double next = sums[i] + parts[i], added = next - sums[i];
    lost[i] += parts_lost[i] + ((sums[i] - (next - added)) + (parts[i] - added));
    sums[i] = next;
  }
}

void add_to(double* sums, const double* parts, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sums[i] += parts[i];
}

void add_weighted(double* sums, const double* parts, const double* plain, double start, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sums[i] += parts[i] + start * plain[i];
}

void lower_to(double* smallest, const double* parts, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) smallest[i] = std::min(smallest[i], parts[i]);
}

void raise_to(double* largest, const double* parts, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) largest[i] = std::max(largest[i], parts[i]);
}

}  // namespace

void begin(PartialSums& sums, std::size_t count, const Reading& reading) {
  const auto begin_if = [count](bool wanted, std::vector<double>& numbers, double value = 0) {
    numbers.assign(wanted ? count : 0, value);
  };
  const bool plain = reading.depth >= Depth::kSums;
  begin_if(plain, sums.sum);
  begin_if(plain, sums.lost);
  begin_if(plain && reading.weighted, sums.running);
  begin_if(plain && reading.weighted, sums.weighted);
  begin_if(reading.depth >= Depth::kExtrema, sums.smallest, kInfinity);
  begin_if(reading.depth >= Depth::kExtrema, sums.largest, -kInfinity);
  begin_if(reading.depth >= Depth::kNorms, sums.absolute);
  begin_if(reading.depth >= Depth::kNorms, sums.square);
}

void LineTotals::begin(std::int64_t count, const Reading& reading) {
  abft::begin(sums_, static_cast<std::size_t>(count), reading);
  nonfinite_.assign(sums_.sum.size(), 0);
}

void LineTotals::add(std::size_t first, std::size_t count, const PartialSums& parts, std::size_t first_part,
                     std::int64_t start) {
  if (sums_.sum.empty()) return;
  add_sums(&sums_.sum[first], &sums_.lost[first], &parts.sum[first_part], &parts.lost[first_part], count);
  if (!sums_.weighted.empty()) {
    add_weighted(&sums_.weighted[first], &parts.weighted[first_part], &parts.sum[first_part],
                 static_cast<double>(start), count);
  }
  if (!sums_.smallest.empty()) {
    lower_to(&sums_.smallest[first], &parts.smallest[first_part], count);
    raise_to(&sums_.largest[first], &parts.largest[first_part], count);
  }
  if (!sums_.absolute.empty()) {
    add_to(&sums_.absolute[first], &parts.absolute[first_part], count);
    add_to(&sums_.square[first], &parts.square[first_part], count);
  }
}

void LineTotals::add_nonfinite(std::size_t first, std::size_t count, const std::vector<std::int64_t>& parts,
                               std::size_t first_part) {
  if (nonfinite_.empty() || parts.empty()) return;
  for (std::size_t i = 0; i < count; ++i) nonfinite_[first + i] += parts[first_part + i];
}

void LineTotals::finish(std::size_t first, std::size_t count, std::int64_t length,
                        std::vector<LineStatistics>& lines) const {
  if (sums_.sum.empty()) return;
  for (std::size_t i = first; i < first + count; ++i) {
    LineStatistics line{.sum = sums_.sum[i] + sums_.lost[i], .count = length, .nonfinite = nonfinite_[i]};
    if (!sums_.weighted.empty()) line.weighted = sums_.weighted[i];
    if (!sums_.smallest.empty()) line.smallest = sums_.smallest[i], line.largest = sums_.largest[i];
    if (!sums_.absolute.empty()) line.absolute = sums_.absolute[i], line.square = sums_.square[i];
    lines[i] = line;
  }
}

}  // namespace ttrace::abft
