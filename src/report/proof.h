// Words for what a check proved, and for what it did not.
#pragma once

#include <string>

#include "base/outcome.h"

namespace ttrace {

// `1289 of 1293 floating-point tensors (param_delta 49 of 53)`; names the kinds of which some prove nothing.
std::string describe_proof(const Proofs& proofs);

// Says of what too little was proved, why, and what to do. The report must lack proof.
std::string describe_lack_of_proof(const Report& report);

// `the override 'mlp.router' of output (t.yaml:13: near ties) allows 0.2 for 4 tensors, of which 1 needs it`.
std::string describe(const OverrideUse& use);

}  // namespace ttrace
