#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/trace.h"
#include "cli/commands.h"
#include "cli/misuse.h"
#include "host/terminal.h"
#include "load/mapped_file.h"
#include "team/launcher.h"

namespace {

using ttrace::kExitCouldNotLook;
using ttrace::kExitSame;

// The commands that share their work among the processes that mpirun or srun has started.
const std::set<std::string> kOfTeams = {"check", "estimate-tolerance", "abft"};

// The processes of `mpirun ttrace ...`. `collect` is another matter: a training job's ranks may each be started by it.
ttrace::Launched launched_as(int argc, char** argv) {
  return argc > 1 && std::string_view(argv[1]) == "collect" ? ttrace::Launched{} : ttrace::launched();
}

void require_one_process(const std::string& command, const ttrace::Launched& launched) {
  if (launched.size == 1 || kOfTeams.contains(command)) return;
  throw ttrace::InputError(
      fmt::format("ttrace {} works in one process, and was started as {}; expected it without mpirun or srun, or with "
                  "TTRACE_ALONE=1 in its environment, where it is called in one rank of a job",
                  command, launched.size));
}

int run_program(int argc, char** argv, const ttrace::Launched& launched) {
  CLI::App app{"ttrace: differential tester for distributed training", "ttrace"};
  app.set_version_flag("--version",
                       "ttrace " TTRACE_VERSION "\nbuilt with " TTRACE_BUILT_WITH "\nMPI: " + ttrace::mpi_library());
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
  ttrace::cli::add_watch(app, run);
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
    if (error.get_exit_code() == 0) {
      if (launched.rank == 0) app.exit(error);
      if (!(std::cout << std::flush))
        throw ttrace::InputError("stdout: cannot be written; expected a place for the help");
      return kExitSame;
    }
    throw ttrace::InputError(ttrace::cli::describe_misuse(app, error));
  }
  if (!app.get_subcommands().empty()) require_one_process(app.get_subcommands().front()->get_name(), launched);
  terminal.silent = launched.rank > 0;
  ttrace::set_up_terminal(terminal);
  return run();
}

// Ends the program without a verdict, by a line that needs no memory.
[[noreturn]] void end_short_of(std::string_view what) noexcept {
  for (const std::string_view part : {std::string_view("ttrace: error: "), what, std::string_view("\n")}) {
    if (::write(STDERR_FILENO, part.data(), part.size()) < 0) break;
  }
  ::_exit(kExitCouldNotLook);
}

constexpr std::string_view kNoMemory = "out of memory; expected more of it, or fewer --threads";

// True of what a system says that lacks something for the moment, and of a disk that is full.
bool is_short(const std::error_code& code) {
  constexpr std::array kLacks = {
      std::errc::resource_unavailable_try_again, std::errc::not_enough_memory,  std::errc::too_many_files_open,
      std::errc::too_many_files_open_in_system,  std::errc::no_space_on_device, std::errc::file_too_large};
  return std::any_of(kLacks.begin(), kLacks.end(), [&](std::errc lack) { return code == lack; });
}

// What a library or a thread of its own does when it goes no further. An error while another is handled, where memory is
// short, is one of memory.
[[noreturn]] void terminate() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    end_short_of(kNoMemory);
  } catch (const std::system_error& error) {
    if (is_short(error.code())) end_short_of("a thread cannot be made; expected room for one");
  } catch (...) {
    std::abort();
  }
  std::abort();
}

bool has_ended = false;  // `main` has returned, or CLI11 has said what was asked for

// Libraries call exit(1) when they go no further (OpenMP's, OpenMPI's), and 1 means different.
void refuse_foreign_exit(int /*status*/, void* /*unused*/) {
  if (!has_ended) end_short_of("a library ended the program before there was a verdict");
}

int run_main(int argc, char** argv) {
  const ttrace::Launched launched = launched_as(argc, argv);
  ttrace::TerminalOptions terminal;
  terminal.silent = launched.rank > 0;
  ttrace::set_up_terminal(terminal);  // for what is wrong with the options
  ttrace::explain_lost_pages();
  // Process 0 speaks of what is wrong with the options, and its launcher then ends the others. One that goes on after
  // that has an error of its own.
  const auto wait_for_first = [&] {
    if (launched.rank == 0) return;
    std::this_thread::sleep_for(std::chrono::seconds(3));
    ttrace::set_up_terminal({});
  };
  try {
    return run_program(argc, argv, launched);
  } catch (const ttrace::InputError& error) {
    wait_for_first();
    spdlog::error(ttrace::printable(error.what()));  // one line, whatever a path or a file holds
  } catch (const std::bad_alloc&) {
    end_short_of(kNoMemory);
  } catch (const std::system_error& error) {
    wait_for_first();
    const bool is_lacking = is_short(error.code());
    spdlog::error(fmt::runtime(is_lacking ? "{}; expected room for it" : "unexpected: {}; please report this"),
                  ttrace::printable(error.what()));
  } catch (const std::exception& error) {
    wait_for_first();
    spdlog::error("unexpected: {}; please report this", ttrace::printable(error.what()));
  }
  return kExitCouldNotLook;
}

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(terminate);
  ::signal(SIGXFSZ, [](int) {});  // writing then fails, as on a full disk; commands that are started have it as it was
  ::on_exit(refuse_foreign_exit, nullptr);
  const int code = run_main(argc, argv);
  has_ended = true;
  return code;
}
