// Li et al., tables II and III: flipped bits in int8 products and in EmbeddingBags, and section IV-C's second fault
// model, any other value.
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
  std::int64_t in_b = 0, in_c = 0, runs = 0;    // a flipped bit
  std::int64_t other_in_b = 0, other_in_c = 0;  // any other value
  std::int64_t called_wrong = 0, clean = 0;     // right products, each of which is checked once
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
  const auto is_found_in_c = [&](std::uint32_t change) {
    std::int32_t& element = c[place(shape.m)];
    const std::int32_t before = element;
    element = static_cast<std::int32_t>(static_cast<std::uint32_t>(element) ^ change);
    const bool is = is_found();
    element = before;
    return is;
  };
  // An error in row i of B adds its change times column i of A to a column of C.
  const auto is_found_in_b = [&](std::uint8_t flipped_bits) {
    const std::size_t at = place(shape.k);
    const auto wrong = static_cast<std::int8_t>(static_cast<std::uint8_t>(packed[at]) ^ flipped_bits);
    const auto cols = static_cast<std::size_t>(shape.n + 1), rows_of_c = static_cast<std::size_t>(shape.m);
    const auto add_change = [&](std::int32_t change) {
      for (std::size_t row = 0; row < rows_of_c; ++row) {
        c[row * cols + at % cols] += change * a[row * static_cast<std::size_t>(shape.k) + at / cols];
      }
    };
    add_change(wrong - packed[at]);
    const bool is = is_found();
    add_change(packed[at] - wrong);
    return is;
  };
  for (int flip = 0; flip < kFlips; ++flip, ++counts.runs) {
    counts.in_c += is_found_in_c(1u << random.below(32));
    counts.in_b += is_found_in_b(static_cast<std::uint8_t>(1u << random.below(8)));
    // Bits that are not all 0, flipped, make of a value any other one, each as likely.
    counts.other_in_c += is_found_in_c(1 + static_cast<std::uint32_t>(random.below((std::int64_t{1} << 32) - 1)));
    counts.other_in_b += is_found_in_b(static_cast<std::uint8_t>(1 + random.below(255)));
  }
}

// The share of errors in B that are found, on average over shapes: of those by a change that is a multiple of 127 none,
// of the others those that meet an element of A which is no multiple of 127.
double expected_in_b(double zeros, double of_127) {
  double expected = 0;
  for (const GemmShape& shape : shapes()) {
    expected += (1 - of_127) * (1 - std::pow(zeros + (1 - zeros) * 3 / 256, static_cast<double>(shape.m)));
  }
  return expected / static_cast<double>(std::ssize(shapes()));
}

// Of two different bytes the difference is 127 for 129 of 32,640 pairs, 254 for 2.
constexpr double kOf127 = 131.0 / 32640;

