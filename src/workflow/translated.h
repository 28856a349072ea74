// Aligns the runs of two programs with each other.
#pragma once

#include <string>

#include "align/aligned_trace.h"
#include "correspond/translate.h"

namespace ttrace {

struct TranslatedRun {
  AlignedTrace candidate;   // as it was recorded
  Translation translation;  // both sides in the reference's names and index space
};

// `correspondence` is a file, or one that comes with the program; `annotations` are of the candidate's names. Throws as
// `load_correspondence`, `align_trace` and `translate` do.
TranslatedRun align_by_correspondence(const std::string& correspondence, const AlignedTrace& reference, Trace candidate,
                                      const Annotations& annotations);

}  // namespace ttrace
