#include "merge/rewritten.h"

#include <doctest/doctest.h>

#include "base/error.h"

using namespace ttrace;

TEST_SUITE_BEGIN("merge");

namespace {

Trace run(const std::string& run_id, std::optional<RewrittenFrom> rewritten = std::nullopt) {
  Trace trace;
  trace.directory = "runs/" + run_id;
  trace.run_id = run_id;
  trace.provenance.rewritten = std::move(rewritten);
  return trace;
}

}  // namespace

TEST_CASE("a run that was given what the reference recorded is compared with it") {
  const Trace reference = run("a");
  CHECK_NOTHROW(require_same_values(reference, run("b")));
  CHECK_NOTHROW(require_same_values(reference, run("b", RewrittenFrom{"a", "recorded", "", {}})));
  CHECK_NOTHROW(require_same_values(reference, run("b", RewrittenFrom{"a", "", "recorded", {}})));
  const RewrittenFrom generated{"a", "generated", "", 1};
  CHECK_NOTHROW(require_same_values(run("b", generated), run("c", generated)));
}

TEST_CASE("runs that were given different values are refused") {
  const Trace reference = run("a");
  CHECK_THROWS_WITH_AS(require_same_values(reference, run("b", RewrittenFrom{"a", "generated", "recorded", 1})),
                       "runs/b: computed with generated activations, recorded parameters of run a, and runs/a with its "
                       "own values; expected the same values in both",
                       InputError);
  CHECK_THROWS_AS(require_same_values(reference, run("b", RewrittenFrom{"other", "recorded", "", {}})), InputError);
  CHECK_THROWS_AS(require_same_values(run("b", RewrittenFrom{"a", "recorded", "", {}}), run("c")), InputError);
  CHECK_THROWS_AS(require_same_values(run("b", RewrittenFrom{"a", "generated", "", 1}),
                                      run("c", RewrittenFrom{"a", "generated", "", 2})),
                  InputError);
}

TEST_SUITE_END();
