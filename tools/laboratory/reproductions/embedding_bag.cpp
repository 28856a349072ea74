#include "reproductions/embedding_bag.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

namespace ttrace::reproductions {
namespace {

std::int64_t row_bytes(const QuantisedTable& table) { return (table.dimension * table.bits + 7) / 8; }

int quantised(const QuantisedTable& table, std::int64_t row, std::int64_t col) {
  const std::uint8_t* const values = table.values.data() + row * row_bytes(table);
  if (table.bits == 8) return values[col];
  return col % 2 == 0 ? values[col / 2] & 15 : values[col / 2] >> 4;
}

std::int64_t end_of(const Bags& bags, std::size_t bag) {
  return bag + 1 < bags.offsets.size() ? bags.offsets[bag + 1] : std::ssize(bags.indices);
}

// Calls `visit(row of the table, weight)` for each index of a bag.
template <class Visit>
void for_each_row(const Bags& bags, std::size_t bag, Visit visit) {
  for (std::int64_t i = bags.offsets[bag]; i < end_of(bags, bag); ++i) {
    const auto at = static_cast<std::size_t>(i);
    visit(bags.indices[at], bags.weights.empty() ? 1.0f : bags.weights[at]);
  }
}

}  // namespace

std::string problem_of(const QuantisedTable& table, const Bags& bags) {
  if (table.bits != 4 && table.bits != 8) return fmt::format("a table of {} bits; 4 or 8 were expected", table.bits);
  if (table.rows <= 0 || table.dimension <= 0) return fmt::format("a table [{}, {}]", table.rows, table.dimension);
  if (std::ssize(table.values) != table.rows * row_bytes(table)) {
    return fmt::format("the table has {} bytes, not {} rows of {}", table.values.size(), table.rows, row_bytes(table));
  }
  if (std::ssize(table.scales) != table.rows)
    return fmt::format("{} scales for {} rows", table.scales.size(), table.rows);
  if (std::ssize(table.biases) != table.rows)
    return fmt::format("{} biases for {} rows", table.biases.size(), table.rows);
  if (!bags.weights.empty() && bags.weights.size() != bags.indices.size()) {
    return fmt::format("{} weights for {} indices", bags.weights.size(), bags.indices.size());
  }
  for (const std::int64_t index : bags.indices) {
    if (index < 0 || index >= table.rows) return fmt::format("index {} of a table of {} rows", index, table.rows);
  }
  for (std::size_t bag = 0; bag < bags.offsets.size(); ++bag) {
    if (bags.offsets[bag] < 0 || bags.offsets[bag] > end_of(bags, bag)) {
      return fmt::format("bag {} is from {} to {}", bag, bags.offsets[bag], end_of(bags, bag));
    }
  }
  if (!bags.offsets.empty() && bags.offsets[0] != 0) return "the first bag does not begin with the first index";
  if (bags.offsets.empty()) return "there are no bags";
  return {};
}

std::vector<std::int32_t> row_sums(const QuantisedTable& table) {
  std::vector<std::int32_t> sums(static_cast<std::size_t>(table.rows));
  for (std::int64_t row = 0; row < table.rows; ++row) {
    for (std::int64_t col = 0; col < table.dimension; ++col) {
      sums[static_cast<std::size_t>(row)] += quantised(table, row, col);
    }
  }
  return sums;
}

std::vector<float> embedding_bag(const QuantisedTable& table, const Bags& bags) {
  const auto dimension = static_cast<std::size_t>(table.dimension);
  std::vector<float> results(bags.offsets.size() * dimension);
#pragma omp parallel for schedule(static) if (bags.indices.size() * dimension > 100000)
  for (std::size_t bag = 0; bag < bags.offsets.size(); ++bag) {
    float* const out = results.data() + bag * dimension;
    for_each_row(bags, bag, [&](std::int64_t row, float weight) {
      const float scale = weight * table.scales[static_cast<std::size_t>(row)];
      const float bias = weight * table.biases[static_cast<std::size_t>(row)];
      for (std::int64_t col = 0; col < table.dimension; ++col) {
        out[col] += scale * static_cast<float>(quantised(table, row, col)) + bias;
      }
    });
  }
  return results;
}

bool BagCheck::disagrees(double bound) const {
  return !(std::fabs(result - checksum) <= bound * std::max(std::fabs(result), std::fabs(checksum)));
}

std::vector<BagCheck> check_bags(const QuantisedTable& table, const Bags& bags, std::span<const std::int32_t> row_sums,
                                 std::span<const float> results) {
  assert(std::ssize(row_sums) == table.rows);
  assert(results.size() == bags.offsets.size() * static_cast<std::size_t>(table.dimension));
  std::vector<BagCheck> checks(bags.offsets.size());
  for (std::size_t bag = 0; bag < checks.size(); ++bag) {
    const auto dimension = static_cast<std::size_t>(table.dimension);
    for (const float value : results.subspan(bag * dimension, dimension)) checks[bag].result += value;
    for_each_row(bags, bag, [&](std::int64_t row, float weight) {
      const auto at = static_cast<std::size_t>(row);
      const double scaled = static_cast<double>(table.scales[at]) * row_sums[at];
      checks[bag].checksum += weight * (scaled + static_cast<double>(table.dimension) * table.biases[at]);
    });
  }
  return checks;
}

}  // namespace ttrace::reproductions
