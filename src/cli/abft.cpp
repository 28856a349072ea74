// `ttrace abft`: does a trace hold what its own recorded operands give?
#include <fmt/format.h>

#include <iostream>
#include <map>
#include <memory>

#include "cli/commands.h"
#include "cli/report_file.h"
#include "ttrace/error.h"
#include "ttrace/judge/match.h"
#include "ttrace/load/annotation_file.h"
#include "ttrace/load/trace_reader.h"
#include "ttrace/selfcheck/selfcheck.h"

namespace ttrace::cli {
namespace {

constexpr std::size_t kFindingsShown = 10;

const std::map<std::string, abft::ThresholdMethod> kMethods = {
    {"v-abft", abft::ThresholdMethod::kVariance},
    {"a-abft", abft::ThresholdMethod::kProbabilistic},
    {"sea", abft::ThresholdMethod::kSimplified},
    {"norm", abft::ThresholdMethod::kNorm},
};

struct AbftOptions {
  std::string trace, annotations, only;
  std::string threshold = "v-abft";
  std::string json, junit, csv;  // `-` is stdout
  bool all = false;
  int threads = 0;
};

int run(const AbftOptions& options) {
  ReportFile json(options.json), junit(options.junit), csv(options.csv);
  const int to_stdout = json.is_stdout() + junit.is_stdout() + csv.is_stdout();
  if (to_stdout > 1) throw InputError("--json, --junit, --csv: more than one goes to stdout; expected one");
  const Trace trace = read_trace(options.trace);
  Annotations annotations;
  if (!options.annotations.empty()) annotations = read_annotations(options.annotations);
  Alignment tensors = align(trace, annotations, {});
  Alignment nothing;
  if (!options.only.empty()) keep_only(tensors, nothing, options.only);
  Report report = self_check(tensors, {kMethods.at(options.threshold), options.threads});
  report.candidate = options.trace;
  report.command_for_all = "--all";
  const std::size_t most = options.all ? report.findings.size() : kFindingsShown;
  if (to_stdout == 0) std::cout << to_text(report, most) << std::flush;
  json.write([&] { return to_json(report); });
  junit.write([&] { return to_junit(report); });
  csv.write([&] { return to_csv(report); });
  if (!std::cout) throw InputError("stdout: cannot be written; expected a place for the report");
  return report.same() ? kSame : kDifferent;
}

}  // namespace

void add_abft(CLI::App& app, Run& run_command) {
  auto options = std::make_shared<AbftOptions>();
  CLI::App* abft = app.add_subcommand("abft", "Check a trace against itself, without a reference");
  abft->add_option("TRACE", options->trace, "Directory of the trace")->required();
  abft->add_option("-a,--annotations", options->annotations, "How the program places its tensors (YAML)");
  abft->add_option("--only", options->only, "Only tensors whose name matches this glob or dotted suffix");
  abft->add_option("--threshold", options->threshold, "How far checksums may be apart: v-abft, a-abft, sea, norm")
      ->capture_default_str()
      ->check(CLI::IsMember({"v-abft", "a-abft", "sea", "norm"}));
  abft->add_option("--json", options->json, "Write the report as JSON to this file (-: stdout, instead of the text)");
  abft->add_option("--junit", options->junit, "Write the report as JUnit XML to this file (-: stdout)");
  abft->add_option("--csv", options->csv, "Write a line for every tensor that was checked to this file (-: stdout)");
  abft->add_flag("--all", options->all, "Print all findings, not just the first ten");
  abft->add_option("--threads", options->threads, "Number of threads (default: one a core)")
      ->check(CLI::Range(1, 4096));
  abft->footer(
      "Linear modules must be the product of their recorded inputs and weights, forward and backward (by checksums:\n"
      "no product is computed again); attention that of its queries, keys and values, where its softmax is a module;\n"
      "embeddings and bags of them the rows that their ids name; main gradients the sum of the micro-batches'; sums\n"
      "over ranks those of their terms; copies on several ranks equal. Each rank's own products first, then all over\n"
      "the logical tensors: a communication that is missing or doubled shows as well as wrong arithmetic. What could\n"
      "not be checked is untrusted, or counted in a note.\n"
      "\n"
      "Examples:\n"
      "  ttrace abft candidate -a gpt.yaml\n"
      "  ttrace abft candidate -a gpt.yaml --only 'layers.3.**' --json - | jq .root_cause\n"
      "\n"
      "Exit codes: 0 everything that could be checked is right, 1 something is wrong, 2 could not look.");
  abft->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
