#include "workflow/watcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include "base/count_of.h"
#include "base/error.h"
#include "host/exit_codes.h"
#include "host/launch.h"
#include "host/terminal.h"
#include "host/write_file.h"
#include "load/problems.h"
#include "load/trace_reader.h"
#include "workflow/follow.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::chrono::milliseconds kBetweenTurns{200};
// Beside ranks that keep all processors busy, the least priority, 19, would get a hundredth of one: no check would end.
constexpr const char* kNiceness = "10";
constexpr std::chrono::seconds kLongestCheck{600};  // one that takes longer is no help to a job that goes on
constexpr std::chrono::seconds kLongestHook{60};    // the next check waits for it
// Pieces that not all ranks record wait for so many steps of the job, and within these bounds: two of them keep all
// ranks from recording.
constexpr int kStepsUnfinished = 20;
constexpr double kLeastUnfinished = 10, kLongestUnfinished = 120;  // seconds
constexpr std::int32_t kMostKept = 3;   // iterations that are wrong: an error that lasts is in all of them
constexpr std::size_t kMostNamed = 10;  // tensors in a line of checks.jsonl

std::string last_line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

// Returns what a line says of a finding in the report of a check.
Json named(const Json& finding) {
  return {{"tensor", finding.at("name")},
          {"kind", finding.at("kind")},
          {"reason", finding.at("reason")},
          {"ranks", finding.at("ranks")},
          {"message", finding.at("message")}};
}

bool is_wrong(const Json& finding) { return finding.at("verdict") == "fail" || finding.at("verdict") == "missing"; }

Json named(const RepeatedData& repeated) {
  return {
      {"tensor", repeated.tensor},
      {"kind", "input"},
      {"reason", "data-repeated"},
      {"ranks", {repeated.first, repeated.second}},
      {"message", fmt::format("the model is given the same bits on ranks {} and {} in all of the iteration, and was "
                              "given other ones on each rank before",
                              repeated.first, repeated.second)}};
}

Json named(const PartedCopies& parted) {
  const auto holds = [](const std::vector<std::int32_t>& ranks) {
    return ranks.size() == 1 ? fmt::format("rank {}", ranks[0]) : fmt::format("ranks {}", fmt::join(ranks, ", "));
  };
  return {{"tensor", parted.tensor},
          {"kind", name_of(parted.kind)},
          {"reason", name_of(Reason::kReplicasDisagree)},
          {"ranks", parted.parted},
          {"message", fmt::format("{} {} another value of it than {}, and the same one before", holds(parted.parted),
                                  parted.parted.size() == 1 ? "holds" : "hold", holds(parted.others))}};
}

// Returns what is said at once of an iteration that is wrong. Most messages name their tensor and ranks themselves.
std::string sentence_of(const Json& wrong, std::size_t others) {
  const std::string message = wrong.at("message").get<std::string>();
  std::string place = wrong.at("tensor").get<std::string>();
  if (wrong.at("kind").is_string()) place += " " + wrong.at("kind").get<std::string>();
  std::string text = message.starts_with(place) ? message : fmt::format("{}: {}", place, message);
  const std::vector<std::int32_t> ranks = wrong.at("ranks");
  if (!ranks.empty() && message.find("rank") == std::string::npos)
    text += fmt::format(" (rank{} {})", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  if (others > 0) text += "; and " + count_of(others, "more tensor");
  return text;
}

double seconds_since_epoch(fs::file_time_type time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// Returns when the last rank has closed its file. The clock of files may begin later than today: it counts from there
// backwards.
double closed_at(const fs::path& trace) {
  double last = std::numeric_limits<double>::lowest();
  for (const fs::directory_entry& entry : fs::directory_iterator(trace)) {
    if (entry.path().extension() == ".h5") last = std::max(last, seconds_since_epoch(entry.last_write_time()));
  }
  return last;
}

}  // namespace

struct Watcher::Check {
  std::int32_t iteration = 0;
  RunVerdict verdict = RunVerdict::kCouldNotLook;
  std::int64_t compared = 0;
  std::vector<Json> wrong;
  std::string problem;  // why it could not be looked at, or
  bool asks = false;    // ... what is unlike any right one, and contradicts nothing
  double seconds = 0;
  std::int32_t left_out = 0;  // every N-th ones before it that no rank recorded
  Json report;                // null where there is none
  std::string kept;
};

Watcher::Watcher(const WatchOptions& options)
    : options_(options),
      share_(parse_budget(options.budget)),
      budget_(options.every, share_),
      schedule_{{0, options.every}} {
  write_schedule();
  write_file(options.output / "watching", "");
}

Watcher::~Watcher() {
  job_ended_ = true;
  if (thread_.joinable()) thread_.join();
  std::error_code ignored;
  for (const char* name : {"watching", "schedule.json", "check.log", "check.json"}) {
    fs::remove(options_.output / name, ignored);
  }
}

void Watcher::start() {
  thread_ = std::thread([this] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // they are for the thread that waits for the job
    try {
      run();
    } catch (const std::exception& error) {
      end_watching(error.what());
    }
  });
}

