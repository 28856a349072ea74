// Verifies a matrix product without a reference: compares the sums of the rows and columns of C = A B + bias with those
// that its operands give. This costs reading A, B and C once, and the smaller of A and B once more; no matrices are
// multiplied, only matrices and vectors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "abft/matrix_view.h"
#include "abft/threshold.h"

namespace ttrace::abft {

// C [M, N] = sum over terms of A_t [M, K_t] B_t [K_t, N] + bias [M, N]. Several terms are one product whose K dimension
// is in parts: tensor parallelism, or the tokens of a weight's gradient over ranks. A bias repeats one row or one
// column (`repeated_row`, or its transpose).
struct Term {
  MatrixView a, b;
};
struct Product {
  std::vector<Term> terms;
  MatrixView c;
  std::optional<MatrixView> bias = std::nullopt;
  std::optional<Rounding> rounding =
      std::nullopt;  // set it where the views are wider than the dtypes of the computation
};
Product transposed(const Product& product);
Rounding rounding_of(const Product& product);
std::int64_t inner_length(const Product& product);  // K, of all terms together

// Computes the element at (row, col) from the operands, in fp64.
double exact_element(const Product& product, std::int64_t row, std::int64_t col);

struct VerifyOptions {
  ThresholdOptions threshold;
  std::int64_t block = 0;  // elements that one sum covers: shorter sums have smaller thresholds; 0: whole lines
  bool weighted = false;   // of `check_lines`: weighted sums and C's norms too, which cost as much again
};

// The comparison of the sums of one row of C, or of one block of it.
struct LineCheck {
  double sum_difference = 0;                     // D1 = C's sum - the operands' (V-ABFT, equation 7)
  double weighted_difference = 0;                // D2 (equation 8); 0 where it was not asked for
  double checksum = 0, weighted_checksum = 0;    // the operands' sums
  double threshold = 0, operands_threshold = 0;  // the latter without what C's own norm adds
  std::int64_t nonfinite = 0;                    // elements of C, counted as zero in the differences
  std::string_view unusable;                     // why the sums cannot be compared; empty if they can

  bool disagrees() const { return nonfinite > 0 || !(sum_difference <= threshold && -sum_difference <= threshold); }
};

// Returns the line's threshold where the squares of its elements add up to `square`.
double threshold_with_result(const LineCheck& line, const Product& product, const ThresholdOptions& options,
                             double square);

// Returns the number of blocks of `block` elements in a line; the last may be shorter. A `block` of 0 is the whole
// line.
std::int64_t block_count(std::int64_t length, std::int64_t block);

// The checks in order of lines, and of blocks within a line.
struct LineChecks {
  std::vector<LineCheck> rows, cols;
};
// Checks every line. `problem_of(product)` must be empty.
LineChecks check_lines(const Product& product, const VerifyOptions& options = {});

// Returns in one line why the product cannot be checked: shapes that do not chain, missing data, dtypes that are not
// floating-point. Empty if it can be checked.
std::string problem_of(const Product& product);

enum class Outcome {
  kVerified,  // every element lies in a row or a column whose sums agree, and no sums disagree
  kFaulty,
  kNotCheckable,  // nothing disagrees, but some or all elements were not checked; `reason` says why
};

enum class Line { kRow, kColumn };

// What the sums of a line say that its one wrong element should be: the checksum less the other elements (V-ABFT, section
// 2.2; EEC-ABFT, section 4.2). It is off by what rounding leaves between the sums, up to `threshold`.
struct SumsValue {
  double value = 0, threshold = 0;
};

// A wrong element; or, where none could be named, a line whose sums disagree.
struct Fault {
  Line line = Line::kRow;           // whose sums showed the fault
  std::int64_t row = -1, col = -1;  // -1: not known
  double value = 0;                 // in C
  double corrected = 0;             // what the operands give, rounded to C's dtype
  double difference = 0;            // D1 of the line
  double threshold = 0;
  // Absent where the line has more wrong elements, or sums that cannot be compared.
  std::optional<SumsValue> by_row = std::nullopt, by_col = std::nullopt;

  bool located() const { return row >= 0 && col >= 0; }
};

struct Verification {
  Outcome outcome = Outcome::kNotCheckable;
  std::string reason;         // of kNotCheckable
  std::vector<Fault> faults;  // located ones by row and column, then lines
  std::int64_t rows_checked = 0, cols_checked = 0;
  std::int64_t overflowed = 0;  // infinite elements of C whose operands do give a value beyond C's dtype
  double largest_ratio = 0;     // |D1| / threshold over all lines that were checked and agree
};
// Computes weighted sums and C's norms only if plain sums disagree by what the operands explain.
Verification verify(const Product& product, const VerifyOptions& options = {});

}  // namespace ttrace::abft
