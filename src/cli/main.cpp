#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "cli/commands.h"
#include "ttrace/error.h"
#include "ttrace/trace.h"

namespace {

using ttrace::kExitCouldNotLook;

// Misuse in one line, as every other error. CLI11 says what is missing before it says what is unknown, and
// so hides the misspelt option behind the one that it stands for.
std::string describe_misuse(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();  // what was given
  const std::string command = commands.empty() ? "ttrace" : "ttrace " + commands.front()->get_name();
  std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  std::erase(unknown, "--");
  const auto option = std::find_if(unknown.begin(), unknown.end(), [](const auto& word) { return word[0] == '-'; });
  std::string what = error.what();
  if (!unknown.empty()) {
    const std::string& word = option == unknown.end() ? unknown.front() : *option;
    what = commands.empty() && option == unknown.end() ? fmt::format("there is no command '{}'", word)
                                                       : fmt::format("'{}' was not expected", word);
  } else if (commands.empty()) {
    what = "no command";
  }
  return fmt::format("{}: {}; expected what `{} --help` says", command, what, command);
}

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
      "All of it, for CI, from a file:\n"
      "  ttrace run ttrace.yaml\n"
      "\n"
      "Exit codes: 0 same, 1 different, 2 could not look (misuse, unreadable input).");
  ttrace::cli::Run run;
  ttrace::cli::add_collect(app, run);
  ttrace::cli::add_estimate_tolerance(app, run);
  ttrace::cli::add_check(app, run);
  ttrace::cli::add_localize(app, run);
  ttrace::cli::add_run(app, run);
  ttrace::cli::add_annotate(app, run);
  ttrace::cli::add_abft(app, run);
  ttrace::cli::add_calibrate(app, run);
  ttrace::cli::add_sdc(app, run);
  ttrace::cli::add_history(app, run);
  ttrace::cli::add_inspect(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 has codes of its own, 105 and more; ours are few and stable. 0: --help, --version.
    if (error.get_exit_code() == 0) return app.exit(error);
    throw ttrace::InputError(describe_misuse(app, error));
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
    spdlog::error(ttrace::printable(error.what()));  // one line, whatever a path or a file holds
  } catch (const std::exception& error) {
    spdlog::error("unexpected: {}; please report this", ttrace::printable(error.what()));
  }
  return kExitCouldNotLook;
}
