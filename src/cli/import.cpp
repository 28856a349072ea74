// `ttrace import`: tensors that others recorded become a trace. Python reads their files.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "host/installation.h"
#include "host/launch.h"

namespace ttrace::cli {
namespace {

struct ImportOptions {
  std::string format, output, python = "python3", pattern, kind, key, axes;
  std::vector<std::string> sources;
  bool partial = false;
};

std::vector<std::string> command_of(const ImportOptions& options) {
  std::vector<std::string> command = run_python_module(options.python, "ttrace_import");
  command.insert(command.end(), {options.format, "--output", options.output});
  command.insert(command.end(), {"--library", beside_program("lib/libttrace.so").string()});
  // One word each, and the sources behind `--`: what begins with a dash is no option.
  for (const auto& [name, value] : {std::pair("--pattern", options.pattern), std::pair("--kind", options.kind),
                                    std::pair("--key", options.key), std::pair("--axes", options.axes)}) {
    if (!value.empty()) command.push_back(fmt::format("{}={}", name, value));
  }
  if (options.partial) command.emplace_back("--partial");
  command.emplace_back("--");
  command.insert(command.end(), options.sources.begin(), options.sources.end());
  return command;
}

int run(const ImportOptions& options) {
  Launch launch;
  launch.environment = {python_path_with(beside_program("share/ttrace"))};
  launch.in_own_group = false;
  const CommandResult result = run_command(command_of(options), launch);
  if (!result.started) {
    throw InputError(fmt::format("--python {}: {}; expected a Python with the packages of the format", options.python,
                                 result.failure));
  }
  // Python has said what it refuses; what else may happen to a process has been said by nobody.
  if (result.exit_code != kExitSame && result.exit_code != kExitCouldNotLook) {
    throw InputError(fmt::format("{}: {} {}; expected a trace", options.output, options.python, result.failure));
  }
  return result.exit_code;
}

std::vector<std::string> formats() {
  return {"files", "checkpoint", "msprobe", "sglang", "transformer-engine", "torchtitan"};
}

}  // namespace

void add_import(CLI::App& app, Run& run_command) {
  const auto options = std::make_shared<ImportOptions>();
  CLI::App* command = app.add_subcommand("import", "Make a trace of tensors that other programs recorded");
  add_option(*command,
             {.names = "FORMAT",
              .type = "",
              .help = "files (safetensors, npz, pt), checkpoint (parameters), msprobe (dump.json), sglang (its "
                      "dumper), transformer-engine (DumpTensors)",
              .choices = formats,
              .required = true},
             options->format);
  command->add_option("SOURCE", options->sources, "Folders or files; of a checkpoint one")->required();
  command->add_option("-o,--output", options->output, "Directory for the trace, new or empty")
      ->required()
      ->type_name("TRACE");
  command
      ->add_option("--pattern", options->pattern,
                   "files: how paths below a SOURCE, and behind :: keys within a file, are made of {name}, {kind}, "
                   "{rank}, {iteration}, {microbatch}, and * for any other text")
      ->type_name("PATTERN");
  add_option(*command,
             {.names = "--kind",
              .type = "KIND",
              .help = "files: of tensors whose pattern says none: output, param, ...",
              .choices = choices::kinds},
             options->kind);
  command
      ->add_option("--key", options->key,
                   "checkpoint: the part that holds the parameters, where others are beside it: model")
      ->type_name("KEY");
  command->add_option("--axes", options->axes, "Axes of the ranks, fastest first: tp=2,dp=2")->type_name("AXES");
  command->add_flag("--partial", options->partial,
                    "The trace holds less by design: a check compares what both sides hold, and says so");
  command->add_option("--python", options->python, "The Python that has the packages of the format [python3]")
      ->type_name("PYTHON");
  command->footer(R"(A .pt file is read with weights_only, which runs no code of the file; links and
pipes are refused. The packages: safetensors and torch, or numpy for .npz.

Examples:
  ttrace import files dump -o candidate --kind output \
    --pattern 'step{iteration}/rank{rank}/{name}.pt' --axes tp=2
  ttrace import files reference.npz -o reference \
    --pattern '*::iteration-{iteration}/{kind}/{name}'
  ttrace import checkpoint original.safetensors -o original
  ttrace import checkpoint converted/ -o converted
  ttrace check --reference original --candidate converted
  ttrace import msprobe dump_path -o dumped --partial
  ttrace import transformer-engine log/tensor_dumps -o dumped --partial

Exit codes: 0 imported, 2 could not look (misuse, unreadable input, a package
that is not there).)");
  command->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
