// Works out the sizes of a pattern's axes from the shapes of tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "correspond/index_pattern.h"
#include "numeric/shape.h"

namespace ttrace {

using AxisSizes = std::map<std::string, std::int64_t>;

// Shapes of tensors, and what their dimensions are made of.
class SizeEquations {
 public:
  explicit SizeEquations(AxisSizes known) : sizes_(std::move(known)) {}

  // Returns false where the tensor has another number of dimensions.
  bool add(const TensorPattern& pattern, const Shape& shape);

  // Finds the sizes that follow, one equation after the other: each may tell one axis that no other has told. Returns
  // false where the equations contradict each other.
  bool solve();

  const AxisSizes& sizes() const { return sizes_; }
  // The dimensions that '...' stands for; they have the names `...0`, `...1` among the sizes.
  std::size_t ellipsis() const { return ellipsis_; }

 private:
  struct Equation {
    AxisProduct product;
    std::int64_t value = 0;
  };
  enum class Outcome : std::uint8_t { kOpen, kTold, kWrong };

  Outcome tell(const AxisProduct& product, std::int64_t value);

  AxisSizes sizes_;
  std::vector<Equation> equations_;
  std::size_t ellipsis_ = 0;
};

// The product of the axes' sizes; nothing where one is not known. Padding does not count.
std::optional<std::int64_t> size_of_product(const AxisProduct& product, const AxisSizes& sizes);

// The dimensions of a tensor, with an axis `...N` for each that '...' stands for.
std::vector<AxisProduct> all_dims(const TensorPattern& pattern, std::size_t ellipsis);

// The shape of a tensor, without its padding; nothing where a size is not known.
std::optional<Shape> shape_of(const TensorPattern& pattern, std::size_t ellipsis, const AxisSizes& sizes);

}  // namespace ttrace
