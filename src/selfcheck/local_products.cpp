#include "selfcheck/local_products.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "selfcheck/products.h"

namespace ttrace {
namespace {

// An operand on all ranks; whole, where it is asked for.
class Held {
 public:
  explicit Held(const Operand& operand) : operand_(operand), pieces_(operand.tensor->pieces()) {}

  std::optional<RankMatrix> on(std::int32_t rank) const {
    const std::optional<RankMatrix> matrix = rank_matrix_of(*operand_.tensor, pieces_, rank);
    return matrix && operand_.is_transposed ? transposed(*matrix) : matrix;
  }
  RankMatrix whole() const {
    if (!matrix_) matrix_ = ttrace::matrix_of(*operand_.tensor);
    const RankMatrix matrix = whole_of(*operand_.tensor, *matrix_);
    return operand_.is_transposed ? transposed(matrix) : matrix;
  }
  // The part of the whole at these places, as if the rank had gathered it; `values` keeps it.
  std::optional<RankMatrix> gathered(const Places& rows, const Places& cols, std::vector<double>& values) const {
    const RankMatrix all = whole();
    std::optional<std::vector<double>> found = values_at(all, rows, cols);
    if (!found) return {};
    values = std::move(*found);
    const abft::MatrixView view = abft::row_major(values.data(), Dtype::kFloat64, count_of(rows), count_of(cols));
    return RankMatrix{view, all.stored, rows, cols};
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

struct LocalProducts::Parts {
  Held a, b, c;
  std::optional<Held> bias;
};

std::optional<Finding> LocalProducts::check(const LogicalTensor& c, const Operand& a, const Operand& b,
                                            const LogicalTensor* bias, std::string_view operands) {
  Parts parts{Held(a), Held(b), Held({&c, false}), std::nullopt};
  if (bias != nullptr) parts.bias.emplace(Operand{bias, false});
  std::set<std::int32_t> ranks;
  for (const Piece& piece : parts.c.pieces()) ranks.insert(piece.rank);
  if (ranks.size() < 2) return {};  // the logical tensor is that rank's
  std::vector<std::int32_t> wrong;
  std::string first;
  for (const std::int32_t rank : ranks) {
    std::string what;
    const Outcome outcome = check_on(rank, parts, what, operands);
    ++counts_[outcome];
    if (outcome != Outcome::kWrong) continue;
    if (wrong.empty()) first = what;
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

LocalProducts::Outcome LocalProducts::check_on(std::int32_t rank, const Parts& parts, std::string& what,
                                               std::string_view operands) {
  const std::optional<RankMatrix> c = parts.c.on(rank);
  std::optional<RankMatrix> a = parts.a.on(rank), b = parts.b.on(rank);
  if (!c || !a || !b) return Outcome::kDoesNotFit;
  const auto is_part = [&](const Places& inner) { return inner != parts.a.whole().cols; };
  if (a->cols == b->rows && is_part(a->cols) && !parts.c.is_sum()) return Outcome::kSummed;
  std::vector<double> gathered;
  if (!chains(*a, *b, *c)) {
    // The operand that lacks rows (columns) of C, or some of what is summed over.
    const std::int64_t of_a = count_of(a->cols), of_b = count_of(b->rows);
    if (of_a < of_b || (of_a == of_b && a->rows != c->rows)) {
      a = parts.a.gathered(c->rows, b->rows, gathered);
    } else {
      b = parts.b.gathered(a->cols, c->cols, gathered);
    }
    if (!a || !b || !chains(*a, *b, *c)) return Outcome::kDoesNotFit;
  }
  const bool is_term = is_part(a->cols);
  if (is_term && !parts.c.is_sum()) return Outcome::kSummed;
  // Who adds the bias to a sum, and what else a term is, is not said.
  if (parts.c.is_sum() && (!is_term || parts.bias)) return Outcome::kDoesNotFit;
  abft::Product product{.terms = {{a->view, b->view}}, .c = c->view};
  if (parts.bias) {
    const std::optional<RankMatrix> bias = parts.bias->on(rank);
    if (!bias || bias->cols != c->cols) return Outcome::kDoesNotFit;
    product.bias = abft::repeated_row(bias->view.data, bias->view.dtype, c->view.rows, c->view.cols);
  }
  const abft::Verification result = verify_product(product, {a->stored, c->stored}, options_);
  if (result.outcome == abft::Outcome::kVerified) return Outcome::kVerified;
  if (result.outcome == abft::Outcome::kNotCheckable) return Outcome::kNotFinite;
  what = describe(result, operands);
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
