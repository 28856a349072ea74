#include "workflow/collect.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <charconv>
#include <chrono>
#include <ctime>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/mesh.h"
#include "files/annotation_file.h"
#include "host/exit_codes.h"
#include "host/installation.h"
#include "host/launch.h"
#include "host/progress.h"
#include "host/shell_words.h"
#include "host/terminal.h"
#include "host/write_file.h"
#include "workflow/annotations.h"
#include "workflow/collected.h"
#include "workflow/git.h"
#include "workflow/option_values.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMostIterations = 10'000;  // in one --iterations; a trace of more is a mistake

// Requires that --perturb-at is `rewritten` where modules are given values, and only there: those values are perturbed.
void check_perturbation(const CollectOptions& options) {
  const bool modules_rewritten = !options.rewrite.inject.empty() || !options.rewrite.rewrite.empty();
  if (!options.perturb || (options.perturb_at == Estimator::kRewritten) == modules_rewritten) return;
  throw InputError(fmt::format("--perturb-at {}: {}", name_of(options.perturb_at),
                               modules_rewritten ? "expected 'rewritten' with --inject or --rewrite: every value that "
                                                   "modules are given"
                                                 : "nothing is rewritten; expected --inject or --rewrite with it"));
}

// Values that a run is given, in place of its own or beside them, come from a trace of all iterations.
void check_split(const CollectOptions& options) {
  const RewriteOptions& rewrite = options.rewrite;
  const bool is_given = !rewrite.inject.empty() || !rewrite.rewrite.empty() || !rewrite.inject_params.empty() ||
                        !rewrite.consistent_init.empty();
  if (options.split && options.then > 0) {
    throw InputError("--split: expected no --then with it: a trace of an iteration is whole by itself");
  }
  if (!options.split || (!options.perturb && !is_given && options.again.empty())) return;
  throw InputError(
      "--split: expected a run as it is, without --perturb, --again or values of another trace; one trace of all "
      "iterations does for those");
}

// A directory that is removed when the run is over.
struct ScratchDirectory {
  explicit ScratchDirectory(fs::path directory) : path(std::move(directory)) {}
  ~ScratchDirectory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const fs::path path;
};

std::string random_run_id() {
  std::random_device random;
  std::uniform_int_distribution<std::uint64_t> bits;
  const std::uint64_t high = bits(random), low = bits(random);
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, (high >> 16) & 0xffff, high & 0xffff, low >> 48,
                     low & 0xffff'ffff'ffff);
}

template <class Value>
nlohmann::json json_of_value(const Value& value) {
  return value;
}

