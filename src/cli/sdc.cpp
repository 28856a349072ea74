// `ttrace sdc`: what does a suspect node do to a program that a healthy node runs too?
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "host/shell_words.h"
#include "load/further.h"
#include "load/mapped_file.h"
#include "load/trace_reader.h"
#include "page/html.h"
#include "sdc/report.h"
#include "workflow/report_files.h"

namespace ttrace::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAdvice =
    "expected a program that repeats itself to the bit: fixed seeds, the same number of threads, "
    "torch.use_deterministic_algorithms(True), CUBLAS_WORKSPACE_CONFIG=:4096:8";

struct SdcOptions {
  std::string healthy, suspect, rerun;
  std::string json, html, csv;  // json, html: `-` is stdout; csv: a directory
  int threads = 0;
};

// Other software computes other bits, and nobody's hardware is at fault.
void require_same_software(const Trace& healthy, const Trace& suspect) {
  const auto require_same = [&](std::string_view what, const std::string& value, const std::string& other) {
    if (value == other) return;
    const auto said = [](const std::string& text) { return text.empty() ? "not known" : printable(text); };
    throw InputError(fmt::format("{}: its {} is {}, that of {} {}; expected the same program on the same software",
                                 suspect.directory.string(), what, said(other), healthy.directory.string(),
                                 said(value)));
  };
  const auto seed_of = [](const Provenance& provenance) {
    return provenance.perturb_seed ? std::to_string(*provenance.perturb_seed) : std::string();
  };
  const Provenance &facts = healthy.provenance, &others = suspect.provenance;
  require_same("torch", facts.torch, others.torch);
  require_same("device", facts.device, others.device);
  require_same("git_commit", facts.git_commit, others.git_commit);
  require_same("perturb_seed", seed_of(facts), seed_of(others));
}

// Returns whether the suspect's modules were given what the healthy run's were, whatever arrived at them.
bool is_lock_step(const Trace& healthy, const Trace& suspect) {
  const auto &own = healthy.provenance.rewritten, &given = suspect.provenance.rewritten;
  if (given == own) return given && !given->activations.empty();
  if (given && given->source == healthy.run_id && given->activations != "generated") {
    return given->activations == "recorded";
  }
  throw InputError(fmt::format(
      "{}: its modules were given other values than those of {}; expected two runs of the same values, or a suspect "
      "that was collected with --inject {}",
      suspect.directory.string(), healthy.directory.string(), healthy.directory.string()));
}

// Bits can be held against bits only where both began with the same.
void require_same_start(std::span<const RecordedPair> pairs, const SdcOptions& options) {
  for (const RecordedPair& pair : pairs) {
    const TensorId& id = pair.healthy->id;
    const bool is_given = id.kind == Kind::kParam || (id.kind == Kind::kInput && !is_floating(pair.healthy->dtype));
    if (!is_given || id.iteration != 0 || pair.mismatch.differing == 0) continue;
    throw InputError(fmt::format("{}: {} on rank {} is not that of {}; expected the same initial parameters and data",
                                 options.suspect, to_string(id), pair.rank->rank, options.healthy));
  }
}

void require_repeatable(const Trace& healthy, const SdcOptions& options) {
  Trace rerun = read_trace(options.rerun, options.threads);
  keep_elements(rerun, "`ttrace sdc`");
  require_same_software(healthy, rerun);
  const std::vector<RecordedPair> pairs = pair_recorded(healthy, rerun, options.threads);
  const SdcReport report = summarize_corruption(pairs);
  for (const RankTrace& rank : rerun.ranks) {
    if (rank.complete) continue;
    throw InputError(fmt::format("{}: not complete; expected a whole second run", rank.path.string()));
  }
  if (report.same()) return;
  throw InputError(fmt::format(
      "{} and {} differ in {} of {} tensors, first in {}: the program is not deterministic; {}", options.healthy,
      options.rerun, report.differing_tensors, report.tensors, to_string(report.first->id), kAdvice));
}

// Returns the command line of the same comparison.
std::string command_of(const SdcOptions& options) {
  std::string command =
      fmt::format("ttrace sdc --healthy {} --suspect {}", shell_word(options.healthy), shell_word(options.suspect));
  return options.rerun.empty() ? command : fmt::format("{} --rerun {}", command, shell_word(options.rerun));
}

// Opens all of them; `report` is read when they are written.
ReportFiles report_files(const SdcOptions& options, const SdcReport& report) {
  ReportFiles files;
  files.add("--json", options.json, [&report] { return to_json(report); });
  files.add("--html", options.html, [&] { return to_html(report, command_of(options)); });
  if (options.csv.empty()) return files;
  const fs::path directory = options.csv;
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw InputError(fmt::format("{}: {}; expected a directory", directory.string(), error.message()));
  files.add("--csv", directory / "submodules.csv", [&report] { return submodules_csv(report); });
  files.add("--csv", directory / "ranks.csv", [&report] { return ranks_csv(report); });
  files.add("--csv", directory / "steps.csv", [&report] { return steps_csv(report); });
  return files;
}

