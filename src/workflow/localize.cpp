// `ttrace localize`: which of the modules that a check has named are wrong by themselves?
#include "workflow/localize.h"

#include <memory>

#include "base/mesh.h"
#include "diagnose/localization.h"
#include "load/trace_reader.h"
#include "workflow/collect.h"
#include "workflow/report_files.h"

namespace ttrace {

std::optional<CollectOptions> second_run_options(const CheckOptions& check, const Report& first, std::string& reason) {
  if (!check.correspondence.empty()) {
    reason = "a second run takes the reference's values by the names of its tensors, which the candidate has not";
    return std::nullopt;
  }
  // `ttrace collect --inject` places the values of both runs by one annotation file.
  if (!check.reference_annotations.file.empty() && read_trace(check.reference).world_size > 1) {
    reason = "a second run takes the reference's values as -a places them, and the reference places its own otherwise";
    return std::nullopt;
  }
  const SecondRunPlan plan = plan_second_run(first);
  reason = plan.reason;
  if (!plan.modules) return std::nullopt;
  const Trace candidate = read_trace(check.candidate);
  const Provenance& origin = candidate.provenance;
  CollectOptions run;
  run.annotations = check.annotations;
  run.iterations = iterations_of(candidate).whole;
  run.selection = origin.selection;
  run.axes = origin.axes.value_or(to_string(candidate.mesh));
  if (run.axes.empty()) run.axes = check.annotations.axes;
  run.command = origin.command;
  run.working_directory = origin.directory;
  run.stdout_to_stderr = true;  // where ours has the report
  run.rewrite.inject = check.reference;
  run.rewrite.layout = check.candidate;
  run.rewrite.loss_scale = first.explanation.told_loss_scale;
  if (plan.parameters) run.rewrite.inject_params = check.reference;
  return run;
}

void add_second_run(Report& report, const CheckOptions& check, const std::filesystem::path& trace) {
  CheckOptions again = check;
  again.candidate = trace.string();
  add_second_run(report, ttrace::check(again).report);
  report.advice.instead.reset();  // which modules are wrong by themselves is worth reading
  report.advice.next.reset();
}

}  // namespace ttrace
