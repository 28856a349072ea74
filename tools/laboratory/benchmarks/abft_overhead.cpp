// Measures what protection costs in the library's own operators: attention, int8 products and EmbeddingBags, each with
// and without its checks in turn. Usage: abft_overhead; prints JSON, overheads in percent (medians of pairs).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "reproductions/attention.h"
#include "reproductions/embedding_bag.h"
#include "reproductions/multiply.h"
#include "reproductions/random.h"

namespace {

using namespace ttrace::abft;
using namespace ttrace::reproductions;

constexpr int kPairs = 7;
constexpr double kSecondsARun = 0.02;  // what is quicker is repeated

double seconds_of(const auto& work) {
  const auto now = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()); };
  const auto start = now();
  work();
  return (now() - start).count();
}

// Returns how much longer `checked` takes than `plain`, in percent. Both get the number of their repetition.
double overhead(const auto& plain, const auto& checked) {
  const int times = static_cast<int>(std::ceil(kSecondsARun / seconds_of([&] { plain(0); })));
  const auto repeat = [&](const auto& work, int first) {
    return seconds_of([&] {
      for (int i = 0; i < times; ++i) work(first + i);
    });
  };
  std::vector<double> ratios;
  for (int pair = 0; pair < kPairs; ++pair) {
    const double without = repeat(plain, 2 * pair * times), with = repeat(checked, (2 * pair + 1) * times);
    ratios.push_back(with / without);
  }
  std::nth_element(ratios.begin(), ratios.begin() + kPairs / 2, ratios.end());
  return 100 * (ratios[kPairs / 2] - 1);
}

void require(bool right) {
  if (right) return;
  fmt::print(stderr, "abft_overhead: a right result was called wrong\n");
  std::exit(1);
}

DenseMatrix<float> normal(std::int64_t rows, std::int64_t cols, double scale, Random& random) {
  DenseMatrix<float> matrix(rows, cols);
  for (float& value : matrix.values) value = static_cast<float>(scale * random.normal());
  return matrix;
}

double attention_overhead(std::int64_t sequence, std::int64_t width, std::int64_t heads) {
  Random random(1);
  const DenseMatrix<float> x = normal(sequence, width, 1, random);
  AttentionWeights<float> weights;
  for (DenseMatrix<float>* weight : {&weights.query, &weights.key, &weights.value, &weights.output}) {
    *weight = normal(width, width, 1 / std::sqrt(static_cast<double>(width)), random);
  }
  const auto run = [&](bool checked) {
    AttentionOptions<float> options;
    options.heads = heads;
    options.checked = {checked, checked, checked};
    require(attention(x, weights, options).ok());
  };
  return overhead([&](int) { run(false); }, [&](int) { run(true); });
}

double gemm_overhead(const GemmShape& shape) {
  Random random(2);
  std::vector<std::uint8_t> a(static_cast<std::size_t>(shape.m * shape.k));
  std::vector<std::int8_t> b(static_cast<std::size_t>(shape.k * shape.n));
  for (std::uint8_t& value : a) value = static_cast<std::uint8_t>(random.bits());
  for (std::int8_t& value : b) value = static_cast<std::int8_t>(random.bits());
  const std::vector<std::int8_t> packed = pack_with_checksum(b, shape.k, shape.n);
  const GemmShape unprotected = {shape.m, shape.n - 1, shape.k};  // all columns of B: the last stands for a checksum
  return overhead([&](int) { require(!multiply(a, b, unprotected).empty()); },
                  [&](int) { require(corrupted_rows(multiply(a, packed, shape), shape.m, shape.n).empty()); });
}

// The sizes of the paper's table I: 4,000,000 rows, pooling 100, 10 bags. Other rows each time, so that they come from
// memory.
double bag_overhead(std::int64_t dimension) {
  constexpr std::int64_t kRows = 4'000'000, kPooling = 100, kBags = 10, kSets = 4096;
  Random random(3);
  std::vector<std::uint8_t> values(static_cast<std::size_t>(kRows * dimension));
  for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(random.bits());
  const std::vector<float> scales(kRows, 0.03f), biases(kRows, 0.5f);
  std::vector<std::int64_t> indices(kSets * kPooling), offsets;
  for (std::int64_t& index : indices) index = random.below(kRows);
  for (std::int64_t bag = 0; bag < kBags; ++bag) offsets.push_back(bag * kPooling);
  const QuantisedTable table{kRows, dimension, 8, values, scales, biases};
  const std::vector<std::int32_t> sums = row_sums(table);
  const auto run = [&](int repetition, bool checked) {
    const auto first = static_cast<std::size_t>(repetition * kBags % (kSets - kBags) * kPooling);
    const Bags bags{std::span(indices).subspan(first, kBags * kPooling), offsets, {}};
    const std::vector<float> results = embedding_bag(table, bags);
    if (!checked) return;
    for (const BagCheck& check : check_bags(table, bags, sums, results)) require(!check.disagrees());
  };
  return overhead([&](int repetition) { run(repetition, false); }, [&](int repetition) { run(repetition, true); });
}

}  // namespace

int main() {
  std::vector<std::string> attentions, products, bags;
  for (const std::int64_t sequence : {128, 512}) {
    attentions.push_back(fmt::format(R"({{"sequence": {}, "width": 768, "overhead": {:.2f}}})", sequence,
                                     attention_overhead(sequence, 768, 12)));
  }
  // Few rows, wide layers: the paper's 28 shapes are in a figure only, but for the first.
  for (const std::int64_t m : {1, 16, 64}) {
    for (const auto& [n, k] : {std::pair{800, 3200}, {128, 512}, {512, 512}, {1024, 256}}) {
      products.push_back(
          fmt::format(R"({{"m": {}, "n": {}, "k": {}, "overhead": {:.2f}}})", m, n, k, gemm_overhead({m, n, k})));
    }
  }
  for (const std::int64_t dimension : {32, 64, 128, 256}) {
    bags.push_back(fmt::format(R"({{"dimension": {}, "overhead": {:.2f}}})", dimension, bag_overhead(dimension)));
  }
  fmt::print("{{\"attention\": [{}], \"int8\": [{}], \"embedding_bag\": [{}]}}\n", fmt::join(attentions, ", "),
             fmt::join(products, ", "), fmt::join(bags, ", "));
}
