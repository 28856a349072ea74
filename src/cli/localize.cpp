// `ttrace localize`: which of the modules that a check has named are wrong by themselves?
#include "workflow/localize.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "base/error.h"
#include "base/trace.h"
#include "cli/commands.h"
#include "host/shell_words.h"
#include "host/terminal.h"
#include "load/trace_reader.h"
#include "workflow/closer_look.h"

namespace ttrace::cli {
namespace {

namespace fs = std::filesystem;

struct LocalizeArguments {
  CheckOptions check;
  fs::path output;
  std::vector<std::string> command;
  bool run_recorded = false;
  ReportOptions report;
};

// True where the command is the one that the user typed, and not one that a trace names.
bool is_typed(const CollectOptions& run, const LocalizeArguments& arguments) {
  return run.command == arguments.command && run.working_directory.empty();
}

// Shows a command that a trace names, and runs it only where the user says so: whoever wrote the trace chose it.
void require_consent(const CollectOptions& run, const fs::path& trace, const LocalizeArguments& arguments) {
  if (run.command.empty()) {
    throw InputError(
        fmt::format("{}: does not say by what command it was collected; expected one after --", trace.string()));
  }
  if (arguments.run_recorded || is_typed(run, arguments)) return;
  const std::string named = fmt::format("{}: names the command `{}`, in {}", trace.string(), shell_words(run.command),
                                        shell_word(run.working_directory.string()));
  if (can_ask() && ask(printable(named) + "; run it?")) return;
  throw InputError(
      fmt::format("{}, and what a trace names is not run unasked; expected {}--run-recorded where you made the "
                  "trace yourself",
                  named, trace == arguments.check.candidate ? "the candidate's command after --, or " : ""));
}

void collect_again(const CollectOptions& run) {
  if (const int code = collect(run); code != 0) {
    throw InputError(
        fmt::format("{}: the second run could not be collected, exit code {}; expected one that ends with "
                    "0, as the first did",
                    run.output.string(), code));
  }
}

void run_again(CollectOptions run, const LocalizeArguments& arguments) {
  if (!arguments.command.empty()) {
    run.command = arguments.command;
    run.working_directory.clear();
  }
  require_consent(run, arguments.check.candidate, arguments);
  collect_again(run);
}

// Makes both runs again where the reference has sketches in place of the values that modules would be given, and
// returns true; false where it has elements, or nothing differs.
bool look_closer(const LocalizeArguments& arguments, const fs::path& output, Report& report) {
  if (report.same() || !has_sketches(read_trace(arguments.check.reference))) return false;
  const CloserLook look = plan_closer_look(arguments.check, report, output, arguments.command);
  for (const CollectOptions& run : look.runs) require_consent(run, run.again, arguments);
  for (const CollectOptions& run : look.runs) collect_again(run);
  if (!look.runs.empty()) add_closer_look(report, check(look.check).report);
  report.advice.next.reset();
  spdlog::info("modules are not given the reference's values: it was recorded as sketches");
  return true;
}

// Values are given by names, shapes and shards.
void refuse_correspondence(const LocalizeArguments& arguments) {
  if (arguments.check.correspondence.empty()) return;
  throw InputError(
      "--correspondence: a second run gives the candidate's modules the reference's values by the names of its "
      "tensors, and another program has other names; expected none: `ttrace check --correspondence` names the first "
      "tensor that differs, `ttrace localize` compares runs of one program");
}

int run(const LocalizeArguments& arguments) {
  refuse_correspondence(arguments);
  Checked checked;
  Report& report = checked.report;
  ReportFiles files = report_files(arguments.report, report, checked.page);
  CheckOptions options = arguments.check;
  options.pictures = !arguments.report.html.empty();
  checked = check(options);
  const fs::path output =
      arguments.output.empty() ? fs::path(arguments.check.candidate + ".localized") : arguments.output;
  std::string reason;
  if (look_closer(arguments, output, report)) {
    checked.page.command = localize_command_of(arguments.check, {});
  } else if (std::optional<CollectOptions> second = second_run_options(arguments.check, report, reason)) {
    second->output = output;
    run_again(*second, arguments);
    add_second_run(report, arguments.check, second->output);
    checked.page.command = localize_command_of(arguments.check, second->output);
  } else {
    spdlog::info("no second run: {}", reason);
  }
  write_report(files, arguments.report, report);
  return exit_code_of(report.verdict());
}

}  // namespace

void add_localize(CLI::App& app, Run& run_command) {
  auto arguments = std::make_shared<LocalizeArguments>();
  CLI::App* localize = app.add_subcommand("localize", "After a failed check: which module is wrong by itself?");
  const auto add = [localize](Option option, auto& member) {
    if (!option.in_localize && *option.help_in_localize == '\0') return;
    if (!option.in_localize) option.help = option.help_in_localize;
    add_option(*localize, option, member);
  };
  visit_compared(arguments->check, add);
  add_option(*localize, {"-o,--output", "TRACE", "Directory for the second run's trace [CANDIDATE.localized]"},
             arguments->output);
  add_options(*localize, arguments->report);
  visit_strictness(arguments->check, add);
  localize->add_option("COMMAND", arguments->command, "The candidate's command, after --, which runs here");
  add_option(*localize,
             {"--run-recorded", "",
              "Run the command that the candidate's trace names, in the directory that it names (where the reference "
              "has sketches, its own, too): for traces that you made yourself"},
             arguments->run_recorded);
  localize->footer(R"(Runs the candidate's command once more, as `ttrace collect --inject REFERENCE
--layout CANDIDATE` does: every module computes from the reference's inputs and
output gradients, so that no error travels from one to the next. A root of the
check is then confirmed (wrong by itself) or moved (its error came in); what was
wrong in the wake of another is found. The report is that of the check, with
what the second run says of each root. Where a second run would show nothing
more, as with missing tensors, there is none. A command that a trace names is
shown and not run: at a terminal you are asked, elsewhere type it after --, or
say --run-recorded.

Where the reference was collected with --sketch, it has no values to give. Then
both commands are run again, as `ttrace collect --sketch --whole MODULE --again
TRACE` does, and the report has the elements and diagnoses of these modules.

Examples:
  ttrace localize --reference reference --candidate candidate -a gpt.yaml \
    -t tolerance.yaml -- torchrun --nproc-per-node 4 train.py --tp 2
  ttrace localize --reference reference --candidate candidate \
    -t tolerance.yaml --json roots.json --run-recorded

Exit codes: 0 same, 1 different, 2 could-not-look.)");
  localize->callback([arguments, &run_command] { run_command = [arguments] { return run(*arguments); }; });
}

}  // namespace ttrace::cli
