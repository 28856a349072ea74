// Checks the product on each rank alone, Y_r = X_r W_r^T, to tell which rank's arithmetic is wrong. The product of the
// logical tensors only tells that something is.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "selfcheck/rank_matrix.h"
#include "selfcheck/relations.h"

namespace ttrace {

struct Operand {
  const LogicalTensor* tensor = nullptr;
  bool is_transposed = false;
};

// Checks C = A B on every rank that holds a part of C. A rank that holds another part of an operand than its part of C
// needs must have gathered the operand (sequence parallelism): its part is then taken from the logical tensor.
class LocalProducts {
 public:
  explicit LocalProducts(const SelfCheckOptions& options) : options_(options) {}

  // Returns a finding if the product is wrong on some rank. `bias` has one number for each column of C, or is null.
  // `operands` names the product in the message.
  std::optional<Finding> check(const LogicalTensor& c, const Operand& a, const Operand& b, const LogicalTensor* bias,
                               std::string_view operands);
  // Returns a finding if C, which had to be summed over ranks, is on each of them what the rank's own parts of A and B
  // give.
  std::optional<Finding> find_unsummed(const LogicalTensor& c, const Operand& a, const Operand& b);
  // Counts the products that were checked, and those that were not, with the reasons; empty if no product lies on
  // several ranks.
  std::string note() const;

 private:
  enum class Outcome { kVerified, kWrong, kNotFinite, kSummed, kDoesNotFit };
  struct Product;

  // `of_part`: C, which was recorded after its sum over ranks, is compared with what was to be summed.
  Outcome check_on(std::int32_t rank, const Product& product, std::string_view operands, bool of_part,
                   std::string& error);

  const SelfCheckOptions& options_;
  std::map<Outcome, std::int64_t> counts_;
};

}  // namespace ttrace
