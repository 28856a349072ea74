// `ttrace check`: does the candidate compute what the reference computes, and if not, where does it first
// go wrong?
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/progress_line.h"
#include "cli/report_file.h"
#include "ttrace/annotate/explain.h"
#include "ttrace/diagnose/root_causes.h"
#include "ttrace/error.h"
#include "ttrace/history/history.h"
#include "ttrace/judge/judge.h"
#include "ttrace/load/annotation_file.h"
#include "ttrace/load/tolerance_file.h"
#include "ttrace/load/trace_reader.h"
#include "ttrace/report/report.h"

namespace ttrace::cli {
namespace {

constexpr std::size_t kFindingsShown = 10;

struct CheckOptions {
  std::string reference, candidate;
  std::string annotations, tolerance;
  std::string only, explain;
  std::string json, junit, csv;  // `-` is stdout
  std::string history;
  bool strict = false;
  bool all = false;
  int threads = 0;
};

std::string shell_word(const std::string& word) {
  const std::string plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./=,:+@%-";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// The same check, with every finding.
std::string command_for_all(const CheckOptions& options) {
  std::string command = fmt::format("ttrace check --reference {} --candidate {}", shell_word(options.reference),
                                    shell_word(options.candidate));
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) command += fmt::format(" {} {}", name, shell_word(value));
  };
  add("-a", options.annotations);
  add("-t", options.tolerance);
  add("--only", options.only);
  return command + (options.strict ? " --strict --all" : " --all");
}

// A mistake in the annotations matters where they are needed: on several ranks.
void add_notes(const std::string& side, const Trace& trace, const Alignment& alignment,
               std::vector<std::string>& notes) {
  if (trace.world_size == 1) return;
  for (const std::string& note : alignment.notes) notes.push_back(fmt::format("{}: {}", side, note));
}

void note_overrides(const ToleranceFile& tolerance, const Alignment& reference, std::vector<std::string>& notes) {
  std::set<ToleranceKey> tensors;
  for (const auto& [id, tensor] : reference.tensors) tensors.emplace(id.kind, id.name);
  for (std::string& note : unused_overrides(tolerance, tensors)) notes.push_back(std::move(note));
}

std::vector<Difference> measure(const Matching& matching, int threads) {
  std::vector<TensorPair> pairs = matching.pairs;
  pairs.insert(pairs.end(), matching.recomputed.begin(), matching.recomputed.end());
  const ProgressLine progress("comparing");
  return compare(pairs, {threads, progress.callback()});
}

CheckRecord record_of(const Trace& reference, const Trace& candidate) {
  CheckRecord check;
  check.reference_run = reference.run_id;
  check.candidate_run = candidate.run_id;
  const auto facts = nlohmann::json::parse(candidate.provenance, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key) {
    const auto found = facts.find(key);
    return found != facts.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  check.started = text("started");
  check.git_commit = text("git_commit");
  const auto command = facts.find("command");
  if (command == facts.end() || !command->is_array()) return check;
  for (const auto& word : *command) {
    if (word.is_string()) check.command += (check.command.empty() ? "" : " ") + shell_word(word.get<std::string>());
  }
  return check;
}

int run(const CheckOptions& options) {
  ReportFile json(options.json), junit(options.junit), csv(options.csv);
  const int to_stdout = json.is_stdout() + junit.is_stdout() + csv.is_stdout();
  if (to_stdout > 1) throw InputError("--json, --junit, --csv: more than one goes to stdout; expected one");

  // load
  const Trace reference = read_trace(options.reference);
  const Trace candidate = read_trace(options.candidate);
  Annotations annotations;
  if (!options.annotations.empty()) annotations = read_annotations(options.annotations);
  std::optional<ToleranceFile> tolerance;
  if (!options.tolerance.empty()) {
    tolerance = read_tolerances(options.tolerance);
    require_fits(*tolerance, reference);
  }

  // align: the candidate is measured against the reference's number of layers, not against its own.
  Alignment reference_tensors = align(reference, annotations, {});
  require_whole(reference_tensors, options.reference);
  Alignment candidate_tensors = align(candidate, annotations, layout_of(reference_tensors));
  if (!options.explain.empty()) {
    const ExplainedSide sides[] = {{"reference", &reference, &reference_tensors},
                                   {"candidate", &candidate, &candidate_tensors}};
    std::cout << explain(annotations, sides, options.explain) << std::flush;
    return kSame;
  }
  std::vector<std::string> notes;
  add_notes("reference", reference, reference_tensors, notes);
  add_notes("candidate", candidate, candidate_tensors, notes);
  if (tolerance) note_overrides(*tolerance, reference_tensors, notes);
  if (reference.run_id == candidate.run_id) notes.push_back("reference and candidate are one and the same run");
  if (!options.only.empty()) keep_only(reference_tensors, candidate_tensors, options.only);

  // merge, compare: in one pass over memory, for the merge is a view.
  const Matching matching = match(reference_tensors, candidate_tensors);
  const std::vector<Difference> differences = measure(matching, options.threads);

  // judge
  Report report = conclude(reference_tensors, matching, differences, tolerance ? &*tolerance : nullptr);
  report.reference = options.reference;
  report.candidate = options.candidate;
  report.strict = options.strict;
  report.command_for_all = command_for_all(options);
  report.notes.insert(report.notes.end(), notes.begin(), notes.end());
  add_root_causes(
      report,
      {reference_tensors, candidate_tensors, {candidate.axes, candidate.aliases, candidate.views}, annotations.tied});

  // report
  const std::size_t most = options.all ? report.findings.size() : kFindingsShown;
  if (to_stdout == 0) std::cout << to_text(report, most) << std::flush;
  json.write([&] { return to_json(report); });
  junit.write([&] { return to_junit(report); });
  csv.write([&] { return to_csv(report); });
  if (!options.history.empty()) add_to_history(options.history, record_of(reference, candidate), report);
  if (!std::cout) throw InputError("stdout: cannot be written; expected a place for the report");
  return report.same() ? kSame : kDifferent;
}

}  // namespace

void add_check(CLI::App& app, Run& run_command) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* check = app.add_subcommand("check", "Compare a candidate's trace with the reference's");
  check->add_option("--reference", options->reference, "Trace of the trusted run")->required();
  check->add_option("--candidate", options->candidate, "Trace of the run under test")->required();
  check->add_option("-a,--annotations", options->annotations, "How the program places its tensors (YAML)");
  check->add_option("-t,--tolerance", options->tolerance,
                    "What each tensor may differ by, from estimate-tolerance; without, all must be equal");
  check->add_option("--only", options->only, "Only tensors whose name matches this glob or dotted suffix");
  check->add_option("--explain", options->explain,
                    "Judge nothing; show how the shards of the tensors that match this were mapped");
  check->add_option("--json", options->json, "Write the report as JSON to this file (-: stdout, instead of the text)");
  check->add_option("--junit", options->junit, "Write the report as JUnit XML to this file (-: stdout)");
  check->add_option("--csv", options->csv, "Write what was measured of every tensor to this file (-: stdout)");
  check->add_option("--history", options->history,
                    "Add the verdict and the ratios to this SQLite file, for `ttrace history`");
  check->add_flag("--strict", options->strict, "Untrusted tensors count as failed");
  check->add_flag("--all", options->all, "Print all findings, not just the first ten");
  check->add_option("--threads", options->threads, "Number of threads (default: one a core)")
      ->check(CLI::Range(1, 4096));
  check->footer(
      "Examples:\n"
      "  ttrace check --reference reference --candidate candidate -a gpt.yaml -t tolerance.yaml\n"
      "  ttrace check --reference reference --candidate candidate -t tolerance.yaml --only 'layers.0.**' --all\n"
      "  ttrace check --reference reference --candidate candidate -t tolerance.yaml --json - | jq .root_cause\n"
      "  ttrace check --reference reference --candidate candidate -a gpt.yaml --explain "
      "layers.0.mlp.linear_fc1.weight\n"
      "\n"
      "Exit codes: 0 same, 1 different, 2 could not look (misuse, unreadable input, no tensor in common).");
  check->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
