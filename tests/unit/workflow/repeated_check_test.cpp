#include <doctest/doctest.h>

#include <string>

#include "report/junit.h"
#include "report/render.h"
#include "support/trace_builder.h"
#include "workflow/check.h"

using namespace ttrace;

namespace {

// Fills a run with sums that would round differently in another order, some of them wrong.
test::TraceBuilder& fill_sums(test::TraceBuilder& run, const std::string& run_id, double error) {
  run.run_id(run_id);
  for (int i = 0; i < 20; ++i) {
    run.tensor("layers." + std::to_string(i), Kind::kOutput, {37, 41}, [=](std::int32_t, std::int64_t k) {
      return (k % 7 - 3) * 0.1 + (i % 3 == 0 ? error * static_cast<double>(k % 5) : 0);
    });
  }
  return run;
}

std::string rendered(const CheckOptions& options) {
  const Report report = check(options).report;
  return to_text(report, {}) + to_text(report, {100}) + to_json(report) + to_junit(report, {}) + to_csv(report);
}

}  // namespace

TEST_SUITE_BEGIN("workflow");

TEST_CASE("a report has the same bytes for any number of threads, every time") {
  test::TraceBuilder reference_run, candidate_run;
  CheckOptions options;
  options.reference = fill_sums(reference_run, "reference", 0).write();
  options.candidate = fill_sums(candidate_run, "candidate", 1e-3).write();
  options.threads = 1;
  const std::string first = rendered(options);
  REQUIRE(first.find("layers.18 output") != first.npos);
  for (int repeat = 0; repeat < 100; ++repeat) {
    options.threads = (repeat % 3 == 0) ? 1 : repeat % 3 == 1 ? 2 : 7;
    if (rendered(options) != first) FAIL("another report with ", options.threads, " threads, repeat ", repeat);
  }
}

TEST_SUITE_END();
