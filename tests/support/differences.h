// Compares tensors in memory.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "compare/compare.h"
#include "support/shards.h"

namespace ttrace::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

inline Difference difference(const LogicalTensor& reference, const LogicalTensor& candidate, int threads = 2) {
  const TensorPair pair{&reference, &candidate};
  return compare({&pair, 1}, {threads, {}, false}).front();
}

// One rank on each side.
inline Difference difference(const std::vector<float>& reference, const std::vector<float>& candidate) {
  Shards shards;
  const Shape shape = {static_cast<std::int64_t>(reference.size())};
  LogicalTensor a = shards.tensor(Dtype::kFloat32, shape), b = a;
  shards.add(a, bytes_of(reference), {.parts = {1}});
  shards.add(b, bytes_of(candidate), {.parts = {1}});
  return difference(a, b);
}

}  // namespace ttrace::test
