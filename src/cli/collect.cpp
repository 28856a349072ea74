// `ttrace collect`: runs a training command and records what it computes.
#include "workflow/collect.h"

#include <memory>

#include "cli/commands.h"

namespace ttrace::cli {

void add_collect(CLI::App& app, Run& run) {
  const auto options = std::make_shared<CollectOptions>();
  CLI::App* collect = app.add_subcommand("collect", "Run a training command and record what it computes");
  collect->add_option("COMMAND", options->command, "The command and its arguments, after --")->required();
  add_options(*collect, *options);
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
  collect->callback([options, &run] { run = [options] { return ttrace::collect(*options); }; });
}

}  // namespace ttrace::cli
