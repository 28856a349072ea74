// `ttrace localize`: which of the modules that a check has named are wrong by themselves?
#include "cli/localize.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/collect.h"
#include "cli/commands.h"
#include "cli/report_file.h"
#include "ttrace/diagnose/localization.h"
#include "ttrace/error.h"
#include "ttrace/load/trace_reader.h"
#include "ttrace/mesh.h"

namespace ttrace::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// What the candidate's trace says of its own collection.
class Origin {
 public:
  explicit Origin(const Trace& trace)
      : trace_(trace), provenance_(Json::parse(trace.provenance, nullptr, /*allow_exceptions=*/false)) {}

  std::vector<std::string> command() const {
    const Json words = field("command");
    std::vector<std::string> command;
    for (const Json& word : words) {
      if (word.is_string()) command.push_back(word.get<std::string>());
    }
    if (!command.empty() && command.size() == words.size()) return command;
    throw InputError(fmt::format("{}: does not say by what command it was collected; expected one after --",
                                 trace_.directory.string()));
  }

  // As --axes had them; empty where the framework itself has told.
  std::string axes() const {
    const Json axes = field("axes");
    return axes.is_string() ? axes.get<std::string>() : to_string(Mesh{trace_.axes, trace_.aliases, trace_.views});
  }

  fs::path directory() const {
    const Json directory = field("directory");
    return directory.is_string() ? directory.get<std::string>() : std::string();
  }

 private:
  Json field(const char* key) const { return provenance_.is_object() ? provenance_.value(key, Json()) : Json(); }

  const Trace& trace_;
  const Json provenance_;
};

struct Arguments {
  CheckOptions check;
  fs::path output;
  std::vector<std::string> command;
  ReportOptions report;
};

void run_again(CollectOptions run, const Arguments& arguments) {
  if (!arguments.command.empty()) {
    run.command = arguments.command;
    run.working_directory.clear();
  }
  if (const int code = collect(run); code != 0) {
    throw InputError(
        fmt::format("{}: the second run could not be collected, exit code {}; expected one that ends with "
                    "0, as the first did",
                    run.output.string(), code));
  }
}

int run(const Arguments& arguments) {
  Report report;
  ReportFiles files = report_files(arguments.report, report);
  report = check(arguments.check).report;
  std::string reason;
  if (std::optional<CollectOptions> second = second_run_of(arguments.check, report, reason)) {
    second->output = arguments.output.empty() ? arguments.check.candidate + ".localized" : arguments.output.string();
    run_again(*second, arguments);
    add_second_run(report, arguments.check, second->output);
  } else {
    fmt::print(stderr, "ttrace: no second run: {}\n", reason);
  }
  write_report(files, arguments.report, report);
  return report.same() ? kSame : kDifferent;
}

}  // namespace

std::optional<CollectOptions> second_run_of(const CheckOptions& check, const Report& first, std::string& reason) {
  const SecondPass plan = plan_second_pass(first);
  reason = plan.reason;
  if (!plan.modules) return std::nullopt;
  const Trace candidate = read_trace(check.candidate);
  const Origin origin(candidate);
  CollectOptions run;
  run.annotations = check.annotations;
  run.iterations = iterations_of(candidate);
  run.axes = origin.axes();
  run.command = origin.command();
  run.working_directory = origin.directory();
  run.stdout_to_stderr = true;  // where ours has the report
  run.rewrite.inject = check.reference;
  run.rewrite.layout = check.candidate;
  if (plan.parameters) run.rewrite.inject_params = check.reference;
  return run;
}

void add_second_run(Report& report, const CheckOptions& check, const fs::path& trace) {
  CheckOptions again = check;
  again.candidate = trace.string();
  add_second_run(report, cli::check(again).report);
}

void add_localize(CLI::App& app, Run& run_command) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* localize = app.add_subcommand("localize", "After a failed check: which module is wrong by itself?");
  localize->add_option("--reference", arguments->check.reference, "Trace of the trusted run")->required();
  localize->add_option("--candidate", arguments->check.candidate, "Trace of the run that failed the check")->required();
  localize->add_option("-a,--annotations", arguments->check.annotations, "How the program places its tensors (YAML)");
  localize->add_option("-t,--tolerance", arguments->check.tolerance, "What each tensor may differ by");
  localize->add_option("-o,--output", arguments->output, "Directory for the second run's trace [CANDIDATE.localized]");
  add_report_options(*localize, arguments->report);
  localize->add_option("--threads", arguments->check.threads, "Number of threads (default: one a core)")
      ->check(CLI::Range(1, 4096));
  localize->add_option("command", arguments->command,
                       "The candidate's command, after -- [as its trace has it, in the same directory]");
  localize->footer(
      "Runs the candidate's command once more, as `ttrace collect --inject REFERENCE --layout CANDIDATE` does: every\n"
      "module computes from the reference's inputs and output gradients, so that no error travels from one to the "
      "next.\n"
      "A root of the check is then confirmed (wrong by itself) or moved (its error came in); what was wrong in the "
      "wake\n"
      "of another is found. The report is that of the check, with what the second run says of each root. Where a "
      "second\n"
      "run would show nothing more, as with missing tensors, there is none.\n"
      "\n"
      "Examples:\n"
      "  ttrace localize --reference reference --candidate candidate -a gpt.yaml -t tolerance.yaml\n"
      "  ttrace localize --reference reference --candidate candidate -t tolerance.yaml --json roots.json -- "
      "./train.sh\n"
      "\n"
      "Exit codes: 0 the check passes, 1 it fails, 2 could not look.");
  localize->callback([arguments, &run_command] { run_command = [arguments] { return run(*arguments); }; });
}

}  // namespace ttrace::cli
