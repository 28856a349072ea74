// Verifies a recorded product by its recorded operands, and words the outcome.
#pragma once

#include <string>
#include <string_view>

#include "abft/verify.h"
#include "selfcheck/selfcheck.h"

namespace ttrace {

// `rounding` has the dtypes that operands and product were recorded in, which views of copies in fp64 do not tell;
// `roundings` is as in abft::ThresholdOptions.
abft::Verification verify_product(const abft::Product& product, abft::Rounding rounding,
                                  const SelfCheckOptions& options, double roundings = 1);

// Describes a faulty product: "is not its input times its weight: row 2, column 1 is 77, not 0.5 (by the sums of its row
// 0.499, of its column 0.5); ...". The sums say nothing where the error is no larger than what they may round by.
std::string describe(const abft::Verification& faulty, std::string_view operands);

}  // namespace ttrace
