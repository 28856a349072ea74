#include "workflow/translated.h"

namespace ttrace {

TranslatedRun align_by_correspondence(const Correspondence& rules, const AlignedTrace& reference, Trace candidate,
                                      const Annotations& annotations) {
  const std::size_t side = side_of_reference(rules, *reference.trace, candidate);
  const Alignment model = in_names_of_candidate(rules, side, reference, candidate);
  TranslatedRun run;
  run.candidate = align_trace(std::move(candidate), annotations, layout_of(model));
  run.translation = translate(rules, side, reference, run.candidate);
  return run;
}

}  // namespace ttrace
