// The options of commands, each written once: what it is called and says, and the member that it sets. The command line
// (src/cli), the words that make a command again, what the collector's ranks read, the Python package's keywords and
// the shells' completions are all made of these tables: `visit_options` calls `visit(const Option&, member)` for each
// option of a struct, in the order of help.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "workflow/check.h"
#include "workflow/collect.h"
#include "workflow/follow.h"
#include "workflow/report_files.h"
#include "workflow/watch.h"

namespace ttrace {

enum class Number : std::uint8_t { kAny, kPositive, kNotNegative, kThreads };  // kThreads: 1 to 4096

struct Option {
  const char* names;  // "-a,--annotations": the first is that of command lines; behind `!` a flag that means false
  const char* type;   // of its value, as help shows it; empty: a flag
  const char* help;
  const char* group = "";                           // of the help page; empty: the first
  const char* keyword = "";                         // in Python and in JSON; empty: the long name
  std::vector<std::string> (*choices)() = nullptr;  // the words that a value may be
  bool only_choices = true;                         // a value is one of these and nothing else
  Number number = Number::kAny;
  const char* needs = "";  // another option
  bool required = false;
  bool shows_default = false;         // in help
  bool hidden = false;                // from help: for a command that ttrace itself starts
  bool for_ranks = false;             // the ranks of a collected run read it
  bool in_localize = true;            // where `check` has it
  const char* help_in_localize = "";  // where that can say more than `was not expected`
};

// Returns "--annotations" of "-a,--annotations".
std::string long_name_of(const Option& option);
// Returns what Python and JSON call it: "reference_annotations".
std::string keyword_of(const Option& option);

namespace choices {
std::vector<std::string> annotations();      // the presets that come with the program, and `none`
std::vector<std::string> correspondences();  // that come with the program
std::vector<std::string> tolerances();       // what is no file
std::vector<std::string> kinds();            // of tensors
std::vector<std::string> recorded_kinds();   // that `collect --kinds` knows
std::vector<std::string> estimators();
std::vector<std::string> roundings();  // dtypes that a checkpoint is converted to
}  // namespace choices

// The options that several commands have.
namespace option {
inline constexpr Option kReference = {"--reference", "TRACE", "Trace of the trusted run"};
inline constexpr Option kCandidate = {"--candidate", "TRACE", "Trace of the run under test"};
inline constexpr Option kAnnotations = {
    .names = "-a,--annotations",
    .type = "FILE",
    .help = "How the program places its tensors: a file (YAML), the name of a preset, or none",
    .choices = choices::annotations,
    .only_choices = false};
inline constexpr Option kSet = {.names = "--set",
                                .type = "NAME=VALUE",
                                .help = "Give a parameter of the annotations a value; repeatable",
                                .keyword = "settings"};
inline constexpr Option kAxes = {
    "--axes", "AXES", "Axes of the ranks, fastest first, as in tp=2,dp=2, where the trace does not say them"};
inline constexpr Option kTolerance = {
    .names = "-t,--tolerance",
    .type = "FILE",
    .help =
        "What each tensor may differ by, from `ttrace estimate-tolerance`; without, all must be equal; default: a "
        "closed form, not measured",
    .choices = choices::tolerances,
    .only_choices = false};
inline constexpr Option kCorrespondence = {
    .names = "--correspondence",
    .type = "FILE",
    .help =
        "The two are programs of their own: which tensor of one is which of the other (YAML), a file or one that "
        "comes with ttrace",
    .choices = choices::correspondences,
    .only_choices = false,
    .in_localize = false,
    .help_in_localize = "Not possible: a second run gives values by name, and other programs have others"};
inline constexpr Option kOnly = {"--only", "PATTERN", "Only tensors whose name matches this glob or dotted suffix"};
inline constexpr Option kPython = {"--python", "PYTHON",
                                   "The Python that reads what is no trace, with the packages of its format [python3]"};
inline constexpr Option kThreads = {
    .names = "--threads", .type = "N", .help = "Number of threads [one a core]", .number = Number::kThreads};
inline constexpr Option kJson = {"--json", "FILE",
                                 "Write the report as JSON to this file (-: stdout, instead of the text)"};
inline constexpr Option kHtml = {"--html", "FILE",
                                 "Write the report as a page with pictures, one file for any browser (-: stdout)"};
inline constexpr Option kSarif = {"--sarif", "FILE",
                                  "Write the root causes as SARIF 2.1.0, for code scanning, to this file (-: stdout)"};
inline constexpr Option kGithub = {"--github", "",
                                   "Print the root causes as annotations of a GitHub workflow, too, at their lines"};
inline constexpr Option kHistory = {"--history", "FILE",
                                    "Add verdicts and ratios to this SQLite file, for `ttrace history`"};
}  // namespace option

template <class Options, class Of>
concept OptionsOf = std::same_as<std::remove_const_t<Options>, Of>;

// Says which two runs are compared, and by what.
template <OptionsOf<CheckOptions> Options, class Visit>
void visit_compared(Options& options, Visit&& visit) {
  Option reference = option::kReference, candidate = option::kCandidate;
  reference.required = candidate.required = true;
  visit(reference, options.reference);
  visit(candidate, options.candidate);
  visit(option::kAnnotations, options.annotations.file);
  visit(option::kSet, options.annotations.settings);
  visit(option::kAxes, options.annotations.axes);
  visit(Option{.names = "--reference-annotations",
               .type = "FILE",
               .help = "How a reference on several ranks places its tensors, where that is not what -a says",
               .choices = choices::annotations,
               .only_choices = false},
        options.reference_annotations.file);
  visit(Option{.names = "--reference-set",
               .type = "NAME=VALUE",
               .help = "Give a parameter of these a value; repeatable",
               .keyword = "reference_settings",
               .needs = "--reference-annotations"},
        options.reference_annotations.settings);
  visit(option::kCorrespondence, options.correspondence);
  visit(option::kTolerance, options.tolerance);
  visit(Option{"--accept-overrides", "",
               "Take overrides of the tolerance file however much they allow, and what they excuse for proved"},
        options.accept_overrides);
  visit(
      Option{.names = "--bits",
             .type = "",
             .help = "Every logical tensor must have the reference's bits, as of a deterministic mode on other ranks; "
                     "says by how many units in the last place the first one differs",
             .in_localize = false},
      options.bits);
  visit(Option{.names = "--sequences",
               .type = "TOKENS",
               .help =
                   "The two were given the same sequences in other batches: padded otherwise, packed, in other "
                   "micro-batches or decoded with a cache; rows are held against each other by sequence and position, "
                   "which the tokens tell: the name of the input that holds them, or auto",
               .in_localize = false},
        options.sequences);
  visit(Option{.names = "--rounded-to",
               .type = "DTYPE",
               .help =
                   "The candidate's tensors of this dtype are the reference's rounded to it, as in a converted "
                   "checkpoint (bf16, fp16, ...): compare them with that, so that only what differs beyond it is seen",
               .choices = choices::roundings,
               .only_choices = false,
               .in_localize = false},
        options.rounded_to);
  visit(option::kOnly, options.only);
  visit(Option{.names = "--iterations",
               .type = "LIST",
               .help = "Compare these iterations alone, as in 0,2,5-7",
               .in_localize = false},
        options.iterations);
  visit(Option{.names = "--reference-iterations",
               .type = "LIST",
               .help = "Compare these iterations of the reference with those of --candidate-iterations, as of a run "
                       "that was resumed",
               .in_localize = false},
        options.reference_iterations);
  visit(Option{.names = "--candidate-iterations",
               .type = "LIST",
               .help = "The candidate's iterations that these are held against, one each",
               .needs = "--reference-iterations",
               .in_localize = false},
        options.candidate_iterations);
}

// Says how strictly they are.
template <OptionsOf<CheckOptions> Options, class Visit>
void visit_strictness(Options& options, Visit&& visit) {
  visit(Option{"--strict", "", "Untrusted tensors count as failed; ones that a program could not record are refused"},
        options.strict);
  visit(Option{.names = "!--no-checksums",
               .type = "",
               .help = "Do not verify the checksums of the tensors that are compared",
               .keyword = "checksums"},
        options.checksums);
  visit(Option{"--allow-same-run", "", "The candidate may be the reference itself"}, options.allow_same_run);
  visit(option::kThreads, options.threads);
  Option python = option::kPython;
  python.in_localize = false;
  visit(python, options.python);
}

template <OptionsOf<CheckOptions> Options, class Visit>
void visit_options(Options& options, Visit&& visit) {
  visit_compared(options, visit);
  visit_strictness(options, visit);
}

template <OptionsOf<FollowOptions> Options, class Visit>
void visit_options(Options& options, Visit&& visit) {
  const char* const kGroup = "While the job goes on";
  visit(Option{.names = "--timeout",
               .type = "SECONDS",
               .help = "Give up where no further iteration came for so long [600]",
               .group = kGroup,
               .number = Number::kPositive,
               .needs = "--follow"},
        options.timeout);
  visit(
      Option{.names = "--keep",
             .type = "N",
             .help =
                 "Of the candidate's iterations that are the same keep the last N, and remove the traces of the others",
             .group = kGroup,
             .number = Number::kPositive,
             .needs = "--follow"},
      options.keep);
}

template <OptionsOf<ReportOptions> Options, class Visit>
void visit_options(Options& options, Visit&& visit) {
  visit(option::kJson, options.json);
  visit(Option{"--junit", "FILE", "Write the report as JUnit XML to this file (-: stdout)"}, options.junit);
  visit(Option{"--csv", "FILE", "Write a line for every tensor that was looked at to this file (-: stdout)"},
        options.csv);
  visit(option::kHtml, options.html);
  visit(option::kSarif, options.sarif);
  visit(option::kGithub, options.github);
  visit(Option{"--all", "", "Print all findings, not just a summary"}, options.all);
}

template <OptionsOf<RecordingSelection> Options, class Visit>
void visit_options(Options& options, Visit&& visit) {
  const char* const kGroup = "Choosing what to record";
  visit(Option{"--only", "PATTERN",
               "Record these modules and parameters alone, with all that is inside them: a name, what follows one of "
               "its dots, or a glob (layers.0, 'layers.*.mlp'); may be repeated. Scalars are recorded anyway",
               kGroup},
        options.only);
  visit(Option{"--except", "PATTERN", "Leave these out, and all that is inside them; may be repeated", kGroup},
        options.except);
  visit(Option{.names = "--kinds",
               .type = "LIST",
               .help = "Record these kinds alone, as in input,output,param_grad; an optimizer's state is recorded with "
                       "param_delta",
               .group = kGroup,
               .choices = choices::recorded_kinds,
               .only_choices = false},
        options.kinds);
  visit(Option{.names = "--depth",
               .type = "N",
               .help =
                   "Record calls of modules whose name has at most so many parts (layers.0 has 2, the model itself 0); "
                   "parameters and their gradients all the same",
               .group = kGroup,
               .number = Number::kNotNegative},
        options.depth);
  visit(Option{"--sketch", "",
               "Record a sketch of each floating-point tensor of 65,536 elements or more in place of its elements: 200 "
               "to 400 times smaller, and enough for `ttrace check`",
               "Sketching"},
        options.sketch);
  visit(
      Option{.names = "--whole",
             .type = "PATTERN",
             .help = "Record these modules and parameters whole, with all that is inside them, beside sketches of the "
                     "others: a pattern as of --only; may be repeated",
             .group = "Sketching",
             .needs = "--sketch"},
      options.whole);
  visit(
      Option{"--no-grad", "",
             "Record what the program calls without gradients (an evaluation, a rollout), and nothing else: each call "
             "of a model is a micro-batch of iteration 0",
             kGroup},
      options.no_grad);
}

template <OptionsOf<RewriteOptions> Options, class Visit>
void visit_options(Options& options, Visit&& visit) {
  const auto add = [&](const char* name, auto& trace, const char* help) {
    visit(Option{name, "TRACE", help, "Rewriting"}, trace);
  };
  add("--inject", options.inject,
      "Give every module the floating-point inputs, and in backward the output gradients, that this trace recorded for "
      "it: errors no longer travel from module to module");
  add("--rewrite", options.rewrite, "The same with generated values of this trace's norms");
  add("--inject-params", options.inject_params, "Set the parameters before each iteration to what this trace recorded");
  add("--consistent-init", options.consistent_init,
      "Set the parameters to generated values of this trace's norms, and integer inputs (tokens) to what it recorded: "
      "programs with different initialisation start equal");
  add("--layout", options.layout,
      "An earlier trace of this command, where its ranks do not hold tensors as those of the trace above do; needs -a "
      "as `ttrace check` does");
}

template <OptionsOf<CollectOptions> Options, class Visit>
void visit_options(Options& options, Visit&& visit) {
  const char *const kRecording = "Recording", *const kPerturbing = "Perturbing";
  visit(Option{.names = "-o,--output",
               .type = "TRACE",
               .help = "Directory for the trace, new or empty",
               .group = kRecording,
               .required = true},
        options.output);
  visit(Option{.names = "--iterations",
               .type = "LIST",
               .help = "Iterations to record, as in 0,2,5-7 [0, and at most two further ones while the gradients of "
                       "some parameters are zero]",
               .group = kRecording,
               .for_ranks = true},
        options.iterations);
  visit(Option{.names = "--then",
               .type = "N",
               .help =
                   "So many iterations more, lightly: gradients and updates of parameters, buffers and scalars alone, "
                   "large ones as sketches; a program may end before",
               .group = kRecording,
               .number = Number::kNotNegative,
               .shows_default = true,
               .for_ranks = true},
        options.then);
  visit(
      Option{.names = "--split",
             .type = "",
             .help = "A trace for each iteration, TRACE/iteration-000000 and so on, which is whole as soon as the next "
                     "iteration begins: `ttrace check --follow` checks them while the job goes on",
             .group = kRecording,
             .for_ranks = true},
      options.split);
  visit(
      Option{
          .names = "--axes",
          .type = "AXES",
          .help =
              "Axes of the mesh and their sizes in rank order, fastest first: tp=2,dp=2,sp=tp; after a /, another "
              "factoring of the ranks: tp=2,dp=2/ep=2,edp=2; left out: what the program's own framework says, or what "
              "a check is told (`ttrace check --axes`)",
          .group = kRecording,
          .for_ranks = true},
      options.axes);
  Option annotations = option::kAnnotations;
  annotations.help = "How the program places its tensors (YAML); for --perturb and --layout on several ranks";
  annotations.group = kRecording;
  visit(annotations, options.annotations.file);
  visit(option::kSet, options.annotations.settings);
  visit(
      Option{
          .names = "--directory", .type = "DIR", .help = "Where the command runs", .group = kRecording, .hidden = true},
      options.working_directory);
  visit_options(options.selection, visit);
  visit(Option{"--again", "TRACE",
               "A trace of an earlier run of the command, as one of sketches: what both recorded must have the same "
               "bits, or else the first tensor that has not is named, and the exit code is 2",
               "Sketching"},
        options.again);
  visit(Option{.names = "--perturb",
               .type = "SEED",
               .help = "Perturb activations by their dtype's epsilon, with this seed",
               .group = kPerturbing,
               .for_ranks = true},
        options.perturb);
  visit(
      Option{.names = "--perturb-at",
             .type = "NAME",
             .help = "What --perturb changes: input, the first activation alone; modules, the output of every module; "
                     "rewritten, every value that --inject or --rewrite gives a module",
             .group = kPerturbing,
             .choices = choices::estimators,
             .needs = "--perturb",
             .shows_default = true,
             .for_ranks = true},
      options.perturb_at);
  visit_options(options.rewrite, visit);
}

template <OptionsOf<WatchOptions> Options, class Visit>
void visit_options(Options& options, Visit&& visit) {
  visit(Option{.names = "-o,--output",
               .type = "DIR",
               .help = "Directory for what is said of each check, and for pieces that are wrong, new or empty",
               .required = true},
        options.output);
  visit(Option{.names = "--every",
               .type = "N",
               .help = "Record every N-th iteration at most, beside those that are drawn",
               .number = Number::kPositive,
               .shows_default = true},
        options.every);
  visit(Option{.names = "--budget",
               .type = "PERCENT",
               .help = "The share of the job's time that recording may take: fewer iterations are recorded where it "
                       "takes more",
               .shows_default = true},
        options.budget);
  visit(Option{.names = "--seed",
               .type = "N",
               .help = "Of the iterations that are drawn: one in each fourth stretch of N",
               .shows_default = true},
        options.seed);
  visit(Option{"--hook", "COMMAND",
               "Run this by `sh -c` where an iteration is wrong, with TTRACE_ITERATION, TTRACE_TENSOR, TTRACE_REASON, "
               "TTRACE_RANKS and TTRACE_KEPT in its environment"},
        options.hook);
  visit(option::kAnnotations, options.annotations.file);
  visit(option::kSet, options.annotations.settings);
  visit(option::kAxes, options.annotations.axes);
}

}  // namespace ttrace
