// Tells buffers that each rank rightly keeps for itself from those that ranks forgot to keep equal.
#pragma once

#include <optional>
#include <string_view>

#include "diagnose/diagnosis.h"

namespace ttrace {

// True for the class of a module that normalises by the statistics of its batch.
bool takes_batch_statistics(std::string_view module_class);

// True for a buffer behind an iteration that the candidate's changes and the reference's leaves as it was.
bool is_changed_in_candidate_alone(const TensorId& after, const Evidence& evidence);

// True where ranks run other micro-batches than each other, each of which the reference runs: what a module keeps of one
// call is then another thing.
bool deals_microbatches(const Alignment& alignment);

// What surrounds a buffer that differs.
struct BesideBuffer {
  bool is_dealt = false;         // `deals_microbatches` of the candidate
  bool is_alone = false;         // nothing but buffers differs
  bool explains_others = false;  // something else that differs follows from it
  bool follows_steps = false;    // ranks' copies of what the iteration's steps have made differ
};

// Says in which way a buffer that differs may be each rank's own (diagnose/questions.h); nothing where it is wrong.
std::optional<Reason> own_buffer(const Finding& finding, const BesideBuffer& beside, const Evidence& evidence);

}  // namespace ttrace
