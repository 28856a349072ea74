#include "workflow/option_values.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ttrace {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("an option that another needs is not typed without it") {
  CollectOptions options;
  options.perturb_at = Estimator::kRewritten;
  CHECK(to_words(options) == Words{});
  options.perturb = 7;
  CHECK(to_words(options) == Words{"--perturb", "7", "--perturb-at", "rewritten"});
}

}  // namespace
}  // namespace ttrace
