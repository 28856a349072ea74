#include "ttrace/align/aligned_trace.h"

#include <fmt/format.h>

#include <utility>

#include "ttrace/error.h"

namespace ttrace {

AlignedTrace align_trace(Trace trace, const Annotations& annotations, const ModelLayout& layout) {
  auto owned = std::make_unique<const Trace>(std::move(trace));
  Alignment alignment = align(*owned, annotations, layout);
  return {std::move(owned), std::move(alignment)};
}

AlignedTrace align_whole(Trace trace, const Annotations& annotations, const ModelLayout& layout) {
  AlignedTrace aligned = align_trace(std::move(trace), annotations, layout);
  std::vector<Finding> findings = aligned.alignment.findings;
  std::erase_if(findings, [&](const Finding& finding) { return is_not_seen(aligned.alignment, finding); });
  if (findings.empty()) return aligned;
  throw InputError(fmt::format("{}: {}{}; expected a whole trace", aligned.trace->directory.string(),
                               findings[0].message,
                               findings.size() == 1 ? "" : fmt::format(" (and {} more)", findings.size() - 1)));
}

}  // namespace ttrace