void print_gemm() {
  std::vector<Row> rows = {{"", "runs", "error in B", "error in C", "no error", "expected in B"},
                           {"paper", "2800", "2663 (95.11 %)", "2800 (100 %)", "0 of 2800", "98.83 % or more"}};
  std::vector<Row> others = {{"", "runs", "error in B", "error in C", "expected in B", "expected in C"},
                             {"paper", "-", "-", "-", "96.89 % or more", "99.21 % or more"}};
  for (const double zeros : {0.0, 0.5}) {
    Random random(31);
    Counts counts;
    for (const GemmShape& shape : shapes()) {
      for (int trial = 0; trial < kProducts; ++trial) run_gemm(shape, zeros, random, counts);
    }
    const auto share = [&](std::int64_t count) {
      return fmt::format("{} ({:.2f} %)", count, 100.0 * static_cast<double>(count) / static_cast<double>(counts.runs));
    };
    const std::string operands = zeros == 0 ? "A uniform" : "half of A zero", runs = fmt::format("{}", counts.runs);
    rows.push_back({operands, runs, share(counts.in_b), share(counts.in_c),
                    fmt::format("{} of {}", counts.called_wrong, counts.clean),
                    fmt::format("{:.2f} %", 100 * expected_in_b(zeros, 0))});
    others.push_back({operands, runs, share(counts.other_in_b), share(counts.other_in_c),
                      fmt::format("{:.2f} %", 100 * expected_in_b(zeros, kOf127)),
                      fmt::format("{:.2f} %", 100 * (1 - 1.0 / 127))});
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
  print_table("DLRM section IV-C: the same, where an element becomes any other value", others);
  print_note(
      "The paper has no such runs, only bounds, 96.89 % in B and 99.21 % in C. That of B counts 255 times 128 pairs of "
      "a\n"
      "change and an element of A where there are 255 times 256, and takes it for as likely that a change is 127 as "
      "any "
      "other\n"
      "number; counted, one row of uniform A misses 1.57 %, not 3.12 %. It also lets every row look at a change of its "
      "own,\n"
      "but all rows of A meet the same one: of changes by 127 or 254, which are 0.40 % of all, no row sees any. "
      "`expected` is so\n"
      "counted. `ttrace abft` computes integer products exactly, and misses none of either model.");
}

struct BagRun {
  bool fp64 = false, fp32 = false;  // disagrees with sums in that precision
};

float sum_fp32(std::span<const float> values) {
  float sum = 0;
  for (const float value : values) sum += value;
  return sum;
}

// One bag of 100 rows of a table of `bits`. `flip` chooses one of them in one element of a row that is used; -1 is none.
// `centred`: the table's elements are around zero, so that scales and biases cancel in a sum; otherwise all positive.
BagRun run_bag(std::int64_t dimension, int bits, bool centred, int flip, Random& random) {
  constexpr std::int64_t kRows = 1000, kPooling = 100;
  std::vector<std::uint8_t> values(static_cast<std::size_t>(kRows * dimension * bits / 8));
  for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(random.bits());
  std::vector<float> scales(kRows), biases(kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    const double low = centred ? random.uniform(-4, -2) : 0, high = random.uniform(2, 4);
    scales[i] = static_cast<float>((high - low) / ((1 << bits) - 1));
    biases[i] = static_cast<float>(low);
  }
  std::vector<std::int64_t> indices(kPooling);
  for (std::int64_t& index : indices) index = random.below(kRows);
  const std::vector<std::int64_t> offsets = {0};
  const QuantisedTable table{kRows, dimension, bits, values, scales, biases};
  const Bags bags{indices, offsets, {}};
  const std::vector<std::int32_t> sums = row_sums(table);
  if (flip >= 0) {
    const std::int64_t row = indices[static_cast<std::size_t>(random.below(kPooling))];
    const std::int64_t bit = (row * dimension + random.below(dimension)) * bits + flip;
    values[static_cast<std::size_t>(bit / 8)] ^= static_cast<std::uint8_t>(1 << bit % 8);
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

void add_rows(int bits, bool centred, std::vector<Row>& rows) {
  std::int64_t found[2][3] = {}, runs[3] = {};
  Random random(37);
  for (const std::int64_t dimension : {32, 64, 128, 256}) {
    for (int trial = 0; trial < 400; ++trial) {
      const int kind = trial % 4 < 2 ? trial % 2 : 2;  // a quarter high, a quarter low, half without
      const auto bit = static_cast<int>(random.below(bits / 2));
      const BagRun run = run_bag(dimension, bits, centred, kind == 2 ? -1 : kind == 0 ? bits / 2 + bit : bit, random);
      found[0][kind] += run.fp64;
      found[1][kind] += run.fp32;
      ++runs[kind];
    }
  }
  for (int precision = 0; precision < 2; ++precision) {
    Row row = {fmt::format("{} bits, {}", bits, centred ? "around zero" : "positive"),
               precision == 0 ? "fp64" : "fp32"};
    for (int kind = 0; kind < 3; ++kind) {
      row.push_back(fmt::format("{} of {} ({:.1f} %)", found[precision][kind], runs[kind],
                                100.0 * static_cast<double>(found[precision][kind]) / static_cast<double>(runs[kind])));
    }
    rows.push_back(row);
  }
}

void print_bags() {
  std::vector<Row> rows = {{"table", "sums", "high bits", "low bits", "no error"},
                           {"paper, 8 bits", "", "199 of 200 (99.5 %)", "94 of 200 (47 %)", "38 of 400 (9.5 %)"}};
  for (const int bits : {8, 4}) {
    for (const bool centred : {true, false}) add_rows(bits, centred, rows);
  }
  print_table(
      "DLRM table III: checksums of EmbeddingBags (of this tool; pooling 100) by which an error was detected, bound "
      "1e-5",
      rows);
  print_note(
      "The bound is relative to the sum of the bag, so it depends on the table, which the paper does not give. Where\n"
      "elements are around zero the sum is small beside its terms: every flip is seen, and rounding alone exceeds the\n"
      "bound now and then. Where they are positive the sum is large: nothing is seen by mistake, and few low bits "
      "are.\n"
      "The paper's detections lie between the two; its 9.5 % of false positives was not reached. High bits are the "
      "upper\n"
      "half of an element's, low bits the lower: of a table of 4 bits, which the paper has for memory alone, two "
      "each.\n"
      "`ttrace abft` has no such checksum: it adds the rows of each bag up again, in fp64, and names the first wrong "
      "element\n"
      "of a bag with its right value. It sees every error in a result that is above rounding, and none in the table, "
      "which is\n"
      "its operand.");
}

}  // namespace

void dlrm() {
  print_gemm();
  print_bags();
}

}  // namespace ttrace::reproductions
