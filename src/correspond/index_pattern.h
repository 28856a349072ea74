// Patterns of dimensions: which element of some tensors is which element of others.
//
//   pattern   side '->' side               'b s c -> s b c'
//   side      tensor {',' tensor}          '(g n d) c, (g d) c, (g d) c -> (g (n + 1 + 1) d) c'
//   tensor    dimensions, parted by blanks
//   dimension factor, '...', or '(' factors ')', the first being the slowest, as in einops
//   factor    a name of an axis, 1, or a sum: '(' factors {'+' factors} ')'
//
// This is the notation of einx (https://einx.readthedocs.io), which adds to that of einops the sum, for concatenation.
// A tensor has at most one sum. The tensors of a side, each with a sum taken apart into its terms, are its parts, in
// the order written: part k of one side is part k of the other, made of the same axes. Where one side has one part and
// the other several, each of these is a copy of that one. A last term '_' of a sum that is a whole dimension is
// padding: it is nowhere else. '...' stands for any number of dimensions, the same on both sides.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// The text says what is wrong with a pattern, and what was expected.
class PatternError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct AxisFactor;
using AxisProduct = std::vector<AxisFactor>;  // the first is the slowest; empty: 1

struct AxisFactor {
  std::string name;              // empty: a sum
  std::vector<AxisProduct> sum;  // two terms or more
  bool padded = false;           // the sum's last term is padding, which `sum` does not have
};

struct TensorPattern {
  std::vector<AxisProduct> dims;        // without the ellipsis
  std::optional<std::size_t> ellipsis;  // the dimensions that it stands for come before this one of `dims`

  const AxisFactor* sum() const;  // null: it has none
  bool has_padding() const;
};

// A part of a side: a tensor, or a term of its sum.
struct PatternPart {
  std::size_t tensor = 0, term = 0;
  std::set<std::string> axes;
};

struct IndexPattern {
  std::string text;
  std::vector<TensorPattern> sides[2];

  std::vector<PatternPart> parts(std::size_t side) const;
  bool copies() const { return parts(0).size() != parts(1).size(); }
};

// Every element is the one of the same index.
inline constexpr std::string_view kSameIndices = "... -> ...";

// Throws PatternError. `left_axes` and `right_axes` are axes that the names of a side's tensors number, as
// `experts.{e}` does: the other side must have them.
IndexPattern parse_index_pattern(std::string_view text, const std::set<std::string>& left_axes = {},
                                 const std::set<std::string>& right_axes = {});

// Reads the notation alone: the sides may have other axes than each other. Throws PatternError.
IndexPattern read_index_pattern(std::string_view text);

// Returns the text of a pattern, with terms of several factors in parentheses of their own.
std::string to_string(const IndexPattern& pattern);

void rename_axis(const std::string& from, const std::string& to, IndexPattern& pattern);

// Returns the axes that stand beside another factor, as both do in `(g d)`: no shape tells their sizes.
std::set<std::string> axes_inside_products(const IndexPattern& pattern);

// Reads a single tensor's pattern, which may have dimensions '_' of which nothing is said. Throws PatternError.
TensorPattern parse_tensor_pattern(std::string_view text);

}  // namespace ttrace
