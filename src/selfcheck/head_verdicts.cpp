#include "selfcheck/head_verdicts.h"

#include <fmt/format.h>

#include "align/holders.h"

namespace ttrace {

void HeadVerdicts::unchecked(const std::string& reason) {
  ++heads_;
  if (unchecked_++ == 0) why_not_ = reason;
}

void HeadVerdicts::wrong(std::int64_t batch, std::int64_t head, Reason reason, const std::string& what,
                         std::int64_t element) {
  ++heads_;
  if (wrong_++ > 0) return;
  reason_ = reason;
  first_ = fmt::format("head {} of sample {} {}", head, batch, what);
  ranks_ = ranks_holding(tensor_, element);
}

Finding HeadVerdicts::finding() const {
  if (wrong_ > 0) {
    Finding finding = finding_about(tensor_, Verdict::kFail, reason_,
                                    fmt::format("{}; {} of {} heads are wrong", first_, wrong_, heads_));
    finding.ranks = ranks_;
    return finding;
  }
  if (unchecked_ > 0 || heads_ == 0) {
    return finding_about(tensor_, Verdict::kUntrusted, Reason::kNotCheckable,
                         fmt::format("{} of {} heads: {}", unchecked_, heads_, why_not_));
  }
  return finding_about(tensor_, Verdict::kPass, Reason::kNone, fmt::format("{}, in {} heads", words_, heads_));
}

}  // namespace ttrace
