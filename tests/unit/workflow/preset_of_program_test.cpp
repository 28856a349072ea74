// The annotations that a check takes where it is given none: those that the candidate's program names.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "support/temporary_directory.h"
#include "support/trace_builder.h"
#include "workflow/check.h"

using namespace ttrace;

namespace {

// Two matrices of gate and up, [4, 3] each, one after the other.
const std::string kWeight = "decoder.layers.0.mlp.linear_fc1.weight";

double element(std::int64_t row, std::int64_t column) { return static_cast<double>(100 * row + column); }

test::TraceBuilder& fill_reference(test::TraceBuilder& run) {
  return run.run_id("reference").tensor(kWeight, Kind::kMainGrad, {8, 3}, [](auto, std::int64_t i) {
    return element(i / 3, i % 3);
  });
}

// Each of two ranks holds its half of either matrix.
test::TraceBuilder& fill_candidate(test::TraceBuilder& run, const std::string& parallelism) {
  return run.run_id("candidate")
      .axes("tp=2")
      .provenance(R"({"parallelism": )" + parallelism + "}")
      .tensor(kWeight, Kind::kMainGrad, {4, 3}, [](std::int32_t rank, std::int64_t i) {
        const std::int64_t row = i / 3, matrix = row / 2;
        return element(4 * matrix + 2 * rank + row % 2, i % 3);
      });
}

Report check_with(const std::string& parallelism, const AnnotationSource& given = {}) {
  test::TraceBuilder reference, candidate;
  CheckOptions options;
  options.reference = fill_reference(reference).write();
  options.candidate = fill_candidate(candidate, parallelism).write();
  options.annotations = given;
  options.threads = 1;
  return check(options).report;
}

bool has_note(const Report& report, const std::string& text) {
  return std::any_of(report.notes.begin(), report.notes.end(),
                     [&](const std::string& note) { return note.find(text) != note.npos; });
}

}  // namespace

TEST_SUITE_BEGIN("workflow");

TEST_CASE("the preset that a program names places its tensors, and a note names it") {
  const Report report = check_with(R"({"preset": ["megatron_llama", "loss_scale=1"]})");
  CHECK(report.totals.counts.fail == 0);
  CHECK(report.totals.counts.pass == 1);
  CHECK(has_note(report, R"(as the program says: preset: ["megatron_llama","loss_scale=1"])"));
  // Nobody has written its rules for this trace.
  CHECK_FALSE(has_note(report, "places no tensor of the trace"));
}

TEST_CASE("without a preset, and with parameters that say otherwise, the same tensor is wrong") {
  CHECK(check_with(R"({"loss_scale": "1"})").totals.counts.fail == 1);
  CHECK(check_with(R"({"preset": ["megatron_llama", "mlp_blocks=[1]"]})").totals.counts.fail == 1);
}

TEST_CASE("annotations that a user gives take the place of the program's preset") {
  const test::TemporaryDirectory directory;
  const std::filesystem::path given = directory.path() / "contiguous.yaml";
  std::ofstream(given) << "mlp.linear_fc1.weight: {tp_dim: 0}\n";
  const std::string preset = R"({"preset": ["megatron_llama"]})";
  const Report report = check_with(preset, {.file = given.string()});
  CHECK(report.totals.counts.fail == 1);
  CHECK_FALSE(has_note(report, "as the program says"));
  CHECK(check_with(preset, {.file = "none"}).totals.counts.fail == 1);
  // A parameter alone is one of the preset's.
  CHECK(check_with(preset, {.file = "", .settings = {"mlp_blocks=[1]"}}).totals.counts.fail == 1);
}

TEST_CASE("a trace has no other file read than a preset") {
  for (const char* name : {R"(["../../gpt"])", R"(["/etc/passwd"])", R"(["gpt.yaml"])", "[]", R"("")", "7"}) {
    CAPTURE(name);
    CHECK_THROWS_WITH_AS(check_with(std::string(R"({"preset": )") + name + "}"),
                         doctest::Contains("expected the name of a preset"), InputError);
  }
  CHECK_THROWS_WITH_AS(check_with(R"({"preset": ["no_such_preset"]})"),
                       doctest::Contains("'no_such_preset', which this ttrace does not have; expected -a"), InputError);
}

TEST_SUITE_END();
