#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <exception>

#include "cli/commands.h"
#include "ttrace/error.h"

namespace {

using ttrace::cli::kCouldNotLook;
using ttrace::cli::kSame;

int run_program(int argc, char** argv) {
  CLI::App app{"ttrace: differential tester for distributed training", "ttrace"};
  app.set_version_flag("--version", "ttrace " TTRACE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "A trace from each of two runs, tolerances from perturbed runs of the reference, and a verdict:\n"
      "  ttrace collect -o reference -- python train.py\n"
      "  ttrace estimate-tolerance -o tolerance.yaml --reference reference -- python train.py\n"
      "  ttrace collect -o candidate --axes tp=2,dp=2 -- torchrun --nproc-per-node 4 train.py --tp 2\n"
      "  ttrace check --reference reference --candidate candidate -a gpt.yaml -t tolerance.yaml\n"
      "\n"
      "Exit codes: 0 same, 1 different, 2 could not look (misuse, unreadable input).");
  ttrace::cli::Run run;
  ttrace::cli::add_collect(app, run);
  ttrace::cli::add_estimate_tolerance(app, run);
  ttrace::cli::add_check(app, run);
  ttrace::cli::add_inspect(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 has codes of its own, 105 and more; ours are few and stable.
    return app.exit(error) == 0 ? kSame : kCouldNotLook;
  }
  return run();
}

}  // namespace

int main(int argc, char** argv) {
  // spdlog's default logger writes to stdout, which belongs to the report.
  spdlog::set_default_logger(spdlog::stderr_color_mt("ttrace"));
  spdlog::set_pattern("ttrace: %^%l%$: %v");
  try {
    return run_program(argc, argv);
  } catch (const ttrace::InputError& error) {
    spdlog::error(error.what());
  } catch (const std::exception& error) {
    spdlog::error("unexpected: {}; please report this", error.what());
  }
  return kCouldNotLook;
}
