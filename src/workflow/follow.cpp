#include "workflow/follow.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "base/error.h"
#include "host/progress.h"
#include "host/terminal.h"
#include "load/problems.h"
#include "load/trace_reader.h"
#include "workflow/collect.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{500};

// The candidate's trace of the iteration, once it is whole.
fs::path wait_for(const fs::path& candidate, std::int32_t iteration, std::chrono::seconds timeout) {
  const fs::path trace = iteration_in(candidate, iteration);
  const Clock::time_point started = Clock::now();
  std::error_code ignored;
  if (fs::exists(candidate, ignored) && !fs::is_directory(candidate, ignored)) {
    throw InputError(
        fmt::format("{}: not a directory; expected a run that is collected with --split", candidate.string()));
  }
  for (;;) {
    // Looked for first: one that begins afterwards may be whole before the wanted one is looked at.
    const std::map<std::int32_t, fs::path> there = list_iterations(candidate);
    const auto later = there.upper_bound(iteration);
    require_no_problems(trace);  // waiting mends none
    const std::string gap = gap_in(trace);
    if (gap.empty()) break;
    if (!there.contains(iteration) && later != there.end()) {
      throw InputError(fmt::format("{}: has iteration {}, and not {} before it; expected the reference's iterations",
                                   candidate.string(), later->first, iteration));
    }
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - started);
    if (waited >= timeout) {
      erase_progress();
      throw InputError(
          fmt::format("{}: not whole after {} s: {}; expected a run that is collected with --split "
                      "(--timeout waits longer)",
                      trace.string(), timeout.count(), gap));
    }
    if (shows_progress()) {
      show_progress({fmt::format("ttrace: waiting for iteration {}, {} s", iteration, waited.count())});
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
  erase_progress();
  return trace;
}

// The iterations of the reference, with its trace of each.
std::map<std::int32_t, std::string> iterations_to_check(const std::string& reference) {
  std::map<std::int32_t, std::string> traces;
  for (const auto& [iteration, trace] : list_iterations(reference)) traces[iteration] = trace.string();
  if (!traces.empty()) return traces;
  for (const std::int32_t iteration : iterations_of(read_trace(reference)).whole) traces[iteration] = reference;
  return traces;
}

// Iterations of two runs of a program look alike: a job that was started again goes on in the same directory.
void require_one_run(const fs::path& trace, std::string& run_id) {
  const Trace read = read_trace(trace);
  if (run_id.empty()) run_id = read.run_id;
  if (read.run_id == run_id) return;
  throw InputError(fmt::format("{}: holds another run ({}) than the iterations before it ({}); expected one run",
                               trace.string(), read.run_id, run_id));
}

}  // namespace

std::string gap_in(const fs::path& directory) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".journal") return fmt::format("{} is not closed", entry.path().stem().string());
  }
  if (error) return "it is not there";
  try {
    const Trace trace = read_trace(directory);
    std::set<std::int32_t> whole;
    for (const RankTrace& rank : trace.ranks) {
      if (rank.complete) whole.insert(rank.rank);
    }
    if (whole.size() == static_cast<std::size_t>(trace.world_size)) return "";
    return fmt::format("{} of {} ranks are whole", whole.size(), trace.world_size);
  } catch (const InputError& problem) {
    return problem.what();
  }
}

void remove_trace(const fs::path& trace) {
  const fs::path gone = trace.string() + ".removed";
  std::error_code error;
  fs::rename(trace, gone, error);
  if (!error) fs::remove_all(gone, error);
  if (error) throw InputError(fmt::format("{}: cannot be removed: {}", trace.string(), error.message()));
}

Checked follow(const CheckOptions& check_options, const FollowOptions& options,
               const std::function<void(std::int32_t, const Checked&)>& on_checked) {
  std::deque<fs::path> same;
  std::string run_id;
  Checked checked;
  for (const auto& [iteration, reference] : iterations_to_check(check_options.reference)) {
    CheckOptions one = check_options;
    one.reference = reference;
    one.candidate = wait_for(check_options.candidate, iteration, options.timeout).string();
    one.iterations = {iteration};
    require_one_run(one.candidate, run_id);
    checked = check(one);
    on_checked(iteration, checked);
    if (!checked.report.same()) break;
    same.emplace_back(one.candidate);
    if (options.keep > 0 && same.size() > options.keep) {
      remove_trace(same.front());
      same.pop_front();
    }
  }
  return checked;
}

}  // namespace ttrace
