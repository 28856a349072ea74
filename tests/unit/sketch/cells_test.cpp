#include "sketch/cells.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "numeric/convert.h"
#include "sketch/signs.h"

namespace ttrace {
namespace {

std::vector<std::byte> random_elements(Dtype dtype, std::int64_t count, unsigned seed, double size = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, size);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = normal(random);
  std::vector<std::byte> elements(static_cast<std::size_t>(count * size_of(dtype)));
  narrow(values.data(), dtype, count, elements.data());
  return elements;
}

std::vector<double> widened(const std::vector<std::byte>& elements, Dtype dtype) {
  std::vector<double> values(elements.size() / static_cast<std::size_t>(size_of(dtype)));
  widen(elements.data(), dtype, static_cast<std::int64_t>(values.size()), values.data());
  return values;
}

std::vector<Cell> cells_of(const std::string& sketch, Dtype dtype) {
  std::vector<Cell> cells;
  for (std::size_t at = 0; at < sketch.size(); at += bytes_of_cell(dtype)) {
    cells.push_back(read_cell(reinterpret_cast<const std::byte*>(sketch.data()) + at, dtype));
  }
  return cells;
}

// The definition in cells.h, word by word.
Cell defined_cell(const std::vector<double>& values) {
  Cell cell;
  for (std::size_t q = 0; q < values.size(); ++q) {
    if (!std::isfinite(values[q])) {
      ++cell.nonfinite;
      continue;
    }
    const bool minus = (kSignTable.signs[q / 16] >> (q % 16) & 1) != 0;
    cell.sums[(q % 16) ^ kSignTable.lanes[q / 128]] += minus ? -values[q] : values[q];
    cell.square += values[q] * values[q];
    cell.largest = std::max(cell.largest, std::fabs(values[q]));
  }
  return cell;
}

void check_near(const Cell& cell, const Cell& other, double error) {
  const double norm = std::sqrt(other.square);
  for (std::size_t i = 0; i < kCellSums; ++i) CHECK(std::fabs(cell.sums[i] - other.sums[i]) <= error * norm);
  CHECK(cell.square == doctest::Approx(other.square).epsilon(std::max(error, 1e-12)));
  CHECK(cell.largest == other.largest);
  CHECK(cell.nonfinite == other.nonfinite);
}

constexpr Dtype kAll[] = {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16};

double error_of(Dtype dtype) { return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64 ? 1e-14 : 2e-7; }

}  // namespace