void Watcher::finish() {
  job_ended_ = true;
  thread_.join();
}

void Watcher::run() {
  while (end_.empty()) {
    const bool was_over = job_ended_;  // asked first: nothing comes after it
    if (const std::vector<std::string> problems = problems_in(options_.output); !problems.empty()) {
      end_watching(problems.front());
    } else if (!check_next()) {
      if (was_over) return;
      std::this_thread::sleep_for(kBetweenTurns);
    }
  }
}

// Deals with the first iteration that waits; returns false where there is none.
bool Watcher::check_next() {
  const std::map<std::int32_t, fs::path> waiting = list_iterations(options_.output);
  if (waiting.empty()) return false;
  const auto& [iteration, trace] = *waiting.begin();
  const bool is_over = job_ended_;
  if (gap_in(trace).empty()) {
    account(iteration, trace);
    check(iteration, trace);
    return true;
  }
  std::error_code error;
  const std::chrono::duration<double> age = fs::file_time_type::clock::now() - fs::last_write_time(trace, error);
  const std::optional<RecordingCost> cost = budget_.cost();
  const double most = cost ? std::clamp(kStepsUnfinished * cost->step_seconds, kLeastUnfinished, kLongestUnfinished)
                           : kLongestUnfinished;
  const bool has_later = waiting.size() > 1 && gap_in(std::next(waiting.begin())->second).empty();
  if (!is_over && !has_later && (error || age.count() < most)) return false;
  drop_unfinished(iteration, trace);
  return true;
}

void Watcher::drop_unfinished(std::int32_t iteration, const fs::path& trace) {
  ++counts_.unchecked;
  Check check;
  check.iteration = iteration;
  check.problem = fmt::format("not whole: {}", gap_in(trace));
  spdlog::warn("iteration {}: not checked: {}", iteration, printable(check.problem));
  append_line(check);
  remove_trace(trace);
}

// Moves how often iterations are recorded to what the budget allows.
void Watcher::account(std::int32_t iteration, const fs::path& trace) {
  const double recording = read_trace(trace).provenance.recording_seconds;
  if (!budget_.add({iteration, recording, closed_at(trace)})) return;
  // Ranks read the schedule where they record: none has come to that iteration, which lies behind two of those.
  const std::int32_t from = list_iterations(options_.output).rbegin()->first + 2 * schedule_.back().second + 1;
  schedule_.emplace_back(from, budget_.every());
  write_schedule();
  const RecordingCost cost = *budget_.cost();
  spdlog::info(
      "recording an iteration takes {:.3f} s, and a step {:.3f} s: from iteration {} on one of {} is recorded, "
      "for a budget of {}",
      cost.recorded_seconds, cost.step_seconds, from, budget_.every(), options_.budget);
}

