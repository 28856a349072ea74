// `ttrace init`: a first ttrace.yaml for the program at hand.
#include "workflow/init.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "workflow/git.h"

namespace ttrace::cli {
namespace {

struct InitOptions {
  std::string output = "ttrace.yaml";
  std::vector<std::string> command;
};

// Never replaces a file: what stands there may be somebody's work.
void write_new(const std::string& path, const std::string& text) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wx"), &std::fclose);
  if (file == nullptr && errno == EEXIST) {
    throw InputError(fmt::format("{}: is there already; expected a new file (-o FILE)", path));
  }
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (!written || std::fflush(file.get()) != 0) {
    throw InputError(fmt::format("{}: {}; expected a place for the file", path, std::strerror(errno)));
  }
}

int run(const InitOptions& options) {
  const TrainingCommand command = look_at(options.command);
  write_new(options.output, run_file_for(command, !Repository(".").commit().empty()));
  const std::string file = options.output == InitOptions().output ? "" : " " + options.output;
  std::cout << printable(
                   fmt::format("{}: a reference on one process, a candidate on {}; look at it, then `ttrace run{}`",
                               options.output, command.ranks, file))
            << "\n";
  return kExitSame;
}

}  // namespace

void add_init(CLI::App& app, Run& run_command) {
  auto options = std::make_shared<InitOptions>();
  CLI::App* command = app.add_subcommand("init", "Write a first ttrace.yaml for a training command");
  command->add_option("COMMAND", options->command, "The training command and its arguments, after --")->required();
  command->add_option("-o,--output", options->output, "The file to write, which must not be there yet")
      ->type_name("FILE")
      ->capture_default_str();
  command->footer(R"(The launcher says how many ranks there are; the reference is the same command on
one process, with 1 for sizes such as --tp 2, which say the candidate's axes.
What the program imports says which annotations fit, and with the files that its
arguments name, what it is made of (`inputs`). What it can't see is a comment in
the file.

Examples:
  ttrace init -- torchrun --nproc-per-node 4 train.py
  ttrace run --plan
  ttrace run

Exit codes: 0 written, 2 could not be written.)");
  command->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
