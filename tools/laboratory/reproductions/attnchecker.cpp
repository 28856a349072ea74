// ATTNChecker, table 1 (how one extreme value spreads through attention that is not protected) and section 5.2 (all are
// detected and corrected in attention that is).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "reproductions/attention.h"
#include "reproductions/papers.h"
#include "reproductions/random.h"
#include "reproductions/table.h"

namespace ttrace::reproductions {
namespace {

constexpr double kNear = 1e10;
constexpr std::int64_t kSequence = 48, kWidth = 64, kHeads = 4;

constexpr AttentionMatrix kOrder[] = {
    AttentionMatrix::kQuery,         AttentionMatrix::kKey,     AttentionMatrix::kValue, AttentionMatrix::kScores,
    AttentionMatrix::kProbabilities, AttentionMatrix::kContext, AttentionMatrix::kOutput};
constexpr const char* kNames[] = {"Q", "K", "V", "AS", "AP", "CL", "O"};

enum class Error { kInfinity, kNan, kNearInfinity };
constexpr const char* kErrorNames[] = {"INF", "NaN", "nINF"};

// near-INF as the paper's: the exponent's top bit flipped, of a value below 2 a factor of 2^128. Values in [1, 2) would
// become INF or NaN; they get the exponent below.
float faulty(float value, Error error) {
  if (error == Error::kInfinity) return std::numeric_limits<float>::infinity();
  if (error == Error::kNan) return std::numeric_limits<float>::quiet_NaN();
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(fraction, std::min(exponent + 128, 127));
}

struct Model {
  DenseMatrix<float> x;
  AttentionWeights<float> weights;

  bool causal;  // as GPT; otherwise as BERT

