// `ttrace watch`: is a job that has no reference still computing rightly?
#include "workflow/watch.h"

#include <memory>

#include "cli/commands.h"

namespace ttrace::cli {

void add_watch(CLI::App& app, Run& run) {
  const auto options = std::make_shared<WatchOptions>();
  CLI::App* watch = app.add_subcommand("watch", "Watch a training job that has no reference");
  watch->add_option("COMMAND", options->command, "The command and its arguments, after --")->required();
  add_options(*watch, *options);
  watch->footer(R"(Each N-th iteration is recorded, and some further ones by chance, and checked
beside the job as `ttrace abft` does, by a process of less priority: copies
that must be equal, the optimizer's step against its gradient, products and
sums, embeddings, and data that two ranks are given. What is wrong is said at
once, and its pieces are kept; those of a right iteration are removed. The job
waits for nothing of this.

Examples:
  ttrace watch -o watched -- torchrun --nproc-per-node 8 train.py
  ttrace watch -o watched --every 500 --budget 0.5% \
    --hook './alert.sh "rank $TTRACE_RANKS: $TTRACE_TENSOR"' -- \
    torchrun --nproc-per-node 8 train.py
  tail -f watched/checks.jsonl | jq 'select(.verdict == "different")'

Exit codes: 1 an iteration was wrong; else the command's own where it fails, 2
in place of its 1; else 2 where no iteration was checked, or watching ended
before the job; else 0.)");
  watch->callback([options, &run] { run = [options] { return ttrace::watch(*options); }; });
}

}  // namespace ttrace::cli
