// What a module hands over when it has read a padded sample to its end, as a recurrent network its last state: of a rank
// that pads to the longest of its own samples it is another one than the reference's.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// Makes untrusted the outputs that differ on such ranks alone, `padded_shorter` by micro-batch, where no gradient comes
// back to them in the reference, and one to another output of the same call: training takes nothing of them. Says so in
// `notes`.
void set_ends_of_padding_aside(const std::map<MicrobatchKey, std::set<std::int32_t>>& padded_shorter,
                               const Alignment& reference, std::vector<Finding>& findings,
                               std::vector<std::string>& notes);

}  // namespace ttrace
