#include "workflow/candidate_check.h"

#include "workflow/artifacts.h"

namespace ttrace {
namespace {

// Returns the reference's own annotations where the candidate has others: the ones that its tolerances were estimated
// by. Empty where the file says none, or the candidate is another program, whose annotations say nothing of it.
AnnotationSource annotations_beside(const RunFile& file, const Job& job) {
  const bool has_own = !job.annotations.empty() || !job.parameters.empty();
  return has_own && file.correspondence.empty() ? annotations_of_reference(file) : AnnotationSource{};
}

}  // namespace

CheckOptions check_options(const RunFile& file, const Job& job, const Workspace& workspace, const std::string& today) {
  CheckOptions options;
  options.reference = workspace.trace_of(kReference);
  options.candidate = workspace.trace_of(candidate_artifact(job));
  options.annotations = annotations_for(file, job);
  options.reference_annotations = annotations_beside(file, job);
  options.correspondence = file.correspondence;
  options.tolerance = job.tolerance;
  if (job.tolerance.empty()) options.tolerance = workspace.path_of(kTolerance) / "tolerance.yaml";
  options.accept_overrides = file.accept_overrides;
  options.waivers = waivers_for(file, job.name, today);
  return options;
}

}  // namespace ttrace
