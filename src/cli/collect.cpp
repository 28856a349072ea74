// `ttrace collect`: runs a training command and records what it computes.
#include "workflow/collect.h"

#include <memory>

#include "cli/commands.h"

namespace ttrace::cli {
namespace {

struct CollectArguments {
  CollectOptions options;
  std::string iterations = "0", kinds;
  std::string perturb_at = std::string(name_of(kDefaultEstimator));
};

void add_recording_options(CLI::App& collect, CollectArguments& arguments) {
  const char* const kRecording = "Recording";
  collect.add_option("-o,--output", arguments.options.output, "Directory for the trace, new or empty")
      ->type_name("TRACE")
      ->required()
      ->group(kRecording);
  collect.add_option("--iterations", arguments.iterations, "Iterations to record, as in 0,2,5-7")
      ->type_name("LIST")
      ->capture_default_str()
      ->group(kRecording);
  collect
      .add_flag("--split", arguments.options.split,
                "A trace for each iteration, TRACE/iteration-000000 and so on, which is whole as soon as the next "
                "iteration begins: `ttrace check --follow` checks them while the job goes on")
      ->group(kRecording);
  collect
      .add_option("--axes", arguments.options.axes,
                  "Axes of the mesh and their sizes in rank order, fastest first: tp=2,dp=2,sp=tp; after a /, another "
                  "factoring of the ranks: tp=2,dp=2/ep=2,edp=2; left out: what the program's own framework says, or "
                  "what a check is told (`ttrace check --axes`)")
      ->type_name("AXES")
      ->group(kRecording);
  add_annotation_options(collect, arguments.options.annotations)
      ->description("How the program places its tensors (YAML); for --perturb and --layout on several ranks")
      ->group(kRecording);
}

void add_choosing_options(CLI::App& collect, CollectArguments& arguments) {
  RecordingSelection& selection = arguments.options.selection;
  const auto add = [&](CLI::Option* option, const char* type) {
    option->type_name(type)->group("Choosing what to record");
  };
  add(collect
          .add_option(
              "--only", selection.only,
              "Record these modules and parameters alone, with all that is inside them: a name, what follows one "
              "of its dots, or a glob (layers.0, 'layers.*.mlp'); may be repeated. Scalars are recorded anyway")
          ->allow_extra_args(false),
      "PATTERN");
  add(collect.add_option("--except", selection.except, "Leave these out, and all that is inside them; may be repeated")
          ->allow_extra_args(false),
      "PATTERN");
  add(collect.add_option(
          "--kinds", arguments.kinds,
          "Record these kinds alone, as in input,output,param_grad; an optimizer's state is recorded with "
          "param_delta"),
      "LIST");
  add(collect
          .add_option("--depth", selection.depth,
                      "Record calls of modules whose name has at most so many parts (layers.0 has 2, the model itself "
                      "0); parameters and their gradients all the same")
          ->check(CLI::NonNegativeNumber),
      "N");
}

void add_sketching_options(CLI::App& collect, CollectArguments& arguments) {
  RecordingSelection& selection = arguments.options.selection;
  const char* const kSketching = "Sketching";
  CLI::Option* sketch =
      collect
          .add_flag(
              "--sketch", selection.sketch,
              "Record a sketch of each floating-point tensor of 65,536 elements or more in place of its elements: "
              "200 to 400 times smaller, and enough for `ttrace check`")
          ->group(kSketching);
  collect
      .add_option("--whole", selection.whole,
                  "Record these modules and parameters whole, with all that is inside them, beside sketches of the "
                  "others: a pattern as of --only; may be repeated")
      ->allow_extra_args(false)
      ->needs(sketch)
      ->type_name("PATTERN")
      ->group(kSketching);
  collect
      .add_option("--again", arguments.options.again,
                  "A trace of an earlier run of the command, as one of sketches: what both recorded must have the same "
                  "bits, or else the first tensor that has not is named, and the exit code is 2")
      ->type_name("TRACE")
      ->group(kSketching);
}

void add_perturbing_options(CLI::App& collect, CollectArguments& arguments) {
  const char* const kPerturbing = "Perturbing";
  CLI::Option* perturb = collect
                             .add_option("--perturb", arguments.options.perturb,
                                         "Perturb activations by their dtype's epsilon, with this seed")
                             ->type_name("SEED")
                             ->group(kPerturbing);
  collect
      .add_option("--perturb-at", arguments.perturb_at,
                  "What --perturb changes: input, the first activation alone; modules, the output of every module; "
                  "rewritten, every value that --inject or --rewrite gives a module")
      ->type_name("NAME")
      ->capture_default_str()
      ->check(CLI::IsMember(std::vector<std::string>(kEstimatorNames.begin(), kEstimatorNames.end())))
      ->needs(perturb)
      ->group(kPerturbing);
}

void add_rewriting_options(CLI::App& collect, RewriteOptions& options) {
  const auto add = [&](const char* name, std::filesystem::path& trace, const char* description) {
    collect.add_option(name, trace, description)->type_name("TRACE")->group("Rewriting");
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

}  // namespace

void add_collect(CLI::App& app, Run& run) {
  auto arguments = std::make_shared<CollectArguments>();
  CLI::App* collect = app.add_subcommand("collect", "Run a training command and record what it computes");
  collect->add_option("COMMAND", arguments->options.command, "The command and its arguments, after --")->required();
  add_recording_options(*collect, *arguments);
  add_choosing_options(*collect, *arguments);
  add_sketching_options(*collect, *arguments);
  add_perturbing_options(*collect, *arguments);
  add_rewriting_options(*collect, arguments->options.rewrite);
  collect->footer(R"(Examples:
  ttrace collect -o reference -- python train.py
  ttrace collect -o candidate --axes tp=2,dp=2,sp=tp -- \
    torchrun --nproc-per-node 4 train.py
  ttrace collect -o ddp -- torchrun --nproc-per-node 2 train_with_ddp.py
Less than all of it, which a check is told:
  ttrace collect -o less --except embedding --depth 3 -- python train.py
Hundreds of times smaller, for models whose activations fit nowhere:
  ttrace collect -o small --sketch -- torchrun --nproc-per-node 4 train.py
  ttrace collect -o closer --sketch --whole layers.3 --again small -- \
    torchrun --nproc-per-node 4 train.py
Each module by itself (`ttrace localize` does this after a check):
  ttrace collect -o again --inject reference --layout candidate -a gpt.yaml \
    --axes tp=2,dp=2,sp=tp -- torchrun --nproc-per-node 4 train.py

The command, and what it starts, inherit PYTHONPATH (a folder of ttrace comes
first), TTRACE_CONFIG (what to record) and TTRACE_RECORDED (set by a process
that is recorded, for what it starts). What does not train is left alone.

Exit codes: the command's own where it fails (128 + n after signal n, 127 not
found, 126 not executable); 2 where the trace is not whole; else 0.)");
  collect->callback([arguments, &run] {
    run = [arguments] {
      arguments->options.perturb_at = estimator_from_name(arguments->perturb_at).value();
      arguments->options.iterations = parse_iterations(arguments->iterations);
      arguments->options.selection.kinds = parse_kinds(arguments->kinds);
      return ttrace::collect(arguments->options);
    };
  });
}

}  // namespace ttrace::cli
