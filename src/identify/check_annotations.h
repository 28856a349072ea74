// Refuses annotations that contradict the trace or ttrace: an axis or a layout that there is not.
#pragma once

#include "identify/resolved_annotations.h"

namespace ttrace {

// Throws InputError for the first rule that names an axis or a layout that there is not, one axis twice, or
// axes of two factorings of the ranks. A mesh without axes, that of a single rank, has every axis, with size 1.
void check_annotations(const ResolvedAnnotations& annotations);

// The factoring on which the rule's axes, and `fixed` (-1: none), lie. Throws InputError where there is none.
std::size_t check_one_factoring(const ResolvedAnnotations& annotations, const AnnotationRule& rule, int fixed = -1);

}  // namespace ttrace
