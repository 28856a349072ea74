// Puts a candidate's tensors into the names and the index space of another program's, which implements the same model.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "align/aligned_trace.h"
#include "base/outcome.h"
#include "correspond/correspondence.h"

namespace ttrace {

// Tells which of the sides the reference is: the one of whose names it has more. Throws InputError where no rule names
// anything on both sides.
std::size_t side_of_reference(const Correspondence& correspondence, const Trace& reference, const Trace& candidate);

// The reference's tensors in the candidate's names and index space, as far as they have counterparts there: what a
// candidate is aligned by (`layout_of`). Their pieces point into the reference.
Alignment in_names_of_candidate(const Correspondence& correspondence, std::size_t reference_side,
                                const AlignedTrace& reference, const Trace& candidate);

// A tensor of one side without a counterpart on the other.
struct LoneTensor {
  TensorId id;
  bool floating = false;  // its elements are floating-point numbers
};

// A candidate that was aligned by itself, in the names and index space of the reference.
struct Translation {
  Alignment candidate;  // its pieces point into the candidate's trace
  // The reference without tensors that have no counterpart, and without padding.
  Alignment reference;
  std::map<TensorId, std::vector<TensorId>> recorded_as;  // of each tensor, the candidate's that it is made of
  // Holds, of each parameter of the candidate, the reference's that are made of it.
  std::map<std::string, std::vector<std::string>> parameters;
  std::vector<LoneTensor> only_reference, only_candidate;
  std::vector<std::string> notes;  // rules that name nothing
};

// Throws InputError where the sizes of a pattern's axes do not follow from the shapes.
Translation translate(const Correspondence& correspondence, std::size_t reference_side, const AlignedTrace& reference,
                      const AlignedTrace& candidate);

// Says in the report what was not compared for lack of a counterpart, and that it proves nothing: of the parameters'
// tensors each, of others all where of a kind nothing was compared. Adds the candidate's names to the findings.
void add_translation(const Translation& translation, Report& report);

}  // namespace ttrace
