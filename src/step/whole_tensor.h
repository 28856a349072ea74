// Computes what Adafactor's step takes from the whole of a tensor, and not from an element of it:
//
//   g = clip_factor main_grad,  s = g^2 + eps,  b2 = beta2 of this step
//   v = b2 v + (1 - b2) s    where it is factored,  v = R C / max(mean(R), floor)  of
//   R = b2 R + (1 - b2) mean of s over one dimension,  C = b2 C + (1 - b2) mean of s over the other
//   u = g / max(sqrt(v), floor),  a = lr max(least_scale, rms(p)) u / max(1, rms(u) / threshold)
//   update = -a, or with momentum -m of m = b1 m + (1 - b1) a,  - weight_decay p  (PyTorch: lr weight_decay p)
//
// A recorded v is R C / mean(R), too. R and C are the means of it, since the means of these are the same number.
#pragma once

#include <cstdint>
#include <vector>

#include "step/series.h"

namespace ttrace {

// Tells which of the factors of a second moment an element's is made of.
struct FactoredIndex {
  std::int64_t averaged_by_row = 1, stride_by_row = 1, averaged_by_column = 1, stride_by_column = 1;

  std::int64_t row_of(std::int64_t element) const { return without(element, averaged_by_row, stride_by_row); }
  std::int64_t column_of(std::int64_t element) const { return without(element, averaged_by_column, stride_by_column); }

 private:
  static std::int64_t without(std::int64_t element, std::int64_t size, std::int64_t stride) {
    return element / (stride * size) * stride + element % stride;
  }
};

// Of one update.
struct WholeTensor {
  double lr = 0;  // what multiplies u: with the size of the parameter, and clipped
  FactoredIndex index{};
  std::vector<double> rows, columns;  // R / mean(R) and C; empty: each element has a second moment of its own
  double rounding = 0;                // what the optimizer's own sums may round, relative to u

  // Where it is factored.
  double second_moment(std::int64_t element) const {
    return rows[static_cast<std::size_t>(index.row_of(element))] *
           columns[static_cast<std::size_t>(index.column_of(element))];
  }
};

// Returns one for each update of the series; none where no rule needs it.
std::vector<WholeTensor> find_whole_tensors(const ParameterSeries& series);

}  // namespace ttrace
