// EmbeddingBag over a quantised table, checked by the table's row sums (Li et al., section V).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ttrace::reproductions {

// Row i stands for scales[i] * q + biases[i]; q has 8 bits, or 4: two a byte, the first in the lower half.
struct QuantisedTable {
  std::int64_t rows = 0, dimension = 0;
  int bits = 8;
  std::span<const std::uint8_t> values;  // rows * ceil(dimension * bits / 8), each row from a new byte
  std::span<const float> scales, biases;
};

// Bag b holds the indices offsets[b] up to offsets[b + 1], or to the end. Without weights every weight is 1.
struct Bags {
  std::span<const std::int64_t> indices, offsets;
  std::span<const float> weights;
};

// Spans that do not fit the shape, an index beyond the table, offsets that fall: one line. Empty if all is well.
std::string problem_of(const QuantisedTable& table, const Bags& bags);

// C_T: the sums of each row's q, exact integers without scale and bias, computed once when the table is made.
std::vector<std::int32_t> row_sums(const QuantisedTable& table);

// [bags, dimension], each element summed in fp32 in order of the indices.
std::vector<float> embedding_bag(const QuantisedTable& table, const Bags& bags);

// The two sums of a bag: sum_j R[j] and sum_i w_i (scale_i C_T[i] + d bias_i) (equation 5).
struct BagCheck {
  double result = 0, checksum = 0;

  // `bound` is relative to the larger of the two; 1e-5 in the paper (section V-D). NaN disagrees.
  bool disagrees(double bound = 1e-5) const;
};
std::vector<BagCheck> check_bags(const QuantisedTable& table, const Bags& bags, std::span<const std::int32_t> row_sums,
                                 std::span<const float> results);

}  // namespace ttrace::reproductions
