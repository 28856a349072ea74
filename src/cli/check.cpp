// `ttrace check`: does the candidate compute what the reference computes, and if not, where does it first
// go wrong?
#include "workflow/check.h"

#include <spdlog/spdlog.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "report/render.h"
#include "workflow/follow.h"
#include "workflow/processes.h"

namespace ttrace::cli {
namespace {

struct CheckArguments {
  CheckOptions check;
  std::vector<std::string> pair;  // the reference and the candidate, where no option says them
  bool follow = false;
  FollowOptions following;
  ReportOptions report;
  std::string history;
};

// Takes the reference and the candidate from where they are said: both by place, or either by its option.
void take_pair(const std::vector<std::string>& pair, CheckOptions& options) {
  std::vector<std::string*> open;
  for (std::string* side : {&options.reference, &options.candidate}) {
    if (side->empty()) open.push_back(side);
  }
  if (open.size() != pair.size()) {
    throw InputError(
        "check: expected a reference and a candidate: `ttrace check REFERENCE CANDIDATE`, or --reference "
        "and --candidate");
  }
  for (std::size_t i = 0; i < open.size(); ++i) *open[i] = pair[i];
}

int run(const CheckArguments& arguments, Team& team) {
  Checked checked;
  ReportFiles files = report_files(arguments.report, checked.report, checked.page);
  CheckOptions options = arguments.check;
  take_pair(arguments.pair, options);
  options.team = &team;
  options.pictures = !arguments.report.html.empty();
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

}  // namespace

void add_check(CLI::App& app, Run& run_command) {
  auto arguments = std::make_shared<CheckArguments>();
  CheckOptions& options = arguments->check;
  CLI::App* check = app.add_subcommand("check", "Compare a candidate's trace with the reference's");
  check
      ->add_option("PAIR", arguments->pair,
                   "The reference and the candidate, where --reference and --candidate do not say them: traces, "
                   "checkpoints (safetensors, DCP, .pt, a folder), arrays (.npz, .npy) or dumps (msprobe, SGLang)")
      ->expected(0, 2);
  const auto add = [check](const Option& option, auto& member) { add_option(*check, option, member); };
  visit_compared(options, add);
  for (const char* side : {"--reference", "--candidate"}) check->get_option(side)->required(false);
  add_options(*check, arguments->report);
  add_option(*check, option::kHistory, arguments->history);
  visit_strictness(options, add);
  add_option(*check,
             {"--follow", "",
              "The candidate is a run that is collected with --split: check each iteration that the reference has as "
              "soon as all ranks have recorded it, until one differs; reports are of that, or of the last",
              "While the job goes on"},
             arguments->follow)
      ->excludes(check->get_option("--iterations"));
  add_options(*check, arguments->following);
  check->footer(R"(Examples:
  ttrace check original.safetensors converted/
  ttrace check --reference reference --candidate candidate -a gpt.yaml \
    -t tolerance.yaml
  ttrace check --reference reference --candidate candidate -t tolerance.yaml \
    --only 'layers.0.**' --all
  ttrace check --reference reference --candidate candidate -t tolerance.yaml \
    --json - | jq .first_wrong
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
