// Chooses the patterns of a draft's rules.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "annotate/propose.h"
#include "annotate/subjects.h"

namespace ttrace {

// Gives the rules of a draft their patterns, and drops those that are not needed.
// - Rules about members of one module (`attn`, `attn:1`) that say the same become one rule about the module.
// - A pattern is the shortest dotted suffix that fits nothing else in the traces and is no pattern of `given`. A
//   parameter keeps its module's name.
// - Where a pattern fits names of other modules all the same, that nothing tells how to place, its lines do not count.
// - A rule that says that a tensor is whole is dropped, unless another rule's pattern fits that tensor, too.
// The rules of one pattern come next to the first of them.
void choose_patterns(std::span<const Trace* const> traces, const Annotations& given, Draft& draft);

}  // namespace ttrace