// Counts the every N-th iterations between the latest that was looked at and this one: the check was behind.
std::int32_t Watcher::left_out_before(std::int32_t iteration) {
  const std::int32_t before = std::exchange(latest_, iteration);
  const auto in_force = [&](std::int32_t at) {
    return std::find_if(schedule_.rbegin(), schedule_.rend(), [&](const auto& part) { return part.first <= at; });
  };
  const auto part = in_force(before);
  if (part != in_force(iteration)) return 0;  // how often changed in between
  return (iteration - 1) / part->second - before / part->second;
}

void Watcher::check(std::int32_t iteration, const fs::path& trace) {
  const std::int32_t left_out = left_out_before(iteration);
  Check check = look_at(iteration, trace);
  check.left_out = left_out;
  if (end_.empty()) conclude(check, trace);
}

Watcher::Check Watcher::look_at(std::int32_t iteration, const fs::path& trace) {
  const Trace recorded = read_trace(trace);
  if (std::ranges::all_of(recorded.ranks, [](const RankTrace& rank) { return rank.optimizer_steps.empty(); })) {
    Check check;
    check.iteration = iteration;
    check.problem =
        "no step of an optimizer was seen, so that the job counts as one iteration, in which its weights may have "
        "changed; expected a program that steps a torch.optim.Optimizer";
    return check;
  }
  const fs::path log = options_.output / "check.log", json = options_.output / "check.json";
  std::error_code ignored;
  fs::remove(json, ignored);
  std::vector<std::string> command = {"nice",      "-n",
                                      kNiceness,   fs::read_symlink("/proc/self/exe").string(),
                                      "abft",      trace.string(),
                                      "--json",    json.string(),
                                      "--threads", "1"};
  if (!options_.annotations.file.empty()) command.insert(command.end(), {"-a", options_.annotations.file});
  for (const std::string& setting : options_.annotations.settings) command.insert(command.end(), {"--set", setting});
  if (!options_.annotations.axes.empty()) command.insert(command.end(), {"--axes", options_.annotations.axes});
  const auto started = std::chrono::steady_clock::now();
  const CommandResult result = run_beside({command, log.string(), {}, kLongestCheck});
  Check check;
  check.iteration = iteration;
  check.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (!result.started || result.exit_code > kExitCouldNotLook) {
    end_watching(fmt::format("the check of iteration {} {}: {}", iteration, result.failure, last_line_of(log)));
    return check;
  }
  if (fs::exists(json)) {
    std::ifstream file(json);
    check.report = Json::parse(file);
    check.compared = check.report.at("counts").at("compared");
    for (const Json& finding : check.report.at("findings")) {
      if (is_wrong(finding)) check.wrong.push_back(named(finding));
    }
  }
  if (result.exit_code == kExitCouldNotLook) check.problem = last_line_of(log);
  if (result.exit_code == kExitSame) check.verdict = RunVerdict::kSame;
  for (const RepeatedData& repeated : data_.look_at(recorded, options_.annotations)) {
    check.wrong.push_back(named(repeated));
  }
  for (const PartedCopies& parted : copies_.look_at(recorded)) {
    const bool is_known = std::any_of(check.wrong.begin(), check.wrong.end(),
                                      [&](const Json& wrong) { return wrong.at("tensor") == parted.tensor; });
    if (!is_known) check.wrong.push_back(named(parted));
  }
  const std::optional<UnlikeGradients> unlike = gradients_.look_at(recorded);
  if (!check.wrong.empty()) {
    check.verdict = RunVerdict::kDifferent;
  } else if (unlike && check.verdict == RunVerdict::kSame) {
    check.asks = true;
    check.verdict = RunVerdict::kCouldNotLook;
    check.problem = fmt::format(
        "the gradients that rank {} has of its samples are {:.2g} times those of the others, and were alike before: "
        "has it missed a loss scale?",
        unlike->rank, unlike->factor);
  }
  return check;
}