  explicit Model(std::uint64_t seed) : x(kSequence, kWidth), causal(seed % 2 == 0) {
    Random random(seed);
    for (float& value : x.values) value = static_cast<float>(random.normal());
    for (DenseMatrix<float>* weight : {&weights.query, &weights.key, &weights.value, &weights.output}) {
      *weight = DenseMatrix<float>(kWidth, kWidth);
      for (float& value : weight->values) value = static_cast<float>(random.normal() / std::sqrt(kWidth));
    }
  }
};

// All matrices of one run, the heads side by side.
using Matrices = std::map<std::pair<AttentionMatrix, std::int64_t>, DenseMatrix<float>>;

struct Place {
  AttentionMatrix matrix;
  std::int64_t head, row, col;
};

Attention<float> run(const Model& model, bool checked, const Place* place, Error error, Matrices* seen = nullptr) {
  AttentionOptions<float> options;
  options.heads = kHeads;
  options.causal = model.causal;
  options.checked = {checked, checked, checked};
  options.computed = [&](AttentionMatrix which, std::int64_t head, DenseMatrix<float>& matrix) {
    if (place && which == place->matrix && head == place->head) {
      float& value = matrix.at(place->row, place->col);
      value = faulty(value, error);
    }
    if (seen) (*seen)[{which, head}] = matrix;
  };
  return attention(model.x, model.weights, options);
}

// 0D, 1R, 1C or 2D and the types, of the elements that became INF, NaN or near-INF; "-" if there are none.
std::string spread(const Matrices& matrices, AttentionMatrix which) {
  std::set<std::int64_t> rows, cols;
  bool infinite = false, nan = false, near = false;
  for (const auto& [id, matrix] : matrices) {
    if (id.first != which) continue;
    for (std::int64_t row = 0; row < matrix.rows; ++row) {
      for (std::int64_t col = 0; col < matrix.cols; ++col) {
        const float value = matrix.at(row, col);
        if (std::fabs(value) <= kNear) continue;
        rows.insert(row);
        cols.insert(col + id.second * matrix.cols);
        (std::isnan(value) ? nan : std::isinf(value) ? infinite : near) = true;
      }
    }
  }
  if (rows.empty()) return "-";
  const std::string shape = rows.size() == 1 ? (cols.size() == 1 ? "0D" : "1R") : cols.size() == 1 ? "1C" : "2D";
  return shape + " " + (infinite + nan + near > 1 ? "M" : infinite ? "INF" : nan ? "NaN" : "nINF");
}

Place random_place(AttentionMatrix matrix, Random& random) {
  const bool is_square = matrix == AttentionMatrix::kScores;
  const bool is_of_head = is_square || matrix == AttentionMatrix::kContext;
  const std::int64_t cols = is_square ? kSequence : is_of_head ? kWidth / kHeads : kWidth;
  return {matrix, is_of_head ? random.below(kHeads) : 0, random.below(kSequence), random.below(cols)};
}

const std::map<std::pair<Error, AttentionMatrix>, std::vector<std::string>> kPaper = {
    {{Error::kInfinity, AttentionMatrix::kQuery}, {"FI", "-", "-", "1R INF", "1R NaN", "1R NaN", "1R NaN"}},
    {{Error::kInfinity, AttentionMatrix::kKey}, {"", "FI", "-", "1C INF", "2D NaN", "2D NaN", "2D NaN"}},
    {{Error::kInfinity, AttentionMatrix::kValue}, {"", "", "FI", "-", "-", "1C M", "2D M"}},
    {{Error::kInfinity, AttentionMatrix::kScores}, {"", "", "", "FI", "1R NaN", "1R NaN", "1R NaN"}},
    {{Error::kInfinity, AttentionMatrix::kContext}, {"", "", "", "", "", "FI", "1R INF"}},
    {{Error::kNan, AttentionMatrix::kQuery}, {"FI", "-", "-", "1R NaN", "1R NaN", "1R NaN", "1R NaN"}},
    {{Error::kNan, AttentionMatrix::kKey}, {"", "FI", "-", "1C NaN", "2D NaN", "2D NaN", "2D NaN"}},
    {{Error::kNan, AttentionMatrix::kValue}, {"", "", "FI", "-", "-", "1C NaN", "2D NaN"}},
    {{Error::kNan, AttentionMatrix::kScores}, {"", "", "", "FI", "1R NaN", "1R NaN", "1R NaN"}},
    {{Error::kNan, AttentionMatrix::kContext}, {"", "", "", "", "", "FI", "1R NaN"}},
    {{Error::kNearInfinity, AttentionMatrix::kQuery}, {"FI", "-", "-", "1R M", "1R NaN", "1R NaN", "1R NaN"}},
    {{Error::kNearInfinity, AttentionMatrix::kKey}, {"", "FI", "-", "1C M", "2D NaN", "2D NaN", "2D NaN"}},
    {{Error::kNearInfinity, AttentionMatrix::kValue}, {"", "", "FI", "-", "-", "1C M", "2D M"}},
    {{Error::kNearInfinity, AttentionMatrix::kScores}, {"", "", "", "FI", "1R M", "1R M", "1R M"}},
    {{Error::kNearInfinity, AttentionMatrix::kContext}, {"", "", "", "", "", "FI", "1R M"}}};

// The two most frequent patterns.
std::string most_frequent(const std::map<std::string, int>& counts) {
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [pattern, count] : counts) order.emplace_back(-count, pattern);
  std::sort(order.begin(), order.end());
  return order.size() == 1 ? order[0].second : order[0].second + ", " + order[1].second;
}

void print_spread() {
  std::vector<Row> rows = {{"inject", "into", "Q", "K", "V", "AS", "AP", "CL", "O", "paper: AS", "AP", "CL", "O"}};
  for (const auto& [key, paper] : kPaper) {
    std::map<std::size_t, std::map<std::string, int>> seen;
    Random random(41);
    for (std::uint64_t trial = 0; trial < 40; ++trial) {
      const Model model(trial);
      const Place place = random_place(key.second, random);
      Matrices matrices;
      run(model, false, &place, key.first, &matrices);
      for (std::size_t i = 0; i < std::size(kOrder); ++i) ++seen[i][spread(matrices, kOrder[i])];
    }
    Row row = {kErrorNames[static_cast<int>(key.first)], kNames[static_cast<int>(key.second)]};
    for (std::size_t i = 0; i < std::size(kOrder); ++i) {
      row.push_back(kOrder[i] == key.second ? "FI" : most_frequent(seen[i]));
    }
    row.insert(row.end(), paper.begin() + 3, paper.end());
    rows.push_back(row);
  }
  print_table("ATTNChecker table 1: what one extreme value becomes, without protection; the most frequent of 40", rows);
  print_note(
      "FI: injected here. M: a mixture; a dash: no extreme value. Half of the runs have a causal mask, whose zero\n"
      "probabilities make NaN of an infinite V, and spare the rows before it. AP and CL are of all heads side by "
      "side.\n"
      "Near-INF becomes INF in AS, and NaN in AP, only where a product overflows; here it mostly stays finite, so\n"
      "softmax gives an ordinary, wrong, one-hot row: a dash. The paper's models have larger K, and overflow more "
      "often.");
}

void print_corrected() {
  std::vector<Row> rows = {{"into", "INF", "NaN", "nINF", "paper"}};
  for (const AttentionMatrix matrix : kOrder) {
    if (matrix == AttentionMatrix::kProbabilities) continue;  // no product
    Row row = {kNames[static_cast<int>(matrix)]};
    for (const Error error : {Error::kInfinity, Error::kNan, Error::kNearInfinity}) {
      Random random(43);
      int detected = 0, corrected = 0, faults = 0;
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        const Model model(seed);
        const Attention<float> right = run(model, true, nullptr, error);
        for (int trial = 0; trial < 10; ++trial, ++faults) {
          const Place place = random_place(matrix, random);
          const Attention<float> result = run(model, true, &place, error);
          bool found = !result.ok();
          for (const SectionReport& section : result.sections) found |= !section.corrected.empty();
          detected += found;
          bool same = true;
          for (std::size_t i = 0; i < right.output.values.size(); ++i) {
            same &= std::fabs(result.output.values[i] - right.output.values[i]) < 1e-3f;
          }
          corrected += result.ok() && same;
        }
      }
      row.push_back(fmt::format("{} detected, {} corrected of {}", detected, corrected, faults));
    }
    row.emplace_back("100 %");
    rows.push_back(row);
  }
  print_table("ATTNChecker section 5.2: one fault an execution, with this tool's self-correcting attention", rows);
  print_note(
      "100 faults each, at places drawn at random, where the paper takes 10 % of a matrix's elements. `ttrace abft` "
      "has "
      "no\n"
      "run to correct: of a trace it says where a fault struck, and what the right value is.");
}

}  // namespace

void attnchecker() {
  print_spread();
  print_corrected();
}

}  // namespace ttrace::reproductions
