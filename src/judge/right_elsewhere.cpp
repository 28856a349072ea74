#include "judge/right_elsewhere.h"

namespace ttrace {
namespace {

TensorId of_any_microbatch(TensorId id) {
  id.iteration = 0;
  id.microbatch = 0;
  return id;
}

}  // namespace

RightElsewhere::RightElsewhere(std::span<const Finding> findings) {
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::kPass && finding.difference) right_.insert(of_any_microbatch(finding.id));
  }
}

bool RightElsewhere::contains(const TensorId& id) const { return right_.contains(of_any_microbatch(id)); }

}  // namespace ttrace
