// Finds which rows of one program's parameters are rows of another's, by their values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "merge/values.h"

namespace ttrace {

// A hash of each row; rows of equal elements, which tell nothing, are 0. A row is what the last dimension holds, or
// where `transposed` is true, the last but one.
std::vector<std::uint64_t> hash_rows(const Values& values, const Shape& shape, bool transposed);

struct RowPlace {
  std::size_t tensor = 0;
  std::int64_t row = 0;
};

// A tensor that holds the rows of others: of which, and which, for each of its rows. -1: of none, or not known.
struct RowMap {
  std::vector<std::int64_t> part, row;
};

// Says how the parts lie in the whole, in patterns of a dimension each: `(g n d)`, `(g d)`, `(g d)` in
// `(g (n + 1 + 1) d)`.
struct RowPattern {
  std::vector<std::size_t> order;  // of the parts, as the whole has them
  std::vector<std::string> parts;  // in this order
  std::string whole;
  std::map<std::string, std::int64_t> sizes;  // of axes, by name
  std::string remark;
};

// Returns what the runs of rows look like, which values must confirm: one after the other, by groups of heads, with
// rotary halves and rotary pairs in each other's place, with padding at the end. `rows` are the numbers of rows of the
// parts. Nothing where the map looks like none of these.
std::optional<RowPattern> row_pattern(const RowMap& map, std::span<const std::int64_t> rows);

}  // namespace ttrace
