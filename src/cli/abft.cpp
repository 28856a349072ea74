// `ttrace abft`: does a trace hold what its own recorded operands give?
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "align/aligned_trace.h"
#include "base/error.h"
#include "cli/commands.h"
#include "diagnose/root_causes.h"
#include "diagnose/sources.h"
#include "distribute/comparison.h"
#include "distribute/index.h"
#include "distribute/steps.h"
#include "files/calibration_file.h"
#include "format/provenance.h"
#include "host/shell_words.h"
#include "identify/program.h"
#include "identify/resolved_annotations.h"
#include "judge/match.h"
#include "load/further.h"
#include "load/mapped_file.h"
#include "load/trace_reader.h"
#include "selfcheck/selfcheck.h"
#include "workflow/annotations.h"
#include "workflow/page_facts.h"
#include "workflow/processes.h"
#include "workflow/report_files.h"

namespace ttrace::cli {
namespace {

const std::map<std::string, abft::ThresholdMethod> kMethods = {
    {"v-abft", abft::ThresholdMethod::kVariance},
    {"a-abft", abft::ThresholdMethod::kProbabilistic},
    {"sea", abft::ThresholdMethod::kSimplified},
    {"norm", abft::ThresholdMethod::kNorm},
};

std::vector<std::string> threshold_methods() { return {"v-abft", "a-abft", "sea", "norm"}; }

struct AbftOptions {
  std::string trace, only;
  AnnotationSource annotations;
  std::string threshold = "v-abft", e_max;
  int block = 0;
  ReportOptions report;
  int threads = 0;
};

SelfCheckOptions thresholds_of(const AbftOptions& options) {
  SelfCheckOptions how;
  how.method = kMethods.at(options.threshold);
  how.block = options.block;
  if (options.e_max.empty()) return how;
  if (how.method != abft::ThresholdMethod::kVariance) {
    throw InputError(fmt::format("--e-max: says nothing to --threshold {}; expected v-abft", options.threshold));
  }
  how.e_max = read_calibration(options.e_max).e_max;
  return how;
}

// Returns the command line of the same check.
std::string command_of(const AbftOptions& options) {
  std::string command = fmt::format("ttrace abft {}", shell_word(options.trace));
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) command += fmt::format(" {} {}", name, shell_word(value));
  };
  add("-a", options.annotations.file);
  for (const std::string& setting : options.annotations.settings) add("--set", setting);
  add("--axes", options.annotations.axes);
  add("--only", options.only);
  if (options.threshold != AbftOptions().threshold) add("--threshold", options.threshold);
  add("--e-max", options.e_max);
  if (options.block > 0) command += fmt::format(" --block {}", options.block);
  return command;
}

// Throws InputError where initial parameters differ between ranks, and nobody has said that these hold copies: they may
// as well be parts. Along data-parallel axes they are copies.
void require_known_mapping(const AbftOptions& options, const AlignedTrace& aligned, const Report& report) {
  const Mesh& mesh = aligned.trace->mesh;
  const std::vector<std::string> of_copies = microbatch_axes(with_program_words({}, *aligned.trace), mesh);
  const Axes axes = all_axes(mesh);
  const bool only_data_parallel = std::all_of(axes.begin(), axes.end(), [&](const Axis& axis) {
    return axis.size == 1 || std::find(of_copies.begin(), of_copies.end(), axis.name) != of_copies.end();
  });
  if (names_annotations(options.annotations) || only_data_parallel) return;
  std::vector<std::string> names;
  for (const Finding& finding : report.findings) {
    const auto tensor = aligned.alignment.tensors.find(finding.id);
    const bool is_placed = tensor == aligned.alignment.tensors.end() || tensor->second.annotated;
    if (finding.reason == Reason::kReplicasDisagree && finding.id.kind == Kind::kParam && !is_placed) {
      names.push_back(finding.id.name);
    }
  }
  if (names.empty()) return;
  throw InputError(fmt::format(
      "{}: no annotations (-a), and neither the program nor its tensors say how {} ranks hold them: {} "
      "parameters differ between ranks, the first {}; expected -a, a file or the name of a preset, that says "
      "which are parts",
      options.trace, aligned.trace->world_size, names.size(), names.front()));
}

