#include "workflow/first_try.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "base/count_of.h"
#include "base/error.h"
#include "host/launch.h"
#include "host/temporary_directory.h"
#include "identify/arrangement.h"
#include "load/trace_reader.h"
#include "workflow/collect.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// The first line by which a program says what is wrong: that of a launcher comes behind it. Else its last words.
std::string complaint_in(const fs::path& log) {
  static const std::regex kComplaint(
      R"(^(\[rank\d+\]:\s*)?([A-Za-z_][\w.]*(Error|Exception|Exit)\b|.{0,80}\b[Ee]rror: ).*)");
  constexpr std::size_t kMostCharacters = 500;
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (line.size() > kMostCharacters) line.resize(kMostCharacters);
    if (std::regex_match(line, kComplaint)) return line;
    if (line.find_first_not_of(" \t\r=-") != std::string::npos) last = line;
  }
  return last;
}

// Adds what was recorded; nothing where no rank finished the iteration.
void add_recorded(const fs::path& directory, FirstTry& tried) {
  try {
    tried.trace = read_trace_as_it_is(directory);
  } catch (const InputError&) {
    return;  // what the command says tells more
  }
  for (const RankTrace& rank : tried.trace->ranks) {
    tried.ranks += rank.is_whole() ? 1 : 0;
    tried.tensors += std::ssize(rank.entries);
  }
}

std::string what_went_wrong(const std::string& program, const CommandResult& result) {
  if (!result.started) return fmt::format("{}: {}", program, result.failure);
  return result.failure.empty() ? "no module was called with gradients" : "it " + result.failure;
}

}  // namespace

FirstTry try_first_iteration(const Job& job, const AnnotationSource& annotations, std::chrono::seconds limit) {
  const TemporaryDirectory directory("a short trace");
  CollectOptions options;
  options.output = directory.path() / "trace";
  options.annotations = annotations;
  options.iterations = {0};
  options.axes = job.axes;
  options.command = job.command;
  make_output(options.output);
  const Launch launch = recording_launch(options, directory.path() / "scratch");
  const fs::path log = directory.path() / "log";
  const CommandResult result = run_beside({job.command, log.string(), launch.environment, limit});
  FirstTry tried;
  add_recorded(options.output, tried);
  const bool was_stopped = result.exit_code == kExitTimeout;
  const bool is_whole = tried.trace && tried.ranks == tried.trace->world_size;
  if (is_whole && (result.failure.empty() || was_stopped)) return tried;
  tried.problem = what_went_wrong(job.command.front(), result);
  if (result.started && !was_stopped) tried.said = complaint_in(log);
  return tried;
}

std::optional<std::string> what_to_change(const FirstTry& tried, bool is_reference, std::int64_t ranks) {
  if (!tried.problem.empty()) {
    return fmt::format(
        "{}{}; expected {}", tried.problem, tried.said.empty() ? "" : fmt::format(": `{}`", tried.said),
        is_reference ? "the program on one process: take from it what makes it parallel" : "a command that trains");
  }
  if (tried.ranks != ranks) {
    return fmt::format("it ran on {}; expected {}", count_of(tried.ranks, "rank"), ranks);
  }
  return std::nullopt;
}

std::string axes_to_write(const FirstTry& reference, const FirstTry& candidate) {
  if (!reference.trace || !candidate.trace) return "";
  const bool is_known = candidate.trace->world_size == 1 || !candidate.trace->mesh.axes.empty() ||
                        !axes_told_by(*reference.trace, *candidate.trace).axes.empty();
  return is_known ? "" : axes_to_propose(*candidate.trace);
}

}  // namespace ttrace
