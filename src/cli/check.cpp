// `ttrace check`: does the candidate compute what the reference computes, and if not, where does it first
// go wrong?
#include "workflow/check.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "cli/commands.h"
#include "report/render.h"
#include "workflow/collect.h"
#include "workflow/follow.h"
#include "workflow/processes.h"

namespace ttrace::cli {
namespace {

struct CheckArguments {
  CheckOptions check;
  std::string iterations;
  bool follow = false;
  FollowOptions following;
  ReportOptions report;
  std::string history;
};

int run(const CheckArguments& arguments, Team& team) {
  Checked checked;
  ReportFiles files = report_files(arguments.report, checked.report, checked.page);
  CheckOptions options = arguments.check;
  options.team = &team;
  options.pictures = !arguments.report.html.empty();
  if (!arguments.iterations.empty()) {
    const std::vector<std::int32_t> iterations = parse_iterations(arguments.iterations);
    options.iterations = {iterations.begin(), iterations.end()};
  }
  const auto remember = [&](const Checked& one) {
    if (!arguments.history.empty()) add_to_history(arguments.history, one.record, one.report);
  };
  if (arguments.follow) {
    checked = follow(options, arguments.following, [&](std::int32_t iteration, const Checked& one) {
      remember(one);
      const std::string line = to_text(one.report, {.quiet = true});
      spdlog::info("iteration {}: {}", iteration, line.substr(0, line.find('\n')));
    });
  } else {
    checked = check(options);
  }
  write_report(files, arguments.report, checked.report);
  if (!arguments.follow) remember(checked);
  return exit_code_of(checked.report.verdict());
}

// Returns --follow.
CLI::Option* add_following_options(CLI::App& check, CheckArguments& arguments) {
  const char* const kFollowing = "While the job goes on";
  CLI::Option* follow =
      check
          .add_flag("--follow", arguments.follow,
                    "The candidate is a run that is collected with --split: check each iteration that the reference "
                    "has as soon as all ranks have recorded it, until one differs; reports are of that, or of the last")
          ->group(kFollowing);
  check
      .add_option_function<std::int64_t>(
          "--timeout",
          [&arguments](std::int64_t seconds) { arguments.following.timeout = std::chrono::seconds(seconds); },
          "Give up where no further iteration came for so long [600]")
      ->check(CLI::PositiveNumber)
      ->needs(follow)
      ->type_name("SECONDS")
      ->group(kFollowing);
  check
      .add_option(
          "--keep", arguments.following.keep,
          "Of the candidate's iterations that are the same keep the last N, and remove the traces of the others")
      ->check(CLI::PositiveNumber)
      ->needs(follow)
      ->type_name("N")
      ->group(kFollowing);
  return follow;
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
  CLI::Option* iterations =
      check->add_option("--iterations", arguments->iterations, "Compare these iterations alone, as in 0,2,5-7")
          ->type_name("LIST");
  add_report_options(*check, arguments->report);
  add_history_option(*check, arguments->history);
  check->add_flag("--strict", options.strict,
                  "Untrusted tensors count as failed; ones that a program could not record are refused");
  check->add_flag("!--no-checksums", options.checksums, "Do not verify the checksums of the tensors that are compared");
  check->add_flag("--allow-same-run", options.allow_same_run, "The candidate may be the reference itself");
  add_threads_option(*check, options.threads);
  add_following_options(*check, *arguments)->excludes(iterations);
  check->footer(R"(Examples:
  ttrace check --reference reference --candidate candidate -a gpt.yaml \
    -t tolerance.yaml
  ttrace check --reference reference --candidate candidate -t tolerance.yaml \
    --only 'layers.0.**' --all
  ttrace check --reference reference --candidate candidate -t tolerance.yaml \
    --json - | jq .root_cause
A long run, while it goes on, with a bounded disk:
  ttrace collect -o soak --split --iterations 0,100,1000 -- ./train.sh &
  ttrace check --reference reference --candidate soak -t tolerance.yaml \
    --follow --timeout 3600 --keep 2

Exit codes: 0 same, 1 different, 2 could-not-look (misuse, unreadable input, no
tensor in common; of a kind of tensors none that passed and some not seen, or
fewer than half that prove something: values that are finite, not zero, and no
noise).)");
  check->callback([arguments, &run_command] {
    run_command = [arguments] { return run_with_team([&](Team& team) { return run(*arguments, team); }); };
  });
}

}  // namespace ttrace::cli
