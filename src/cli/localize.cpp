// `ttrace localize`: which of the modules that a check has named are wrong by themselves?
#include "cli/localize.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/collect.h"
#include "cli/collected.h"
#include "cli/commands.h"
#include "cli/report_file.h"
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

std::vector<std::int32_t> iterations_of(const Trace& trace) {
  std::set<std::int32_t> iterations;
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) iterations.insert(entry.id.iteration);
  }
  return {iterations.begin(), iterations.end()};
}

void run_again(const LocalizeOptions& options, const SecondPass& plan) {
  const Trace candidate = read_trace(options.check.candidate);
  const Origin origin(candidate);
  CollectOptions run;
  run.output = options.output;
  run.annotations = options.check.annotations;
  run.iterations = iterations_of(candidate);
  run.axes = origin.axes();
  run.command = options.command.empty() ? origin.command() : options.command;
  if (options.command.empty()) run.working_directory = origin.directory();
  run.stdout_to_stderr = true;  // where ours has the report
  run.rewrite.inject = options.check.reference;
  run.rewrite.layout = options.check.candidate;
  if (plan.parameters) run.rewrite.inject_params = options.check.reference;
  if (const int code = collect(run); code != 0) {
    throw InputError(
        fmt::format("{}: the second run could not be collected, exit code {}; expected one that ends with "
                    "0, as the first did",
                    options.output.string(), code));
  }
}

std::int64_t wrong_in(const Report& report) { return report.counts.fail + report.counts.missing; }

const RootCause& cause_of(const Localized& localized, const LocalizedRoot& root) {
  const Report& report = root.standing == Standing::kFound ? *localized.second : localized.first;
  return report.roots[root.root];
}

std::string_view meaning_of(Standing standing) {
  switch (standing) {
    case Standing::kConfirmed:
      return "wrong by itself";
    case Standing::kFound:
      return "wrong by itself, and not seen before, in the wake of the others";
    case Standing::kMoved:
      return "right by itself: its error came in";
  }
  return "";
}

std::string describe(const Localized& localized, const LocalizedRoot& root) {
  const RootCause& cause = cause_of(localized, root);
  std::string text = fmt::format("{} ({}):\n  {}\n", name_of(root.standing), meaning_of(root.standing), cause.sentence);
  if (!root.alone) return text;
  const RootCause& alone = localized.second->roots[*root.alone];
  if (alone.diagnosis != cause.diagnosis) text += fmt::format("  by itself: {}\n", alone.sentence);
  return text;
}

Json to_object(const Localized& localized, const LocalizedRoot& root) {
  const RootCause& cause = cause_of(localized, root);
  const Report& report = root.standing == Standing::kFound ? *localized.second : localized.first;
  const TensorId& id = report.findings[cause.finding].id;
  Json json;
  json["standing"] = name_of(root.standing);
  json["module"] = cause.module;
  json["name"] = id.name;
  json["kind"] = name_of(id.kind);
  json["explained"] = cause.explained;
  const RootCause& told = root.alone && cause.diagnosis.empty() ? localized.second->roots[*root.alone] : cause;
  json["diagnosis"] = told.diagnosis.empty() ? Json(nullptr) : Json(told.diagnosis);
  json["sentence"] = told.sentence;
  return json;
}

struct Arguments {
  LocalizeOptions localize;
  std::string json;
};

int run(const Arguments& arguments) {
  Localized localized;
  ReportFiles files;
  files.add("--json", arguments.json, [&] { return to_json(localized); });
  LocalizeOptions options = arguments.localize;
  if (options.output.empty()) options.output = options.check.candidate + ".localized";
  localized = localize(options, check(options.check).report);
  files.write([&] { return to_text(localized); });
  return localized.first.same() ? kSame : kDifferent;
}

}  // namespace

Localized localize(const LocalizeOptions& options, Report first) {
  Localized localized{std::move(first), {}, std::nullopt, {}};
  localized.plan = plan_second_pass(localized.first);
  if (!localized.plan.modules) return localized;
  run_again(options, localized.plan);
  CheckOptions again = options.check;
  again.candidate = options.output.string();
  localized.second = check(again).report;
  localized.roots = localize(localized.first, *localized.second);
  return localized;
}

std::string to_text(const Localized& localized) {
  if (localized.first.same()) return "same: nothing to localize\n";
  if (!localized.second)
    return fmt::format("no second run: {}\n{}", localized.plan.reason, to_text(localized.first, 0));
  std::string text = fmt::format(
      "second run, every module given the reference's inputs{} and output gradients: {} of {} wrong tensors are left\n",
      localized.plan.parameters ? ", parameters" : "",
      readable_count(static_cast<std::uint64_t>(wrong_in(*localized.second))),
      readable_count(static_cast<std::uint64_t>(wrong_in(localized.first))));
  for (const LocalizedRoot& root : localized.roots) text += describe(localized, root);
  if (wrong_in(*localized.second) == 0) {
    text += "no module is wrong by itself: the error needs values that only the run makes, or grows out of rounding\n";
  }
  return text;
}

std::string to_json(const Localized& localized) {
  Json json;
  json["schema"] = "ttrace-localization/1";
  json["verdict"] = localized.first.same() ? "pass" : "fail";
  json["roots"] = Json::array();
  for (const LocalizedRoot& root : localized.roots) json["roots"].push_back(to_object(localized, root));
  json["first"] = Json::parse(ttrace::to_json(localized.first));
  json["second"] = localized.second ? Json::parse(ttrace::to_json(*localized.second)) : Json(nullptr);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void add_localize(CLI::App& app, Run& run_command) {
  auto arguments = std::make_shared<Arguments>();
  LocalizeOptions& options = arguments->localize;
  CLI::App* localize = app.add_subcommand("localize", "After a failed check: which module is wrong by itself?");
  localize->add_option("--reference", options.check.reference, "Trace of the trusted run")->required();
  localize->add_option("--candidate", options.check.candidate, "Trace of the run that failed the check")->required();
  localize->add_option("-a,--annotations", options.check.annotations, "How the program places its tensors (YAML)");
  localize->add_option("-t,--tolerance", options.check.tolerance, "What each tensor may differ by");
  localize->add_option("-o,--output", options.output, "Directory for the second run's trace [CANDIDATE.localized]");
  localize->add_option("--json", arguments->json, "Write roots and both reports as JSON to this file (-: stdout)");
  localize->add_option("--threads", options.check.threads, "Number of threads (default: one a core)")
      ->check(CLI::Range(1, 4096));
  localize->add_option("command", options.command, "The candidate's command, after -- [as its trace has it, in the same directory]");
  localize->footer(
      "Runs the candidate's command once more, as `ttrace collect --inject REFERENCE --layout CANDIDATE` does: every\n"
      "module computes from the reference's inputs and output gradients, so that no error travels from one to the "
      "next.\n"
      "A root of the check is then confirmed (wrong by itself) or moved (its error came in); what was wrong in the "
      "wake\n"
      "of another shows. Where that would help nothing, as with missing tensors, nothing is run.\n"
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