int run(const AbftOptions& options, Team& team) {
  Report report;
  PageFacts page;
  ReportFiles files = report_files(options.report, report, page);
  SelfCheckOptions how = thresholds_of(options);
  Trace trace = read_trace(options.trace, team, options.threads);
  keep_elements(trace, "`ttrace abft`");
  how.fp32_products = abft::fp32_products_of(trace.provenance.device, matmul_precision_of(trace.provenance.text));
  const Annotations annotations = load_annotations(options.annotations, trace);
  AlignedTrace aligned = align_trace(std::move(trace), annotations, {}, options.threads);
  Alignment nothing;
  if (!options.only.empty()) keep_only(aligned.alignment, nothing, options.only);
  how.threads = options.threads;
  how.trace = aligned.trace.get();
  how.compare = [&team](std::span<const TensorPair> pairs, const CompareOptions& comparing) {
    return compare(pairs, comparing, team);
  };
  const Replay replay = replay_with(team, options.threads);
  how.replay = &replay;
  report = self_check(aligned.alignment, how);
  require_known_mapping(options, aligned, report);
  add_root_of_each_module(report);
  add_sources(report, aligned.alignment, *aligned.trace, *aligned.trace);
  report.runs.candidate = options.trace;
  report.runs.failed = aligned.trace->failure;
  report.advice.all_findings = "--all";
  require_unchanged_files();
  page.command = command_of(options);
  page.candidate = facts_of(*aligned.trace, options.trace);
  write_report(files, options.report, report);
  return exit_code_of(report.verdict());
}

}  // namespace

void add_abft(CLI::App& app, Run& run_command) {
  auto options = std::make_shared<AbftOptions>();
  CLI::App* abft = app.add_subcommand("abft", "Check a trace against itself, without a reference");
  abft->add_option("TRACE", options->trace, "Directory of the trace")->required();
  add_annotation_options(*abft, options->annotations);
  add_option(*abft, option::kAxes, options->annotations.axes);
  add_option(*abft, option::kOnly, options->only);
  add_option(*abft,
             {.names = "--threshold",
              .type = "METHOD",
              .help = "How far checksums may be apart: v-abft, a-abft, sea, norm",
              .choices = threshold_methods,
              .shows_default = true},
             options->threshold);
  abft->add_option("--e-max", options->e_max,
                   "What products round on your platform, from `ttrace calibrate` [V-ABFT's values]")
      ->type_name("FILE");
  add_option(*abft,
             {.names = "--block",
              .type = "N",
              .help = "Compare sums of N elements, which sees smaller errors [whole rows and columns]",
              .number = Number::kPositive},
             options->block);
  add_options(*abft, options->report);
  add_option(*abft, option::kThreads, options->threads);
  abft->footer(R"(Linear modules must be the product of their recorded inputs and weights, forward
and backward (by checksums: no product is computed again; the gradient of an
input is a sum over the linears and the residual connection that were given it,
and wrong only where the trace proves that nothing else was); attention that of
its queries, keys and values, where its softmax is a module; embeddings and bags
of them the rows that their ids name; main gradients the sum of the
micro-batches'; sums over ranks those of their terms; copies on several ranks
equal; updates what their gradients and the optimizer's options and state give,
and parameters what those made. Each rank's own products come first, then all
over the logical tensors: a communication that is missing or doubled shows as
well as wrong arithmetic. What could not be checked is untrusted, or counted in
a note.

Examples:
  ttrace abft candidate -a gpt.yaml
  ttrace abft candidate -a gpt.yaml --only 'layers.3.**' --json - | \
    jq .first_wrong

Exit codes: 0 everything that could be checked is right, 1 something is wrong,
2 could-not-look.)");
  abft->callback([options, &run_command] {
    run_command = [options] { return run_with_team([&](Team& team) { return run(*options, team); }); };
  });
}

}  // namespace ttrace::cli
