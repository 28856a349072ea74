#include "correspond/sizes.h"

#include <fmt/format.h>

#include <algorithm>

namespace ttrace {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 40;  // as of a recorded dimension

// The size of what is known of a product, and what is not.
struct Partly {
  std::int64_t known = 1;
  std::vector<const AxisFactor*> open;
};

std::optional<std::int64_t> size_of_factor(const AxisFactor& factor, const AxisSizes& sizes) {
  if (factor.sum.empty()) {
    if (factor.name == "1") return 1;
    const auto found = sizes.find(factor.name);
    return found == sizes.end() ? std::nullopt : std::optional(found->second);
  }
  std::int64_t sum = 0;
  for (const AxisProduct& term : factor.sum) {
    const auto size = size_of_product(term, sizes);
    if (!size) return std::nullopt;
    sum += *size;
  }
  return sum;
}

Partly known_part(const AxisProduct& product, const AxisSizes& sizes) {
  Partly partly;
  for (const AxisFactor& factor : product) {
    const auto size = factor.padded ? std::nullopt : size_of_factor(factor, sizes);
    if (!size) {
      partly.open.push_back(&factor);
    } else if (*size > 0 && partly.known > kMostElements / *size) {
      partly.known = kMostElements;  // no dimension is as large
    } else {
      partly.known *= *size;
    }
  }
  return partly;
}

}  // namespace

std::optional<std::int64_t> size_of_product(const AxisProduct& product, const AxisSizes& sizes) {
  std::int64_t product_size = 1;
  for (const AxisFactor& factor : product) {
    const auto size = size_of_factor(factor, sizes);
    if (!size || (*size > 0 && product_size > kMostElements / *size)) return std::nullopt;
    product_size *= *size;
  }
  return product_size;
}

std::vector<AxisProduct> all_dims(const TensorPattern& pattern, std::size_t ellipsis) {
  std::vector<AxisProduct> dims = pattern.dims;
  if (!pattern.ellipsis) return dims;
  std::vector<AxisProduct> inner;
  for (std::size_t i = 0; i < ellipsis; ++i) inner.push_back({AxisFactor{fmt::format("...{}", i), {}, false}});
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(*pattern.ellipsis), inner.begin(), inner.end());
  return dims;
}

std::optional<Shape> shape_of(const TensorPattern& pattern, std::size_t ellipsis, const AxisSizes& sizes) {
  Shape shape;
  for (const AxisProduct& dim : all_dims(pattern, ellipsis)) {
    const auto size = size_of_product(dim, sizes);
    if (!size) return std::nullopt;
    shape.push_back(*size);
  }
  return shape;
}

bool SizeEquations::add(const TensorPattern& pattern, const Shape& shape) {
  if (shape.size() < pattern.dims.size() || (!pattern.ellipsis && shape.size() != pattern.dims.size())) return false;
  const std::size_t inner = shape.size() - pattern.dims.size();
  if (pattern.ellipsis) ellipsis_ = inner;
  const std::vector<AxisProduct> dims = all_dims(pattern, inner);
  for (std::size_t d = 0; d < dims.size(); ++d) equations_.push_back({dims[d], shape[d]});
  return true;
}

SizeEquations::Outcome SizeEquations::tell(const AxisProduct& product, std::int64_t value) {
  const Partly partly = known_part(product, sizes_);
  if (partly.open.empty()) return partly.known == value ? Outcome::kTold : Outcome::kWrong;
  if (partly.open.size() > 1) return Outcome::kOpen;
  const AxisFactor& open = *partly.open.front();
  if (partly.known == 0 || value % partly.known != 0) return Outcome::kWrong;
  std::int64_t rest = value / partly.known;
  if (open.name == "_") return Outcome::kTold;  // a dimension of which nothing is said
  if (open.sum.empty()) {
    sizes_.emplace(open.name, rest);
    return Outcome::kTold;
  }
  std::vector<const AxisProduct*> terms;
  for (const AxisProduct& term : open.sum) {
    if (const auto size = size_of_product(term, sizes_)) {
      rest -= *size;
    } else {
      terms.push_back(&term);
    }
  }
  if (rest < 0) return Outcome::kWrong;
  if (open.padded) return terms.empty() ? Outcome::kTold : Outcome::kOpen;
  // Terms of one axis each, the same: they share what is left.
  const auto is_same = [&](const AxisProduct* term) {
    return term->size() == 1 && term->front().name == terms.front()->front().name && !term->front().name.empty();
  };
  const auto count = static_cast<std::int64_t>(terms.size());
  if (count != 1 && !std::all_of(terms.begin(), terms.end(), is_same)) return Outcome::kOpen;
  if (rest % count != 0) return Outcome::kWrong;
  return tell(*terms.front(), rest / count);
}

bool SizeEquations::solve() {
  for (bool told = true; told;) {
    told = false;
    for (auto equation = equations_.begin(); equation != equations_.end();) {
      switch (tell(equation->product, equation->value)) {
        case Outcome::kWrong:
          return false;
        case Outcome::kOpen:
          ++equation;
          break;
        case Outcome::kTold:
          equation = equations_.erase(equation);
          told = true;
      }
    }
  }
  return true;
}

}  // namespace ttrace
