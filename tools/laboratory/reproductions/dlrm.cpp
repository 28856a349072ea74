// Li et al., tables II and III: flipped bits in int8 products and in EmbeddingBags.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reproductions/embedding_bag.h"
#include "reproductions/multiply.h"
#include "reproductions/papers.h"
#include "reproductions/random.h"
#include "reproductions/table.h"

namespace ttrace::reproductions {
namespace {

using abft::GemmShape;

// The paper shows its 28 shapes in a figure only. These are of its kind: few rows, wide fully connected layers.
std::vector<GemmShape> shapes() {
  std::vector<GemmShape> all;
  for (const std::int64_t m : {1, 4, 16, 64}) {
    for (const auto& [n, k] :
         {std::pair{800, 3200}, {128, 512}, {256, 1024}, {512, 512}, {1024, 256}, {64, 800}, {512, 256}}) {
      all.push_back({m, n, k});
    }
  }
  return all;
}

// `zeros`: the share of A's elements that are 0, as after a ReLU.
std::vector<std::uint8_t> random_a(const GemmShape& shape, double zeros, Random& random) {
  std::vector<std::uint8_t> a(static_cast<std::size_t>(shape.m * shape.k));
  for (std::uint8_t& value : a) value = random.uniform() < zeros ? 0 : static_cast<std::uint8_t>(random.bits());
  return a;
}

struct Counts {
  std::int64_t in_b = 0, in_c = 0, runs = 0;
  std::int64_t called_wrong = 0, clean = 0;  // right products, each of which is checked once
};

// One product, into which `kFlips` errors of either kind are put one at a time.
constexpr int kProducts = 10, kFlips = 10;

void run_gemm(const GemmShape& shape, double zeros, Random& random, Counts& counts) {
  const std::vector<std::uint8_t> a = random_a(shape, zeros, random);
  std::vector<std::int8_t> b(static_cast<std::size_t>(shape.k * shape.n));
  for (std::int8_t& value : b) value = static_cast<std::int8_t>(random.bits());
  std::vector<std::int8_t> packed = abft::pack_with_checksum(b, shape.k, shape.n);
  std::vector<std::int32_t> c = multiply(a, packed, shape);
  const auto is_found = [&] { return !abft::corrupted_rows(c, shape.m, shape.n).empty(); };
  counts.called_wrong += is_found();
  ++counts.clean;
  const auto place = [&](std::int64_t rows) {
    return static_cast<std::size_t>(random.below(rows) * (shape.n + 1) + random.below(shape.n));
  };
  for (int flip = 0; flip < kFlips; ++flip, ++counts.runs) {
    std::int32_t& element = c[place(shape.m)];
    const std::int32_t before = element;
    element = static_cast<std::int32_t>(static_cast<std::uint32_t>(element) ^ (1u << random.below(32)));
    counts.in_c += is_found();
    element = before;
    // A flip in row i of B adds its change times column i of A to a column of C.
    const std::size_t at = place(shape.k);
    const auto flipped = static_cast<std::int8_t>(static_cast<std::uint8_t>(packed[at]) ^ (1u << random.below(8)));
    const auto cols = static_cast<std::size_t>(shape.n + 1), rows_of_c = static_cast<std::size_t>(shape.m);
    const auto add_change = [&](std::int32_t change) {
      for (std::size_t row = 0; row < rows_of_c; ++row) {
        c[row * cols + at % cols] += change * a[row * static_cast<std::size_t>(shape.k) + at / cols];
      }
    };
    add_change(flipped - packed[at]);
    counts.in_b += is_found();
    add_change(packed[at] - flipped);
  }
}

void print_gemm() {
  std::vector<Row> rows = {{"", "runs", "error in B", "error in C", "no error", "expected in B"},
                           {"paper", "2800", "2663 (95.11 %)", "2800 (100 %)", "0 of 2800", "98.83 % or more"}};
  for (const double zeros : {0.0, 0.5}) {
    Random random(31);
    Counts counts;
    double expected = 0;
    for (const GemmShape& shape : shapes()) {
      for (int trial = 0; trial < kProducts; ++trial) run_gemm(shape, zeros, random, counts);
      // Not found if all of m elements of A are multiples of 127: 3 of 256, or zero anyway.
      expected += 1 - std::pow(zeros + (1 - zeros) * 3 / 256, static_cast<double>(shape.m));
    }
    const auto share = [&](std::int64_t count) {
      return fmt::format("{} ({:.2f} %)", count, 100.0 * static_cast<double>(count) / static_cast<double>(counts.runs));
    };
    rows.push_back({zeros == 0 ? "A uniform" : "half of A zero", fmt::format("{}", counts.runs), share(counts.in_b),
                    share(counts.in_c), fmt::format("{} of {}", counts.called_wrong, counts.clean),
                    fmt::format("{:.2f} %", 100 * expected / static_cast<double>(std::ssize(shapes())))});
  }
  print_table("DLRM table II: int8 products in which an error was detected", rows);
  print_note(
      "An error in B is missed where A's column is a multiple of 127 in every row: rare if A is uniform. Zeros in A, "
      "as\n"
      "after a ReLU, make it frequent: with half of A zero, products of one row miss every second error. The paper's\n"
      "95.11 % is below its own bound of 98.83 % for uniform A, and between the two; its operands are not given. Its "
      "28\n"
      "shapes are in a figure only: those used here are of that kind, and not the paper's. There are 280 products, "
      "each "
      "of\n"
      "which takes 10 errors of either kind, one at a time; a right product is counted once.");
}

struct BagRun {
  bool fp64 = false, fp32 = false;  // disagrees with sums in that precision
};

float sum_fp32(std::span<const float> values) {
  float sum = 0;
  for (const float value : values) sum += value;
  return sum;
}

// One bag of 100 rows of a table. `flip` chooses a bit of 8 in one element of a row that is used; -1 is none.
// `centred`: the table's elements are around zero, so that scales and biases cancel in a sum; otherwise all positive.
BagRun run_bag(std::int64_t dimension, bool centred, int flip, Random& random) {
  constexpr std::int64_t kRows = 1000, kPooling = 100;
  std::vector<std::uint8_t> values(static_cast<std::size_t>(kRows * dimension));
  for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(random.bits());
  std::vector<float> scales(kRows), biases(kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    const double low = centred ? random.uniform(-4, -2) : 0, high = random.uniform(2, 4);
    scales[i] = static_cast<float>((high - low) / 255);
    biases[i] = static_cast<float>(low);
  }
  std::vector<std::int64_t> indices(kPooling);
  for (std::int64_t& index : indices) index = random.below(kRows);
  const std::vector<std::int64_t> offsets = {0};
  const QuantisedTable table{kRows, dimension, 8, values, scales, biases};
  const Bags bags{indices, offsets, {}};
  const std::vector<std::int32_t> sums = row_sums(table);
  if (flip >= 0) {
    const std::int64_t row = indices[static_cast<std::size_t>(random.below(kPooling))];
    values[static_cast<std::size_t>(row * dimension + random.below(dimension))] ^= static_cast<std::uint8_t>(1 << flip);
  }
  const std::vector<float> results = embedding_bag(table, bags);
  const BagCheck check = check_bags(table, bags, sums, results).front();
  float checksum = 0;
  for (const std::int64_t index : indices) {
    const auto at = static_cast<std::size_t>(index);
    checksum += scales[at] * static_cast<float>(sums[at]) + static_cast<float>(dimension) * biases[at];
  }
  return {check.disagrees(), BagCheck{sum_fp32(results), checksum}.disagrees()};
}

void add_rows(bool centred, std::vector<Row>& rows) {
  std::int64_t found[2][3] = {}, runs[3] = {};
  Random random(37);
  for (const std::int64_t dimension : {32, 64, 128, 256}) {
    for (int trial = 0; trial < 400; ++trial) {
      const int kind = trial % 4 < 2 ? trial % 2 : 2;  // a quarter high, a quarter low, half without
      const auto bit = static_cast<int>(random.below(4));
      const BagRun run = run_bag(dimension, centred, kind == 2 ? -1 : kind == 0 ? 4 + bit : bit, random);
      found[0][kind] += run.fp64;
      found[1][kind] += run.fp32;
      ++runs[kind];
    }
  }
  for (int precision = 0; precision < 2; ++precision) {
    Row row = {centred ? "around zero" : "positive", precision == 0 ? "fp64 (the library)" : "fp32"};
    for (int kind = 0; kind < 3; ++kind) {
      row.push_back(fmt::format("{} of {} ({:.1f} %)", found[precision][kind], runs[kind],
                                100.0 * static_cast<double>(found[precision][kind]) / static_cast<double>(runs[kind])));
    }
    rows.push_back(row);
  }
}

void print_bags() {
  std::vector<Row> rows = {{"table", "sums", "high bits", "low bits", "no error"},
                           {"paper", "", "199 of 200 (99.5 %)", "94 of 200 (47 %)", "38 of 400 (9.5 %)"}};
  add_rows(true, rows);
  add_rows(false, rows);
  print_table("DLRM table III: EmbeddingBags (8 bits, pooling 100) in which an error was detected, bound 1e-5", rows);
  print_note(
      "The bound is relative to the sum of the bag, so it depends on the table, which the paper does not give. Where\n"
      "elements are around zero the sum is small beside its terms: every flip is seen, and rounding alone exceeds the\n"
      "bound now and then. Where they are positive the sum is large: nothing is seen by mistake, and few low bits "
      "are.\n"
      "The paper's detections lie between the two; its 9.5 % of false positives was not reached.");
}

}  // namespace

void dlrm() {
  print_gemm();
  print_bags();
}

}  // namespace ttrace::reproductions
