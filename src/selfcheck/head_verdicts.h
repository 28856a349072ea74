// What was found of one tensor of attention, head by head, as one finding.
#pragma once

#include <string>
#include <vector>

#include "selfcheck/identities.h"

namespace ttrace {

class HeadVerdicts {
 public:
  // `words`: what the tensor is where it is right ("is its queries times its keys").
  HeadVerdicts(const LogicalTensor& tensor, std::string words) : tensor_(tensor), words_(std::move(words)) {}

  void verified() { ++heads_; }
  void unchecked(const std::string& reason);
  // `what` is "is not ..."; `element` is a wrong one, by its row-major number.
  void wrong(std::int64_t batch, std::int64_t head, Reason reason, const std::string& what, std::int64_t element);

  bool is_wrong() const { return wrong_ > 0; }
  // After all heads: fail, else untrusted where any head was not checked, else pass.
  Finding finding() const;
  const std::string& words() const { return words_; }

 private:
  const LogicalTensor& tensor_;
  std::string words_;
  std::int64_t heads_ = 0, unchecked_ = 0, wrong_ = 0;
  std::string why_not_, first_;  // of the first
  Reason reason_ = Reason::kNone;
  std::vector<std::int32_t> ranks_;
};

}  // namespace ttrace
