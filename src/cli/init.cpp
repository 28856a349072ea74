// `ttrace init`: a first ttrace.yaml for the program at hand.
#include "workflow/init.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <string_view>
#include <vector>

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

// Returns the number of the first line that begins so; 0 where none does.
int line_of(std::string_view beginning, const std::string& text) {
  const std::size_t at = ("\n" + text).find("\n" + std::string(beginning));
  if (at == std::string::npos) return 0;
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

// Returns what is to be decided in the file, a line of it each.
std::vector<std::string> open_lines(const TrainingCommand& command, const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string& size : command.sizes_in_files) {
    lines.push_back(fmt::format("{}: {}: give the reference a copy of that file that says 1 there",
                                line_of("  command: ", text), size));
  }
  const int axes = line_of("    # axes: ", text);
  if (axes > 0 && command.frameworks.empty()) {
    lines.push_back(fmt::format("{}: take the # away where the ranks are arranged so; else say how they are", axes));
  }
  return lines;
}

int run(const InitOptions& options) {
  const TrainingCommand command = look_at(options.command);
  const std::string text = run_file_for(command, !Repository(".").commit().empty());
  write_new(options.output, text);
  const std::string file = options.output == InitOptions().output ? "" : " " + options.output;
  std::cout << printable(
                   fmt::format("{}: a reference on one process, a candidate on {}; look at it, then `ttrace run{}`",
                               options.output, command.ranks, file))
            << "\n";
  for (const std::string& line : open_lines(command, text)) {
    std::cout << printable(fmt::format("{}:{}", options.output, line)) << "\n";
  }
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
