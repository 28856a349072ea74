// Tells where a fault struck attention from the pattern of its extreme values: ATTNChecker's Table 1, read backwards.
// The table says what an extreme value in one matrix makes of the later ones: one element (0D), row (1R) or column
// (1C), or more (2D).
//
//   a fault in   scores   probabilities   context
//   queries      1R       1R              1R
//   keys         1C       2D              2D
//   values       -        -               1C
//   scores       0D       1R              1R
//   context      -        -               0D
//
// A corrupted probability, which the table leaves out, is one element of its row's sums: it makes 1R of the context.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "abft/matrix_view.h"

namespace ttrace::abft {

// Beyond this magnitude a value is near-INF: T_near-INF (section 4.2).
constexpr double kNearInfinity = 1e10;

enum class AttentionMatrix { kQuery, kKey, kValue, kScores, kProbabilities, kContext, kOutput };

// Says where the extreme elements of a matrix are: one element, one row, one column, more.
enum class Pattern { kNone, k0D, k1R, k1C, k2D };

// The INF, NaN and near-INF elements of a matrix.
struct Extremes {
  std::int64_t infinite = 0, nan = 0, near_infinite = 0;
  Pattern pattern = Pattern::kNone;
  std::int64_t row = -1, col = -1;  // of the first extreme element, by rows

  std::int64_t count() const { return infinite + nan + near_infinite; }
};
Extremes extremes_in(const MatrixView& matrix);
std::string to_string(const Extremes& extremes);  // "1 INF and 31 NaN in one row (1R)"

// The extremes of one head's queries, keys, values, scores, probabilities and context, indexed by AttentionMatrix.
using HeadExtremes = std::array<Extremes, 6>;

struct Strike {
  enum class Where {
    kNowhere,   // no extreme values
    kHere,      // `matrix` holds the fault itself
    kInFlight,  // `matrix` was recorded right and corrupted when it was used: `seen` shows the result
    kBefore,    // several of queries, keys and values are extreme: the fault is in their operands
    kUnknown,   // no single fault of the table leaves this
  };
  Where where = Where::kNowhere;
  AttentionMatrix matrix = AttentionMatrix::kQuery;
  AttentionMatrix seen = AttentionMatrix::kQuery;  // the first with extreme values
};
Strike find_strike(const HeadExtremes& extremes);

}  // namespace ttrace::abft
