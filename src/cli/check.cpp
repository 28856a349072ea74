// `ttrace check`: does the candidate compute what the reference computes, and if not, where does it first
// go wrong?
#include "workflow/check.h"

#include <memory>

#include "cli/commands.h"
#include "workflow/processes.h"

namespace ttrace::cli {
namespace {

struct CheckArguments {
  CheckOptions check;
  ReportOptions report;
  std::string history;
};

int run(const CheckArguments& arguments, Team& team) {
  Checked checked;
  ReportFiles files = report_files(arguments.report, checked.report, checked.page);
  CheckOptions options = arguments.check;
  options.team = &team;
  options.pictures = !arguments.report.html.empty();
  checked = check(options);
  write_report(files, arguments.report, checked.report);
  if (!arguments.history.empty()) add_to_history(arguments.history, checked.record, checked.report);
  return exit_code_of(checked.report.verdict());
}

}  // namespace

void add_check(CLI::App& app, Run& run_command) {
  auto arguments = std::make_shared<CheckArguments>();
  CheckOptions& options = arguments->check;
  CLI::App* check = app.add_subcommand("check", "Compare a candidate's trace with the reference's");
  add_reference_option(*check, options.reference)->required();
  add_candidate_option(*check, options.candidate)->required();
  add_annotation_options(*check, options.annotations);
  add_axes_option(*check, options.annotations);
  check
      ->add_option("--reference-annotations", options.reference_annotations.file,
                   "How a reference on several ranks places its tensors, where that is not what -a says")
      ->type_name("FILE");
  add_correspondence_option(*check, options.correspondence);
  add_tolerance_option(*check, options.tolerance);
  add_accept_option(*check, options.accept_overrides);
  add_only_option(*check, options.only);
  add_report_options(*check, arguments->report);
  add_history_option(*check, arguments->history);
  check->add_flag("--strict", options.strict,
                  "Untrusted tensors count as failed; ones that a program could not record are refused");
  check->add_flag("!--no-checksums", options.checksums, "Do not verify the checksums of the tensors that are compared");
  check->add_flag("--allow-same-run", options.allow_same_run, "The candidate may be the reference itself");
  add_threads_option(*check, options.threads);
  check->footer(R"(Examples:
  ttrace check --reference reference --candidate candidate -a gpt.yaml \
    -t tolerance.yaml
  ttrace check --reference reference --candidate candidate -t tolerance.yaml \
    --only 'layers.0.**' --all
  ttrace check --reference reference --candidate candidate -t tolerance.yaml \
    --json - | jq .root_cause

Exit codes: 0 same, 1 different, 2 could-not-look (misuse, unreadable input, no
tensor in common; of a kind of tensors none that passed and some not seen, or
fewer than half that prove something: values that are finite, not zero, and no
noise).)");
  check->callback([arguments, &run_command] {
    run_command = [arguments] { return run_with_team([&](Team& team) { return run(*arguments, team); }); };
  });
}

}  // namespace ttrace::cli
