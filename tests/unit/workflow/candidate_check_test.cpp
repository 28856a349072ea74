#include "workflow/candidate_check.h"

#include <doctest/doctest.h>

#include "workflow/artifacts.h"

using namespace ttrace;

TEST_SUITE_BEGIN("workflow");

TEST_CASE("each member of a candidate's check is set from the run file, or is left out by name") {
  RunFile file;
  file.annotations = {"gpt.yaml", {"layout=striped"}};
  file.accept_overrides = true;
  file.waivers.emplace_back();
  file.waivers.back().pattern = "mlp";
  file.waivers.back().expires = "2027-01-31";
  Job job;
  job.name = "tp2";
  job.annotations = "own.yaml";
  job.tolerance = "own-tolerance.yaml";
  const Workspace workspace("work");
  // A member that is added to CheckOptions does not compile here until it is named.
  const auto [reference, candidate, python, annotations, reference_annotations, correspondence, tolerance, bits,
              sequences, tolerance_reference, rounded_to, only, iterations, reference_iterations, candidate_iterations,
              waivers, strict, checksums, accept_overrides, allow_same_run, pictures, threads, team] =
      check_options(file, job, workspace, "2026-12-31");
  CHECK(reference == workspace.trace_of(kReference).string());
  CHECK(candidate == workspace.trace_of(candidate_artifact(job)).string());
  CHECK(annotations.file == "own.yaml");
  CHECK(reference_annotations.file == "gpt.yaml");
  CHECK(reference_annotations.settings == std::vector<std::string>{"layout=striped"});
  CHECK(tolerance == "own-tolerance.yaml");
  CHECK(waivers.size() == 1);
  CHECK(accept_overrides);
  // A run file says nothing of these; threads and pictures are the command line's.
  CHECK((correspondence.empty() && tolerance_reference.empty() && python.empty() && rounded_to.empty()));
  CHECK((only.empty() && iterations.empty()));
  CHECK((reference_iterations.empty() && candidate_iterations.empty()));
  CHECK((!strict && !bits && sequences.empty() && checksums && !allow_same_run && !pictures && threads == 0 &&
         team == nullptr));
}

TEST_CASE("a candidate's correspondence is the run file's, and says what the reference's annotations are not") {
  RunFile file;
  file.annotations = {"gpt.yaml"};
  file.correspondence = "ours.yaml";
  Job job;
  job.name = "tp2";
  job.parameters = {"layout=striped"};
  const CheckOptions options = check_options(file, job, Workspace("work"), "2026-12-31");
  CHECK(options.correspondence == "ours.yaml");
  CHECK(options.reference_annotations.file.empty());
  CHECK(options.tolerance == Workspace("work").path_of(kTolerance) / "tolerance.yaml");
}

TEST_SUITE_END();
