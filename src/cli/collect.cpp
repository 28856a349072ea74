// `ttrace collect`: runs a training command and records what it computes.
#include "workflow/collect.h"

#include <memory>

#include "cli/commands.h"

namespace ttrace::cli {

void add_collect(CLI::App& app, Run& run) {
  struct Arguments {
    CollectOptions options;
    std::string iterations = "0";
    std::string perturb_at = std::string(name_of(kDefaultEstimator));
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("collect", "Run a training command and record what it computes");
  command->add_option("-o,--output", arguments->options.output, "Directory for the trace, new or empty")->required();
  command->add_option("-a,--annotations", arguments->options.annotations,
                      "How the program places its tensors (for --perturb and --layout on several ranks)");
  command->add_option("--iterations", arguments->iterations, "Iterations to record, as in 0,2,5-7 [0]");
  command->add_option(
      "--axes", arguments->options.axes,
      "Axes of the mesh and their sizes in rank order, fastest first: tp=2,dp=2,sp=tp; after a /, another\n"
      "factoring of the ranks: tp=2,dp=2/ep=2,edp=2");
  CLI::Option* perturb = command->add_option("--perturb", arguments->options.perturb,
                                             "Perturb activations by their dtype's epsilon, with this seed");
  command
      ->add_option("--perturb-at", arguments->perturb_at,
                   "What --perturb changes: input, the first activation alone; modules, the output of every module;\n"
                   "rewritten, every value that --inject or --rewrite gives a module")
      ->capture_default_str()
      ->check(CLI::IsMember(std::vector<std::string>(kEstimatorNames.begin(), kEstimatorNames.end())))
      ->needs(perturb);
  RewriteOptions& rewrite = arguments->options.rewrite;
  command->add_option("--inject", rewrite.inject,
                      "Give every module the floating-point inputs, and in backward the output gradients, that this\n"
                      "trace recorded for it: errors no longer travel from module to module");
  command->add_option("--rewrite", rewrite.rewrite, "The same with generated values of this trace's norms");
  command->add_option("--inject-params", rewrite.inject_params,
                      "Set the parameters before each iteration to what this trace recorded");
  command->add_option("--consistent-init", rewrite.consistent_init,
                      "Set the parameters to generated values of this trace's norms, and integer inputs (tokens) to\n"
                      "what it recorded: programs with different initialisation start equal");
  command->add_option("--layout", rewrite.layout,
                      "An earlier trace of this command, where its ranks do not hold tensors as those of the trace\n"
                      "above do; needs -a as `ttrace check` does");
  command->add_option("--rewrite-seed", rewrite.seed, "Of generated values")->capture_default_str();
  command->add_option("command", arguments->options.command, "The command and its arguments, after --")->required();
  command->footer(
      "Examples:\n"
      "  ttrace collect -o reference -- python train.py\n"
      "  ttrace collect -o candidate --axes tp=2,dp=2,sp=tp -- torchrun --nproc-per-node 4 train.py\n"
      "  ttrace collect -o again --inject reference --layout candidate -a gpt.yaml --axes tp=2,dp=2,sp=tp -- torchrun\n"
      "    --nproc-per-node 4 train.py          (each module by itself; `ttrace localize` does this after a check)\n"
      "\n"
      "Exit codes: the command's own where it fails (128 + n after signal n, 127 not found, 126 not executable);\n"
      "2 where the trace is not whole; else 0.");
  command->callback([arguments, &run] {
    run = [arguments] {
      arguments->options.perturb_at = estimator_from_name(arguments->perturb_at).value();
      arguments->options.iterations = parse_iterations(arguments->iterations);
      return collect(arguments->options);
    };
  });
}

}  // namespace ttrace::cli
