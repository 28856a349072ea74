// The JSON text that a rank file holds as `provenance`.
#pragma once

#include <string>
#include <string_view>

#include "ttrace/provenance.h"

namespace ttrace {

// A fact of another type than it should have is not known. Throws InputError (`where` says what held the text) where
// the text is no JSON object, and where what decides which runs may be compared is not as `ttrace collect` writes it:
// `perturb_seed`, `perturb_at` (of a perturbed run; "input" where it is not said), `rewritten`.
Provenance parse_provenance(std::string text, std::string_view where);

}  // namespace ttrace