template <class Value>
nlohmann::json json_of_value(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

nlohmann::json json_of_value(Estimator value) { return name_of(value); }

// Returns null where all is recorded.
nlohmann::json json_of(const RecordingSelection& selection) {
  if (selection == RecordingSelection{}) return nullptr;
  nlohmann::json json = {{"reason", "collected with " + shell_line(to_words(selection))}};
  visit_options(selection,
                [&](const Option& option, const auto& value) { json[keyword_of(option)] = json_of_value(value); });
  return json;
}

constexpr std::string_view kConfigVariable = "TTRACE_CONFIG=";
constexpr std::size_t kMostConfigBytes = (1 << 17) - 1 - kConfigVariable.size();  // MAX_ARG_STRLEN of execve(2)

// Writes what the processes below the command are to record, as config.py of the collector reads it. A command that is
// too long for it is left out: such a run can't be repeated from its trace alone.
std::string configuration(const CollectOptions& options, const fs::path& annotations, const PreparedValues& values) {
  nlohmann::json config;
  config["replays"] = nlohmann::json::array();
  for (const ReplayedRun& replay : options.replays) {
    config["replays"].push_back({{"directory", fs::absolute(replay.output).string()},
                                 {"run_id", random_run_id()},
                                 {"perturb", json_of_value(replay.perturb)}});
  }
  config["directory"] = fs::absolute(options.output).string();
  config["run_id"] = random_run_id();
  visit_options(options, [&](const Option& option, const auto& value) {
    if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, fs::path>) {  // none of these is a path
      if (option.for_ranks) config[keyword_of(option)] = json_of_value(value);
    }
  });
  config["annotations"] = annotations.string();
  config["rewrite"] = values.for_ranks;
  config["selection"] = json_of(options.selection);
  config["watch_seed"] = json_of_value(options.watch_seed);
  const fs::path directory = fs::current_path() / options.working_directory;
  const Repository repository(directory);
  config["source_root"] = repository.top().value_or(directory).string();
  config["library"] = beside_program("lib/libttrace.so").string();
  const std::string commit = repository.commit();
  config["provenance"] = {{"ttrace", TTRACE_VERSION},
                          {"command", options.command},
                          {"started", fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))},
                          {"git_commit", nullptr},
                          {"axes", options.axes},
                          {"directory", directory.string()},
                          {"rewritten", values.provenance},
                          {"selection", config["selection"]}};
  if (!commit.empty()) config["provenance"]["git_commit"] = commit;
  // Arguments of the command may hold bytes that are no text.
  const auto text = [&] { return config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); };
  if (text().size() > kMostConfigBytes) config["provenance"]["command"] = nullptr;
  return text();
}

// Returns the absolute path of a file with the annotations, for the ranks to read; empty where there are none. Where
// parameters are set for this run, it writes a file that sets them into `scratch`.
fs::path annotations_for_ranks(const Annotations& annotations, const std::vector<std::string>& settings,
                               const fs::path& scratch) {
  if (annotations.path.empty()) return {};
  fs::path given = fs::absolute(annotations.path);
  if (settings.empty()) return given;
  fs::create_directories(scratch);
  const fs::path file = scratch / "annotations.yaml";
  write_file(file, including_file(given, settings));
  return fs::absolute(file);
}

using Clock = std::chrono::steady_clock;

// Says how far the recording of a run is. `expected` is the size of a run of the same program, or 0.
std::string progress_of_run(const CollectOptions& run, Clock::time_point started, std::uint64_t expected) {
  const Progress progress = progress_of(run.output);
  const std::string name = printable(run.output.filename().string());
  const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
  if (progress.ranks == 0) return fmt::format("ttrace: {}: nothing recorded yet, {:.0f} s", name, seconds);
  const std::string what = fmt::format("ttrace: {}: {} rank{}", name, progress.ranks, progress.ranks == 1 ? "" : "s");
  return progress_text(what, progress.bytes, expected, seconds);
}

CommandResult run_with_progress(const CollectOptions& options, Launch launch) {
  const Clock::time_point started = Clock::now();
  if (shows_progress()) launch.on_second = [&] { show_progress({progress_of_run(options, started, 0)}); };
  const CommandResult result = run_command(options.command, launch);
  erase_progress();
  return result;
}