// Says what came of a check, and keeps or removes the pieces.
void Watcher::conclude(Check& check, const fs::path& trace) {
  if (check.verdict == RunVerdict::kSame) {
    ++counts_.right;
    const std::optional<RecordingCost> cost = budget_.cost();
    const std::string behind =
        check.left_out == 0 ? "" : fmt::format("; the check was behind: {} left out before it", check.left_out);
    const std::string share = cost ? fmt::format("; recording takes {:.1f} % of the time", 100 * cost->share) : "";
    spdlog::info("iteration {}: right, {} tensors in {:.1f} s{}{}", check.iteration, check.compared, check.seconds,
                 share, behind);
    remove_trace(trace);
  } else if (check.verdict == RunVerdict::kDifferent) {
    if (counts_.wrong++ < kMostKept) keep(check, trace, fmt::format("wrong-{:06}", check.iteration));
    if (check.kept.empty()) remove_trace(trace);
    spdlog::error("iteration {}: WRONG: {}{}", check.iteration,
                  printable(sentence_of(check.wrong.front(), check.wrong.size() - 1)),
                  check.kept.empty() ? "" : " -> " + check.kept);
  } else {
    const bool is_first = check.asks ? counts_.asked++ == 0 : counts_.unchecked++ == 0;
    if (is_first) keep(check, trace, fmt::format("{}-{:06}", check.asks ? "asked" : "unchecked", check.iteration));
    if (check.kept.empty()) remove_trace(trace);
    spdlog::warn("iteration {}: {}{}", check.iteration,
                 check.asks ? "" : "could not be checked: ", printable(check.problem));
  }
  append_line(check);
  if (check.verdict == RunVerdict::kDifferent) call_hook(check);
}

// Keeps the pieces under a name by which they wait no more for a check.
void Watcher::keep(Check& check, const fs::path& trace, const std::string& name) {
  fs::rename(trace, options_.output / name);
  check.kept = (options_.output / name).string();
  if (!check.report.is_null()) write_file(options_.output / (name + ".json"), check.report.dump(1) + "\n");
}

void Watcher::append_line(const Check& check) {
  Json line = {
      {"schema", "ttrace-watch/1"},
      {"iteration", check.iteration},
      {"verdict", name_of(check.verdict)},
      {"compared", check.compared},
      {"wrong_tensors", check.wrong.size()},
      {"wrong", std::vector<Json>(check.wrong.begin(), check.wrong.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                                 check.wrong.size(), kMostNamed)))},
      {"problem", check.problem.empty() ? Json(nullptr) : Json(check.problem)},
      {"seconds", check.seconds},
      {"left_out", check.left_out},
      {"kept", check.kept.empty() ? Json(nullptr) : Json(check.kept)}};
  const std::optional<RecordingCost> cost = budget_.cost();
  line["recording_share"] = cost ? Json(cost->share) : Json(nullptr);
  std::ofstream(options_.output / "checks.jsonl", std::ios::app)
      << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

void Watcher::call_hook(const Check& check) {
  if (options_.hook.empty()) return;
  const Json& first = check.wrong.front();
  const std::vector<std::string> environment = {
      fmt::format("TTRACE_ITERATION={}", check.iteration), "TTRACE_TENSOR=" + first.at("tensor").get<std::string>(),
      "TTRACE_REASON=" + first.at("reason").get<std::string>(),
      fmt::format("TTRACE_RANKS={}", fmt::join(first.at("ranks").get<std::vector<std::int32_t>>(), ",")),
      "TTRACE_KEPT=" + check.kept};
  const fs::path log = options_.output / "hook.log";
  const CommandResult result = run_beside({{"sh", "-c", options_.hook}, log.string(), environment, kLongestHook});
  if (!result.failure.empty()) spdlog::warn("the hook {}: see {}", result.failure, log.string());
}

void Watcher::write_schedule() { write_file(options_.output / "schedule.json", Json(schedule_).dump() + "\n"); }

void Watcher::end_watching(const std::string& why) {
  end_ = why;
  std::error_code ignored;
  fs::remove(options_.output / "watching", ignored);
  spdlog::error("watching ends, and the job goes on: {}", printable(why));
}

}  // namespace ttrace
