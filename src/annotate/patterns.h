// Chooses the patterns of a draft's rules.
#pragma once

#include <string>
#include <vector>

#include "annotate/subjects.h"
#include "ttrace/annotate/propose.h"

namespace ttrace {

// Replaces rules about members of one module (`attn`, `attn:1`) that say the same by one rule about the module; the
// others keep their patterns.
void merge_members(std::vector<DraftRule>& rules);

// Gives each rule the shortest dotted suffix of its pattern that fits nothing else in the trace and is no
// pattern of `given`. A parameter keeps its module's name.
void shorten_patterns(const Trace& trace, const Annotations& given, std::vector<DraftRule>& rules);

}  // namespace ttrace