void note_what_is_left_open(const Trace& healthy, const Trace& suspect, SdcReport& report) {
  if (!report.lock_step && !report.same()) {
    report.notes.push_back(fmt::format(
        "not in lock step: frequency and severity hold what came in from other modules as well as what each computed "
        "wrongly; `ttrace collect --inject {0} --inject-params {0}` on the suspect node gives each module the healthy "
        "run's values",
        shell_word(healthy.directory.string())));
  }
  for (const Trace* trace : {&healthy, &suspect}) {
    for (const RankTrace& rank : trace->ranks) {
      if (rank.complete) continue;
      report.notes.push_back(fmt::format("{}: not complete: what it lacks was not compared", rank.path.string()));
    }
  }
}

int run(const SdcOptions& options) {
  SdcReport report;
  ReportFiles files = report_files(options, report);
  Trace healthy = read_trace(options.healthy, options.threads);
  Trace suspect = read_trace(options.suspect, options.threads);
  for (Trace* trace : {&healthy, &suspect}) keep_elements(*trace, "`ttrace sdc`");
  require_same_software(healthy, suspect);
  if (!options.rerun.empty()) require_repeatable(healthy, options);
  const std::vector<RecordedPair> pairs = pair_recorded(healthy, suspect, options.threads);
  require_same_start(pairs, options);
  report = summarize_corruption(pairs, is_lock_step(healthy, suspect));
  report.healthy = options.healthy;
  report.suspect = options.suspect;
  if (options.rerun.empty() && !report.same()) {
    if (const std::string why = nondeterminism_suspected(report, pairs); !why.empty()) {
      throw InputError(
          fmt::format("{}: {}, which a program that is not deterministic does; {}; if it does, prove it "
                      "with a second run of the healthy node: --rerun TRACE",
                      options.suspect, why, kAdvice));
    }
    report.notes.push_back(
        "that the program repeats itself was not shown: --rerun takes a second run of the healthy node");
  }
  note_what_is_left_open(healthy, suspect, report);
  require_unchanged_files();
  files.write([&] { return to_text(report); });
  return report.same() ? kExitSame : kExitDifferent;
}

}  // namespace

void add_sdc(CLI::App& app, Run& run_command) {
  auto options = std::make_shared<SdcOptions>();
  CLI::App* sdc = app.add_subcommand("sdc", "Compare a suspect node's bits with a healthy node's");
  sdc->add_option("--healthy", options->healthy, "Trace of the run on the healthy node")
      ->type_name("TRACE")
      ->required();
  sdc->add_option("--suspect", options->suspect, "Trace of the same run on the suspect node")
      ->type_name("TRACE")
      ->required();
  sdc->add_option("--rerun", options->rerun,
                  "Trace of a second run of the healthy node: must have the same bits, which shows that the program "
                  "repeats itself")
      ->type_name("TRACE");
  add_option(*sdc, option::kJson, options->json);
  add_option(*sdc, option::kHtml, options->html);
  sdc->add_option(
         "--csv", options->csv,
         "Write submodules.csv (each type of submodule at each micro-step), ranks.csv (the same for each rank) "
         "and steps.csv to this directory")
      ->type_name("DIR");
  add_option(*sdc, option::kThreads, options->threads);
  sdc->footer(R"(Both runs are of one deterministic program, with the same ranks; record as many
iterations as you want to see, the suspect's in lock step: with --inject, each
module is given the healthy run's tensors, and its numbers are of what it
computed wrongly itself; without, they are also of what came in.
frequency: share of a submodule's output elements with other bits, mean over
the submodules of a type; severity: mean of
|suspect - healthy| / |healthy| over them, largest over ranks and submodules
("Understanding silent data corruption in LLM training", equations 1 to 4).
origins: calls that made an error out of equal inputs; all others pass on what
came in.

Examples:
  ttrace collect -o healthy --iterations 0-9 -- \
    torchrun --nproc-per-node 8 train.py              # on the healthy node
  ttrace collect -o suspect --iterations 0-9 --inject healthy \
    --inject-params healthy -- torchrun --nproc-per-node 8 train.py
  ttrace sdc --healthy healthy --suspect suspect --rerun healthy-again \
    --html page.html

Exit codes: 0 same to the bit, 1 different, 2 could-not-look (misuse,
unreadable or non-deterministic runs).)");
  sdc->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