// Returns the command line of a `ttrace collect` with these options.
std::vector<std::string> command_line_of(const CollectOptions& options) {
  std::vector<std::string> words = {fs::read_symlink("/proc/self/exe").string(), "collect"};
  const std::vector<std::string> set = to_words(options);
  words.insert(words.end(), set.begin(), set.end());
  words.emplace_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

InputError could_not_collect(const CollectOptions& run, int code) {
  return InputError(fmt::format(
      "{}: could not be collected, exit code {}; expected a command that ends with 0, and a whole trace of it",
      run.output.string(), code));
}

std::string log_of(const CollectOptions& run) { return (run.output / "").parent_path().string() + ".log"; }

// Runs `ttrace collect` for each run, at most `jobs` at a time. Each has a port of its own, which a program of one
// process may open, too. `on_end` is told of each that ended, with what went
// wrong, and returns whether to go on.
void collect_side_by_side(const std::vector<CollectOptions>& runs, std::size_t jobs,
                          const std::function<bool(std::size_t, const CommandResult&)>& on_end) {
  std::vector<LoggedCommand> commands;
  for (const CollectOptions& run : runs) {
    make_output(run.output);
    LoggedCommand& command = commands.emplace_back();
    command.command = command_line_of(run);
    command.log = log_of(run);
    command.timeout = run.timeout;
    const int port = free_port();
    command.environment = {fmt::format("MASTER_PORT={}", port), fmt::format("PET_MASTER_PORT={}", port)};
  }
  std::map<std::size_t, Clock::time_point> running;  // by index, when it was started
  std::uint64_t expected = 0;                        // as large as one that has ended
  SideBySideEvents events;
  events.on_start = [&](std::size_t i) { running[i] = Clock::now(); };
  events.on_end = [&](std::size_t i, const CommandResult& result) {
    running.erase(i);
    if (result.failure.empty()) {
      expected = progress_of(runs[i].output).bytes;
      show_warnings(runs[i].output);
    } else {
      erase_progress();
      std::ifstream log(commands[i].log);
      for (std::string line; std::getline(log, line);) fmt::print(stderr, "{}\n", line);
    }
    return on_end(i, result);
  };
  if (shows_progress()) {
    events.on_second = [&] {
      std::vector<std::string> lines;
      for (const auto& [i, started] : running) lines.push_back(progress_of_run(runs[i], started, expected));
      show_progress(lines);
    };
  }
  run_side_by_side(commands, jobs, events);
  erase_progress();
}

}  // namespace

void make_output(const fs::path& output) {
  std::error_code error;
  if (fs::exists(output, error) && !(fs::is_directory(output, error) && fs::is_empty(output, error))) {
    throw InputError(fmt::format("{0}: already exists; expected a new or an empty directory (rm -r {0} removes it)",
                                 output.string()));
  }
  fs::create_directories(output, error);
  if (error) throw InputError(fmt::format("{}: cannot be made: {}", output.string(), error.message()));
}

void check_axes(const std::string& axes, const std::string& where) {
  if (!axes.empty()) parse_mesh(axes, ranks_of_mesh(axes), where);
}

std::vector<std::int32_t> parse_iterations(const std::string& text, const std::string& where) {
  const auto fail = [&] {
    throw InputError(
        fmt::format("{}: '{}'; expected numbers and ranges from 0, as in 0,2,5-7, of at most {} iterations", where,
                    text, kMostIterations));
  };
  std::set<std::int32_t> iterations;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&] {
    std::int32_t value = -1;
    const auto [after, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0) fail();
    at = after;
    return value;
  };
  for (bool more = true; more;) {
    const std::int32_t first = number();
    const std::int32_t last = at != end && *at == '-' ? (++at, number()) : first;
    if (last < first || last - first >= kMostIterations) fail();
    for (std::int32_t i = first; i <= last; ++i) iterations.insert(i);
    more = at != end && *at == ',';
    if (more) ++at;
  }
  if (at != end || iterations.size() > kMostIterations) fail();
  return {iterations.begin(), iterations.end()};
}

std::vector<std::string> parse_kinds(const std::string& text) {
  std::set<Kind> kinds;
  std::istringstream list(text);
  for (std::string name; std::getline(list, name, ',');) {
    const std::optional<Kind> kind = kind_from_name(name);
    if (!kind || is_optimizer_state(*kind)) {
      std::vector<std::string_view> names;
      for (std::uint8_t number = kKindFirst; number <= kKindLast; ++number) {
        if (!is_optimizer_state(static_cast<Kind>(number))) names.push_back(name_of(static_cast<Kind>(number)));
      }
      throw InputError(fmt::format("--kinds: '{}'; expected some of {}", printable(name), fmt::join(names, ", ")));
    }
    kinds.insert(*kind);
  }
  std::vector<std::string> names;
  for (const Kind kind : kinds) names.emplace_back(name_of(kind));
  return names;
}

