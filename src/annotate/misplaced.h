// Finds rules that split what is whole, by the shapes and the bits that ranks recorded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "align/aligned_trace.h"

namespace ttrace {

// True where several ranks hold parts of the tensor, all with the same bits. Of parts that are all one value that does
// not tell whether they are copies.
bool has_equal_copies(const LogicalTensor& tensor);

// True where they are copies, not parts of something larger: their bits are not all one value.
bool is_same_on_all_ranks(const LogicalTensor& tensor);

struct Misplacement {
  const AnnotationRule* rule = nullptr;
  std::string text;  // what is wrong, and what to write
};

// Finds, once for each rule, kind and member of a module, tensors that a rule splits although their parts do not make
// up the reference's shape; without a `reference` (null), inputs and outputs that a rule splits although all ranks hold
// the same bits, which are not all one value: an attention mask, below a rule for hidden states.
std::vector<Misplacement> find_misplaced(const AlignedTrace& aligned, const Annotations& annotations,
                                         const Alignment* reference);

// Returns the number of tensors that rules split over sp, where the mesh says that sp uses the ranks of another axis
// and each of these tensors is whole on all ranks: the program runs without sequence parallelism. 0 where it does not,
// or where nothing tells.
std::int64_t count_whole_sequences(const AlignedTrace& aligned, const Annotations& annotations,
                                   const Alignment* reference);

}  // namespace ttrace
