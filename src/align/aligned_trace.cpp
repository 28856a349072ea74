#include "align/aligned_trace.h"

#include <fmt/format.h>

#include <utility>

#include "align/shard_mapping.h"
#include "base/error.h"
#include "identify/program.h"

namespace ttrace {

namespace {

AlignedTrace settle_and_align(Trace trace, const Annotations& annotations, const ModelLayout& layout, int threads,
                              AxesOf whose) {
  settle_axes(trace, annotations, whose);
  auto owned = std::make_unique<const Trace>(std::move(trace));
  Alignment alignment = align(*owned, annotations, layout, threads);
  return {std::move(owned), std::move(alignment)};
}

}  // namespace

AlignedTrace align_trace(Trace trace, const Annotations& annotations, const ModelLayout& layout, int threads) {
  return settle_and_align(std::move(trace), annotations, layout, threads, AxesOf::kThisTrace);
}

AlignedTrace align_whole(Trace trace, const Annotations& annotations, const ModelLayout& layout, int threads) {
  if (trace.failure) {
    throw InputError(fmt::format("{}: {}; expected a whole trace", trace.directory.string(), *trace.failure));
  }
  AlignedTrace aligned = settle_and_align(std::move(trace), annotations, layout, threads, AxesOf::kAnother);
  std::vector<Finding> findings = aligned.alignment.findings;
  std::erase_if(findings, [&](const Finding& finding) { return is_not_seen(aligned.alignment, finding); });
  if (findings.empty()) return aligned;
  throw InputError(fmt::format("{}: {}{}; expected a whole trace", aligned.trace->directory.string(),
                               findings[0].message,
                               findings.size() == 1 ? "" : fmt::format(" (and {} more)", findings.size() - 1)));
}

}  // namespace ttrace