RecordedIterations iterations_of(const Trace& trace) {
  std::set<std::int32_t> whole, light;
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) {
      (rank.light.contains(entry.id.iteration) ? light : whole).insert(entry.id.iteration);
    }
  }
  for (const std::int32_t iteration : whole) light.erase(iteration);
  return {{whole.begin(), whole.end()}, light.size()};
}

Launch recording_launch(const CollectOptions& options, const fs::path& scratch) {
  AnnotationSource source = options.annotations;
  if (source.axes.empty()) source.axes = options.axes;
  const Annotations annotations = load_annotations(source);
  const PreparedValues values = prepare_values(options.rewrite, source, options.perturb, scratch);
  const fs::path for_ranks = annotations_for_ranks(annotations, options.annotations.settings, scratch);
  return {{python_path_with(beside_program("share/ttrace/ttrace_torch/inject")),
           std::string(kConfigVariable) + configuration(options, for_ranks, values)},
          options.stdout_to_stderr,
          options.working_directory.string(),
          {},
          options.timeout};
}

int collect(const CollectOptions& options) {
  if (options.command.empty()) throw InputError("no command; expected one after --, as in -- python train.py");
  check_axes(options.axes);
  AnnotationSource source = options.annotations;
  if (source.axes.empty()) source.axes = options.axes;
  load_annotations(source);  // what is wrong with them is said before a directory is made
  check_perturbation(options);
  check_split(options);
  make_output(options.output);
  for (const ReplayedRun& replay : options.replays) make_output(replay.output);
  const ScratchDirectory scratch(options.output / "rewritten");
  const Launch launch = recording_launch(options, scratch.path);

  const auto start = std::chrono::steady_clock::now();
  const CommandResult result = run_with_progress(options, launch);
  if (!result.started) {
    spdlog::error("{}: {}; expected a command", options.command[0], result.failure);
    return result.exit_code;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const int code = conclude_collection(options.output, result, seconds.count(), options.check_follows);
  if (code != kExitSame || options.again.empty()) return code;
  const Repetition repetition = repetition_of(options.again, options.output);
  if (repetition.problem.empty()) {
    spdlog::info("{} tensors have the bits of {}", repetition.compared, options.again.string());
    return kExitSame;
  }
  spdlog::error("{}", repetition.problem);
  return kExitCouldNotLook;
}

void collect_all(const std::vector<CollectOptions>& runs, std::size_t jobs,
                 const std::function<void(const CollectOptions&)>& require) {
  if (jobs <= 1 || runs.size() <= 1) {
    for (const CollectOptions& run : runs) {
      if (const int code = collect(run); code != 0) throw could_not_collect(run, code);
      if (require) require(run);
    }
    return;
  }
  std::exception_ptr failure;
  collect_side_by_side(runs, jobs, [&](std::size_t i, const CommandResult& result) {
    if (result.failure.empty()) {
      const std::string output = runs[i].output.string();
      spdlog::info("collected {} (its output: {})", output, log_of(runs[i]));
      try {
        if (require) require(runs[i]);
      } catch (...) {  // whatever it is, the others are stopped first
        failure = std::current_exception();
      }
    } else {
      failure = std::make_exception_ptr(could_not_collect(runs[i], result.exit_code));
    }
    return !failure;
  });
  if (failure) std::rethrow_exception(failure);
}

std::vector<int> collect_each(const std::vector<CollectOptions>& runs, std::size_t jobs,
                              const std::function<void(std::size_t)>& on_collected) {
  std::vector<int> codes(runs.size(), -1);
  collect_side_by_side(runs, jobs, [&](std::size_t i, const CommandResult& result) {
    codes[i] = result.exit_code;
    if (result.failure.empty()) on_collected(i);
    return interrupted_by() == 0;
  });
  return codes;
}

}  // namespace ttrace
