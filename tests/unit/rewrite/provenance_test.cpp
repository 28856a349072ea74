#include "ttrace/rewrite/provenance.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ttrace/error.h"

using namespace ttrace;

TEST_SUITE_BEGIN("rewrite");

namespace {

Trace run(const std::string& run_id, const std::string& rewritten) {
  Trace trace;
  trace.directory = "runs/" + run_id;
  trace.run_id = run_id;
  trace.provenance = fmt::format(R"({{"rewritten": {}}})", rewritten);
  return trace;
}

std::string given(const std::string& source, const std::string& activations, const std::string& parameters = "null") {
  return fmt::format(R"({{"source": "{}", "activations": {}, "parameters": {}, "seed": null}})", source, activations,
                     parameters);
}

}  // namespace

TEST_CASE("a run that was given what the reference recorded is compared with it") {
  const Trace reference = run("a", "null");
  CHECK_NOTHROW(require_same_values(reference, run("b", "null")));
  CHECK_NOTHROW(require_same_values(reference, run("b", given("a", R"("recorded")"))));
  CHECK_NOTHROW(require_same_values(reference, run("b", given("a", "null", R"("recorded")"))));
  CHECK_NOTHROW(require_same_values(run("b", given("a", R"("generated")")), run("c", given("a", R"("generated")"))));
}

TEST_CASE("runs that were given different values are refused") {
  const Trace reference = run("a", "null");
  CHECK_THROWS_WITH_AS(require_same_values(reference, run("b", given("a", R"("generated")"))),
                       "runs/b: computed with generated activations of run a, and runs/a with its own values; "
                       "expected the same values in both",
                       InputError);
  CHECK_THROWS_AS(require_same_values(reference, run("b", given("other", R"("recorded")"))), InputError);
  CHECK_THROWS_AS(require_same_values(run("b", given("a", R"("recorded")")), run("c", "null")), InputError);
  CHECK_THROWS_AS(require_same_values(reference, run("b", "7")), InputError);
}

TEST_SUITE_END();