TEST_SUITE("sketch") {
  TEST_CASE("the table of signs is the one that traces were made with") {
    std::uint64_t signs = 0, lanes = 0;
    for (const std::uint16_t word : kSignTable.signs) signs = mix64(signs ^ word);
    for (const std::uint8_t lane : kSignTable.lanes) lanes = mix64(lanes ^ lane);
    int minus = 0;
    for (const std::uint16_t word : kSignTable.signs) minus += std::popcount(word);
    CHECK(std::abs(minus - 8192) < 300);
    INFO(signs, " ", lanes);
    CHECK(signs == 0x63ecbe3526e6e15a);
    CHECK(lanes == 0xb9805b73842b7b27);
  }

  TEST_CASE("a cell holds what its definition says") {
    for (const Dtype dtype : kAll) {
      for (const double size : {1.0, 1e-7, 300.0}) {
        const auto elements = random_elements(dtype, kMostCellElements, 1, size);
        check_near(sketch_cell(elements.data(), dtype, kMostCellElements), defined_cell(widened(elements, dtype)),
                   error_of(dtype));
      }
    }
  }

  TEST_CASE("NaN and Inf are counted and left out") {
    for (const Dtype dtype : kAll) {
      auto values = widened(random_elements(dtype, kMostCellElements, 2), dtype);
      values[5] = std::numeric_limits<double>::quiet_NaN();
      values[9000] = -std::numeric_limits<double>::infinity();
      std::vector<std::byte> elements(values.size() * static_cast<std::size_t>(size_of(dtype)));
      narrow(values.data(), dtype, kMostCellElements, elements.data());
      const Cell cell = sketch_cell(elements.data(), dtype, kMostCellElements);
      CHECK(cell.nonfinite == 2);
      check_near(cell, defined_cell(values), error_of(dtype));
    }
  }

  TEST_CASE("squares that fp32 does not hold are held") {
    for (const double size : {1e37, 1e25, 1e-30}) {
      const Shape shape{512, 512};
      const auto elements = random_elements(Dtype::kBFloat16, 512 * 512, 3, size);
      const auto cells = cells_of(sketch_of(elements.data(), Dtype::kBFloat16, shape, {128, 128}), Dtype::kBFloat16);
      double square = 0, of_cells = 0;
      for (const double value : widened(elements, Dtype::kBFloat16)) square += value * value;
      for (const Cell& cell : cells) {
        of_cells += cell.square;
        for (const double sum : cell.sums) CHECK(std::isfinite(sum));
      }
      CHECK(of_cells == doctest::Approx(square));
    }
    std::vector<double> mask(65536, -3.3895313892515355e38);  // what masks are filled with
    std::vector<std::byte> elements(mask.size() * 2);
    narrow(mask.data(), Dtype::kBFloat16, 65536, elements.data());
    for (const Cell& cell :
         cells_of(sketch_of(elements.data(), Dtype::kBFloat16, {256, 256}, {128, 128}), Dtype::kBFloat16)) {
      CHECK(cell.largest > 3e38);
      for (const double sum : cell.sums) CHECK(std::isfinite(sum));
    }
  }

  TEST_CASE("cells of a shard are cells of the whole, bit for bit") {
    for (const Dtype dtype : kAll) {
      const Shape whole{256, 3, 512}, edges{128, 1, 128};
      const auto elements = random_elements(dtype, element_count(whole), 4);
      const auto cells = cells_of(sketch_of(elements.data(), dtype, whole, edges), dtype);
      std::vector<std::byte> shard;  // columns 256 to 511
      const auto size = static_cast<std::size_t>(size_of(dtype));
      for (std::size_t row = 0; row < 768; ++row) {
        const auto begin = elements.begin() + static_cast<std::ptrdiff_t>((row * 512 + 256) * size);
        shard.insert(shard.end(), begin, begin + static_cast<std::ptrdiff_t>(256 * size));
      }
      const auto part = cells_of(sketch_of(shard.data(), dtype, {256, 3, 256}, edges), dtype);
      for (std::size_t outer = 0; outer < 6; ++outer) {
        for (std::size_t column = 0; column < 2; ++column) {
          CHECK(part[outer * 2 + column] == cells[outer * 4 + 2 + column]);
        }
      }
    }
  }

  TEST_CASE("cells that stick out hold what is there") {
    const Shape shape{200, 300}, edges{128, 128};
    const auto elements = random_elements(Dtype::kFloat32, element_count(shape), 5);
    const auto values = widened(elements, Dtype::kFloat32);
    const auto cells = cells_of(sketch_of(elements.data(), Dtype::kFloat32, shape, edges), Dtype::kFloat32);
    REQUIRE(cells.size() == 6);
    std::vector<double> last(kMostCellElements, 0);
    for (std::size_t row = 128; row < 200; ++row) {
      for (std::size_t column = 256; column < 300; ++column) {
        last[(row - 128) * 128 + column - 256] = values[row * 300 + column];
      }
    }
    check_near(cells.back(), defined_cell(last), 1e-14);
  }

  TEST_CASE("edges are of the columns and of the largest of the other dimensions") {
    CHECK(cell_edges(Dtype::kBFloat16, {512, 2, 1024}) == Shape{128, 1, 128});
    CHECK(cell_edges(Dtype::kBFloat16, {2, 512, 1024}) == Shape{1, 128, 128});
    CHECK(cell_edges(Dtype::kBFloat16, {2, 16, 512, 64}) == Shape{1, 1, 128, 64});
    CHECK(cell_edges(Dtype::kFloat32, {4096, 1000}) == Shape{128, 128});
    CHECK_FALSE(cell_edges(Dtype::kFloat32, {100, 100}));  // small
    CHECK_FALSE(cell_edges(Dtype::kFloat32, {1 << 20}));   // a vector
    CHECK_FALSE(cell_edges(Dtype::kInt64, {4096, 4096}));
    CHECK_FALSE(cell_edges(Dtype::kFloat8E4M3, {4096, 4096}));
    CHECK_FALSE(cell_edges(Dtype::kBFloat16, {1 << 20, 8}));      // scores of a router
    CHECK_FALSE(cell_edges(Dtype::kBFloat16, {2, 2, 2, 65536}));  // cells of 256 elements
  }
}

}  // namespace ttrace
