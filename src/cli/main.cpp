#include <spdlog/spdlog.h>

#include <exception>

#include "cli/commands.h"
#include "cli/misuse.h"
#include "load/mapped_file.h"
#include "terminal/terminal.h"
#include "ttrace/error.h"
#include "ttrace/trace.h"

namespace {

using ttrace::kExitCouldNotLook;

int run_program(int argc, char** argv) {
  CLI::App app{"ttrace: differential tester for distributed training", "ttrace"};
  app.set_version_flag("--version", "ttrace " TTRACE_VERSION "\nbuilt with " TTRACE_BUILT_WITH);
  app.require_subcommand(1);
  app.formatter(ttrace::cli::help_formatter());
  app.footer(R"(Examples:
  ttrace collect -o reference -- python train.py
  ttrace estimate-tolerance -o tolerance.yaml --reference reference -- \
    python train.py
  ttrace collect -o candidate --axes tp=2,dp=2 -- \
    torchrun --nproc-per-node 4 train.py --tp 2
  ttrace check --reference reference --candidate candidate -a gpt.yaml \
    -t tolerance.yaml
All of it, for CI, from a file:
  ttrace run ttrace.yaml

`ttrace help COMMAND` shows how a command is used.

Exit codes: 0 same, 1 different, 2 could-not-look (misuse, unreadable input).)");
  ttrace::cli::Run run;
  ttrace::cli::add_collect(app, run);
  ttrace::cli::add_estimate_tolerance(app, run);
  ttrace::cli::add_check(app, run);
  ttrace::cli::add_localize(app, run);
  ttrace::cli::add_init(app, run);
  ttrace::cli::add_run(app, run);
  ttrace::cli::add_annotate(app, run);
  ttrace::cli::add_lint(app, run);
  ttrace::cli::add_explain(app, run);
  ttrace::cli::add_abft(app, run);
  ttrace::cli::add_calibrate(app, run);
  ttrace::cli::add_sdc(app, run);
  ttrace::cli::add_history(app, run);
  ttrace::cli::add_inspect(app, run);
  ttrace::cli::add_show(app, run);
  ttrace::cli::add_export(app, run);
  ttrace::cli::add_import(app, run);
  ttrace::cli::add_completion(app, run);
  ttrace::cli::add_help(app, run);
  ttrace::TerminalOptions terminal;
  for (CLI::App* command : app.get_subcommands({})) ttrace::cli::add_terminal_options(*command, terminal);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 has codes of its own, 105 and more; ours are few and stable. 0: --help, --version.
    if (error.get_exit_code() == 0) return app.exit(error);
    throw ttrace::InputError(ttrace::cli::describe_misuse(app, error));
  }
  ttrace::set_up_terminal(terminal);
  return run();
}

}  // namespace

int main(int argc, char** argv) {
  ttrace::set_up_terminal({});  // for what is wrong with the options
  ttrace::explain_lost_pages();
  try {
    return run_program(argc, argv);
  } catch (const ttrace::InputError& error) {
    spdlog::error(ttrace::printable(error.what()));  // one line, whatever a path or a file holds
  } catch (const std::exception& error) {
    spdlog::error("unexpected: {}; please report this", ttrace::printable(error.what()));
  }
  return kExitCouldNotLook;
}
