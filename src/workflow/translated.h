// Aligns the runs of two programs with each other.
#pragma once

#include "align/aligned_trace.h"
#include "correspond/translate.h"

namespace ttrace {

struct TranslatedRun {
  AlignedTrace candidate;   // as it was recorded
  Translation translation;  // both sides in the reference's names and index space
};

// `annotations` are of the candidate's names. Throws as `align_trace` and `translate` do.
TranslatedRun align_by_correspondence(const Correspondence& rules, const AlignedTrace& reference, Trace candidate,
                                      const Annotations& annotations);

}  // namespace ttrace
