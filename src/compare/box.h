// Measures the difference in one overlay box: picks the loop that fits the two sides' types, and feeds it blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "compare/box_reader.h"
#include "compare/kernel.h"
#include "merge/overlay.h"

namespace ttrace {

// The number format that differences are computed in.
enum class Arithmetic : std::uint8_t {
  kNarrow,   // fp32: both sides one term of a narrow type, scales powers of two
  kWide,     // fp64
  kInteger,  // exact: both sides one term of an integer type, one of them int64, scales 1
};

// The block that holds the box's first largest difference.
struct LargestBlock {
  double difference = 0;  // as the block's arithmetic rounds it
  std::int64_t position = 0, elements = 0;
  Arithmetic arithmetic = Arithmetic::kNarrow;
};

struct BoxDifference {
  std::int64_t elements = 0;
  double reference_square = 0, candidate_square = 0, difference_square = 0, along = 0;
  double reference_max_abs = 0;
  BlockCounts counts;  // without the largest magnitudes
  LargestBlock largest;
  std::vector<double> row_squares;  // of each row of the box, row-major, its squared difference; empty unless asked for
};
enum class BoxRows : bool { kNo, kYes };
BoxDifference measure_box(const OverlayBox& box, double reference_scale, double candidate_scale,
                          BoxRows rows = BoxRows::kNo);

// The element with the largest difference of a measured box, and the values there.
struct WorstElement {
  std::int64_t position = 0;
  double reference = 0, candidate = 0, max_abs = 0;
};
WorstElement find_worst(const OverlayBox& box, const LargestBlock& block, double reference_scale,
                        double candidate_scale);

// True where both sides have a single term, of one dtype and with the same bytes.
bool same_bytes(const OverlayBox& box);

}  // namespace ttrace
