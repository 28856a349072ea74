#include "selfcheck/local_products.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "selfcheck/products.h"

namespace ttrace {
namespace {

// An operand as the ranks hold it. The whole matrix is made when it is first asked for.
class DistributedOperand {
 public:
  explicit DistributedOperand(const Operand& operand) : operand_(operand), pieces_(operand.tensor->pieces()) {}

  std::optional<RankMatrix> on(std::int32_t rank) const {
    const std::optional<RankMatrix> matrix = rank_matrix_of(*operand_.tensor, pieces_, rank);
    return matrix && operand_.is_transposed ? transposed(*matrix) : matrix;
  }
  RankMatrix whole() const {
    if (!matrix_) matrix_ = ttrace::matrix_of(*operand_.tensor);
    const RankMatrix matrix = whole_matrix_of(*operand_.tensor, *matrix_);
    return operand_.is_transposed ? transposed(matrix) : matrix;
  }
  // Returns the part of the whole at these indices, as if a rank had gathered it. `values` owns the elements.
  std::optional<RankMatrix> gathered(const Stretches& rows, const Stretches& cols, std::vector<double>& values) const {
    const RankMatrix matrix = whole();
    std::optional<std::vector<double>> found = gather_values(matrix, rows, cols);
    if (!found) return {};
    values = std::move(*found);
    const abft::MatrixView view = abft::row_major(values.data(), Dtype::kFloat64, index_count(rows), index_count(cols));
    return RankMatrix{view, matrix.stored, rows, cols};
  }
  const std::vector<Piece>& pieces() const { return pieces_; }
  bool is_sum() const {
    return std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.term > 0; });
  }

 private:
  Operand operand_;
  std::vector<Piece> pieces_;
  mutable std::optional<Matrix> matrix_;
};

bool chains(const RankMatrix& a, const RankMatrix& b, const RankMatrix& c) {
  return a.rows == c.rows && b.cols == c.cols && a.cols == b.rows;
}

}  // namespace

struct LocalProducts::Product {
  DistributedOperand a, b, c;
  std::optional<DistributedOperand> bias;
};

std::optional<Finding> LocalProducts::check(const LogicalTensor& c, const Operand& a, const Operand& b,
                                            const LogicalTensor* bias, std::string_view operands) {
  const Product product{DistributedOperand(a), DistributedOperand(b), DistributedOperand({&c, false}),
                        bias == nullptr ? std::nullopt : std::optional<DistributedOperand>(Operand{bias, false})};
  std::set<std::int32_t> ranks;
  for (const Piece& piece : product.c.pieces()) ranks.insert(piece.rank);
  if (ranks.size() < 2) return {};  // the check of the logical tensor is the same
  std::vector<std::int32_t> wrong;
  std::string first;
  for (const std::int32_t rank : ranks) {
    std::string error;
    const Outcome outcome = check_on(rank, product, operands, /*of_part=*/false, error);
    ++counts_[outcome];
    if (outcome != Outcome::kWrong) continue;
    if (wrong.empty()) first = error;
    wrong.push_back(rank);
  }
  if (wrong.empty()) return {};
  Finding finding =
      finding_about(c, Verdict::kFail, Reason::kProductDiffers,
                    fmt::format("on rank{} {} alone {} (of the rank's own part); it is right on {} of {} ranks",
                                wrong.size() == 1 ? "" : "s", fmt::join(wrong, ", "), first,
                                ranks.size() - wrong.size(), ranks.size()));
  finding.ranks = std::move(wrong);
  return finding;
}

std::optional<Finding> LocalProducts::find_unsummed(const LogicalTensor& c, const Operand& a, const Operand& b) {
  const Product product{DistributedOperand(a), DistributedOperand(b), DistributedOperand({&c, false}), std::nullopt};
  if (product.c.is_sum()) return {};
  std::set<std::int32_t> ranks;
  for (const Piece& piece : product.c.pieces()) ranks.insert(piece.rank);
  for (const std::int32_t rank : ranks) {
    std::string error;
    if (check_on(rank, product, "", /*of_part=*/true, error) != Outcome::kVerified) return {};
  }
  Finding finding = finding_about(c, Verdict::kFail, Reason::kProductDiffers,
                                  "is on each rank what the rank's own part of the product gives: it was not summed "
                                  "over the ranks");
  finding.ranks.assign(ranks.begin(), ranks.end());
  return finding;
}

LocalProducts::Outcome LocalProducts::check_on(std::int32_t rank, const Product& product, std::string_view operands,
                                               bool of_part, std::string& error) {
  const std::optional<RankMatrix> c = product.c.on(rank);
  std::optional<RankMatrix> a = product.a.on(rank), b = product.b.on(rank);
  if (!c || !a || !b) return Outcome::kDoesNotFit;
  const auto is_part_of_k = [&](const Stretches& inner) { return inner != product.a.whole().cols; };
  if (a->cols == b->rows && is_part_of_k(a->cols) && !product.c.is_sum() && !of_part) return Outcome::kSummed;
  std::vector<double> gathered;
  if (!chains(*a, *b, *c)) {
    // The rank gathered the operand that has less of the summed dimension, or else the one without all rows (columns)
    // of C.
    const std::int64_t a_length = index_count(a->cols), b_length = index_count(b->rows);
    if (a_length < b_length || (a_length == b_length && a->rows != c->rows)) {
      a = product.a.gathered(c->rows, b->rows, gathered);
    } else {
      b = product.b.gathered(a->cols, c->cols, gathered);
    }
    if (!a || !b || !chains(*a, *b, *c)) return Outcome::kDoesNotFit;
  }
  const bool is_term = is_part_of_k(a->cols);
  if (of_part && !is_term) return Outcome::kDoesNotFit;
  if (is_term && !product.c.is_sum() && !of_part) return Outcome::kSummed;
  // C was recorded as terms of a sum over ranks. A rank's term is known to be its product alone only if the rank holds
  // a part of the summed dimension, and if there is no bias: the trace does not say which rank adds it.
  if (product.c.is_sum() && (!is_term || product.bias)) return Outcome::kDoesNotFit;
  abft::Product local{.terms = {{a->view, b->view}}, .c = c->view};
  if (product.bias) {
    const std::optional<RankMatrix> bias = product.bias->on(rank);
    if (!bias || bias->cols != c->cols) return Outcome::kDoesNotFit;
    local.bias = abft::repeated_row(bias->view.data, bias->view.dtype, c->view.rows, c->view.cols);
  }
  const abft::Verification result = verify_product(local, {a->stored, c->stored}, options_);
  if (result.outcome == abft::Outcome::kVerified) return Outcome::kVerified;
  if (result.outcome == abft::Outcome::kNotCheckable) return Outcome::kNotFinite;
  error = describe(result, operands);
  return Outcome::kWrong;
}

std::string LocalProducts::note() const {
  if (counts_.empty()) return {};
  const auto count = [&](Outcome outcome) {
    const auto found = counts_.find(outcome);
    return found == counts_.end() ? 0 : found->second;
  };
  std::string text = fmt::format("rank by rank, {} products are right and {} wrong", count(Outcome::kVerified),
                                 count(Outcome::kWrong));
  const auto add = [&](Outcome outcome, std::string_view why) {
    if (count(outcome) > 0) text += fmt::format("; {} {}", count(outcome), why);
  };
  add(Outcome::kSummed, "were recorded after their sum over ranks, and are checked as a whole only");
  add(Outcome::kNotFinite, "have sums or operands that say nothing");
  add(Outcome::kDoesNotFit, "have operands of which the rank holds another part");
  return text;
}

}  // namespace ttrace
