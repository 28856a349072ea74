#include "workflow/watch.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <charconv>

#include "base/error.h"
#include "host/exit_codes.h"
#include "host/launch.h"
#include "workflow/annotations.h"
#include "workflow/collect.h"
#include "workflow/watcher.h"

namespace ttrace {
namespace {

std::string words_of(const WatchCounts& counts, const std::filesystem::path& output) {
  return fmt::format("watched: {} iterations right, {} wrong, {}{} not checked -> {}", counts.right, counts.wrong,
                     counts.asked > 0 ? fmt::format("{} asked about, ", counts.asked) : "", counts.unchecked,
                     (output / "checks.jsonl").string());
}

int conclude(const Watcher& watcher, const CommandResult& result, const std::filesystem::path& output) {
  const WatchCounts& counts = watcher.counts();
  spdlog::info("{}", words_of(counts, output));
  if (!result.failure.empty()) spdlog::error("the command {}", result.failure);
  if (counts.wrong > 0) return kExitDifferent;
  // What Python ends with after an exception would say that an iteration was wrong.
  if (result.exit_code == kExitDifferent) return kExitCouldNotLook;
  if (result.exit_code != 0) return result.exit_code;
  if (counts.right == 0) {
    spdlog::error("no iteration was checked; expected a Python program that trains a torch.nn.Module");
    return kExitCouldNotLook;
  }
  return watcher.end().empty() && counts.asked == 0 ? kExitSame : kExitCouldNotLook;
}

}  // namespace

double parse_budget(const std::string& text) {
  double percent = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, percent);
  const bool is_percent = error == std::errc() && std::string_view(end, static_cast<std::size_t>(last - end)) == "%";
  if (!is_percent || !(percent > 0 && percent < 100)) {
    throw InputError(fmt::format("--budget: '{}'; expected a share of the job's time, as in 2%", text));
  }
  return percent / 100;
}

int watch(const WatchOptions& options) {
  if (options.command.empty()) throw InputError("no command; expected one after --, as in -- python train.py");
  check_axes(options.annotations.axes);
  load_annotations(options.annotations);
  parse_budget(options.budget);
  make_output(options.output);
  CollectOptions recording;
  recording.output = options.output;
  recording.annotations = options.annotations;
  recording.axes = options.annotations.axes;
  recording.split = true;
  recording.watch_seed = options.seed;
  recording.command = options.command;
  const Launch launch = recording_launch(recording, options.output / "given");
  Watcher watcher(options);
  watcher.start();
  const CommandResult result = run_command(options.command, launch);
  if (!result.started) {
    spdlog::error("{}: {}; expected a command", options.command[0], result.failure);
    return result.exit_code;
  }
  watcher.finish();
  return conclude(watcher, result, options.output);
}

}  // namespace ttrace
