// Collects the outcomes of one attention tensor's heads, and makes one finding of them.
#pragma once

#include <string>
#include <vector>

#include "selfcheck/relations.h"

namespace ttrace {

class HeadVerdicts {
 public:
  // `claim` says of the tensor what is checked ("is its queries times its keys"): the message of a pass.
  HeadVerdicts(const LogicalTensor& tensor, std::string claim) : tensor_(tensor), claim_(std::move(claim)) {}

  void add_verified() { ++heads_; }
  void add_unchecked(const std::string& reason);
  // `what` continues "head h of sample b"; `element` is the row-major number of a wrong element of the tensor.
  void add_wrong(std::int64_t batch, std::int64_t head, Reason reason, const std::string& what, std::int64_t element);

  bool is_wrong() const { return wrong_ > 0; }
  // Call it after all heads. A wrong head makes it `fail`; else a head that was not checked makes it `untrusted`.
  Finding finding() const;
  const std::string& claim() const { return claim_; }

 private:
  const LogicalTensor& tensor_;
  std::string claim_;
  std::int64_t heads_ = 0, unchecked_ = 0, wrong_ = 0;
  std::string first_objection_, first_error_;
  Reason reason_ = Reason::kNone;
  std::vector<std::int32_t> ranks_;
};

}  // namespace ttrace
