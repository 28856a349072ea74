// `ttrace init`: a first ttrace.yaml for the program at hand.
#include "workflow/init.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <string_view>
#include <vector>

#include "base/count_of.h"
#include "base/error.h"
#include "cli/commands.h"
#include "files/read_run_file.h"
#include "host/exit_codes.h"
#include "workflow/first_try.h"
#include "workflow/git.h"

namespace ttrace::cli {
namespace {

struct InitOptions {
  std::string output = "ttrace.yaml";
  std::vector<std::string> command;
  bool tries = false;
};

constexpr std::chrono::seconds kTryAtMost{60};  // a command

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

// Returns what is to be decided in the file, a line of it each; of the axes only where they are not tried.
std::vector<std::string> open_lines(const TrainingCommand& command, const std::string& text, bool with_axes) {
  std::vector<std::string> lines;
  for (const std::string& size : command.sizes_in_files) {
    lines.push_back(fmt::format("{}: {}: give the reference a copy of that file that says 1 there",
                                line_of("  command: ", text), size));
  }
  const int axes = line_of("    # axes: ", text);
  if (with_axes && axes > 0 && command.frameworks.empty()) {
    lines.push_back(fmt::format("{}: take the # away where the ranks are arranged so; else say how they are", axes));
  }
  return lines;
}

FirstTry try_one(const std::string& who, const Job& job, const AnnotationSource& annotations) {
  std::cerr << "ttrace: trying the " << who << ", for at most " << kTryAtMost.count() << " s\n";
  return try_first_iteration(job, annotations, kTryAtMost);
}

// Runs the reference and the candidate of the file for a short time each, and says of each what was recorded, or which
// line to edit. Returns whether both may go into a whole run as they are.
bool try_both(const std::string& path, const std::string& text, const TrainingCommand& command) {
  const RunFile file = read_run_file(path);
  const Job candidate = candidate_jobs(file).front();
  const FirstTry first = try_one("reference", file.reference, annotations_of_reference(file));
  const FirstTry second = try_one("candidate", candidate, annotations_for(file, candidate));
  bool are_right = true;
  const auto say = [&](int line, const std::string& what) {
    std::cout << printable(fmt::format("{}:{}: {}", path, line, what)) << "\n";
  };
  const auto say_of = [&](std::string_view who, int line, const FirstTry& tried, std::int64_t ranks) {
    const auto change = what_to_change(tried, &tried == &first, ranks);
    say(line, fmt::format("the {}: {}", who,
                          change ? *change
                                 : fmt::format("recorded {} and {}", count_of(tried.ranks, "rank"),
                                               count_of(tried.tensors, "tensor"))));
    are_right = are_right && !change;
  };
  say_of("reference", line_of("  command: ", text), first, 1);
  say_of("candidate", line_of("    command: ", text), second, command.ranks);
  if (const std::string axes = axes_to_write(first, second); are_right && !axes.empty()) {
    const int comment = line_of("    # axes: ", text);
    say(comment > 0 ? comment : candidate.line,
        fmt::format("nothing says how its ranks are arranged; by the samples that they read `axes: {}`", axes));
    are_right = false;
  }
  return are_right;
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
  for (const std::string& line : open_lines(command, text, !options.tries)) {
    std::cout << printable(fmt::format("{}:{}", options.output, line)) << "\n";
  }
  std::cout.flush();
  return options.tries && !try_both(options.output, text, command) ? kExitCouldNotLook : kExitSame;
}

}  // namespace

void add_init(CLI::App& app, Run& run_command) {
  auto options = std::make_shared<InitOptions>();
  CLI::App* command = app.add_subcommand("init", "Write a first ttrace.yaml for a training command");
  command->add_option("COMMAND", options->command, "The training command and its arguments, after --")->required();
  command->add_option("-o,--output", options->output, "The file to write, which must not be there yet")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_flag("--try", options->tries,
                    "Run reference and candidate for a minute each at most, and say which line to edit where the first "
                    "iteration cannot be recorded");
  command->footer(R"(The launcher says how many ranks there are; the reference is the same command on
one process, with 1 for sizes such as --tp 2, which say the candidate's axes.
What the program imports says which annotations fit, and with the files that its
arguments name, what it is made of (`inputs`). What it can't see is a comment in
the file.

Examples:
  ttrace init -- torchrun --nproc-per-node 4 train.py
  ttrace init --try -- torchrun --nproc-per-node 4 train.py --tp 2
  ttrace run --plan
  ttrace run

Exit codes: 0 written, 2 could not be written, or --try found a line to edit.)");
  command->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
