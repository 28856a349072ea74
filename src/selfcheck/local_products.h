// The product on each rank alone, Y_r = X_r W_r^T, before that of the logical tensors: which rank's arithmetic is
// wrong.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "selfcheck/identities.h"
#include "selfcheck/rank_matrix.h"

namespace ttrace {

struct Operand {
  const LogicalTensor* tensor = nullptr;
  bool is_transposed = false;
};

// C = A B on the ranks that hold C. An operand of which a rank holds another part than its part of C needs must have
// been gathered (sequence parallelism): the whole stands for it.
class LocalProducts {
 public:
  explicit LocalProducts(const SelfCheckOptions& options) : options_(options) {}

  // The finding where it is wrong on some rank. `bias`: of the columns of C, or null.
  std::optional<Finding> check(const LogicalTensor& c, const Operand& a, const Operand& b, const LogicalTensor* bias,
                               std::string_view operands);
  // What was checked, and what was not and why; empty where nothing is on several ranks.
  std::string note() const;

 private:
  enum class Outcome { kVerified, kWrong, kNotFinite, kSummed, kDoesNotFit };
  struct Parts;

  Outcome check_on(std::int32_t rank, const Parts& parts, std::string& what, std::string_view operands);

  const SelfCheckOptions& options_;
  std::map<Outcome, std::int64_t> counts_;
};

}  // namespace ttrace
