// Sums over a stretch of fp64 values in cache, eight lanes wide. The number of lanes is fixed and no multiply-add is
// fused, so every machine gets the same bits, whatever the width of its registers.
#pragma once

#include <cstdint>
#include <span>

#include "ttrace/abft/checksum.h"

namespace ttrace::abft {

// Element i has weight start + i + 1. Of a stretch that `statistics_of` sums, `sums` are those of `sums_of`.
RowSums sums_of(std::span<const double> values, std::int64_t start);
RowStatistics statistics_of(std::span<const double> values, std::int64_t start);

// The same of eight rows at once, for a matrix whose columns are contiguous: element `i` of row `r` is
// tile[i * pitch + r].
constexpr int kStrip = 8;
void statistics_of_strip(const double* tile, std::int64_t pitch, std::int64_t count, std::int64_t start,
                         RowStatistics* rows);
void dots_of_strip(const double* tile, std::int64_t pitch, std::span<const double> column, double* rows);

// Elements of `values` that are not finite count as zero, here and in strips. Equal lengths.
double dot(std::span<const double> values, std::span<const double> column);

}  // namespace ttrace::abft
