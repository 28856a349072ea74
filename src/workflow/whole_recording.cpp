#include "workflow/whole_recording.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "load/trace_reader.h"
#include "text/readable.h"
#include "workflow/collect.h"
#include "workflow/collected.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// Returns the file that records the same iterations, those up to `last` whole.
RunFile recording_whole(RunFile file, const RecordedIterations& recorded, std::int32_t last) {
  std::vector<std::int32_t> whole = recorded.whole;
  const std::int32_t end = whole.back() + static_cast<std::int32_t>(recorded.then);
  for (std::int32_t iteration = whole.back() + 1; iteration <= last; ++iteration) whole.push_back(iteration);
  file.iterations = fmt::format("{}", fmt::join(whole, ","));
  file.then = static_cast<std::size_t>(std::max(end - last, 0));
  return file;
}

// Says by how many runs something is made: "5 of the reference and 1 of the candidate"; empty: by none.
std::string describe_runs(std::uint64_t of_reference, std::uint64_t of_candidate) {
  std::vector<std::string> parts;
  if (of_reference > 0) parts.push_back(fmt::format("{} of the reference", of_reference));
  if (of_candidate > 0) parts.push_back(fmt::format("{} of the candidate", of_candidate));
  return fmt::format("{}", fmt::join(parts, " and "));
}

}  // namespace

WholeRecording::WholeRecording(const RunFile& file, const Workspace& first, std::int32_t iteration,
                               std::set<fs::path> written, std::size_t jobs, std::size_t& launches)
    : file_(recording_whole(file, iterations_of(read_trace(first.trace_of(kReference))), iteration)),
      first_(first),
      workspace_(first.path_of(kWhole) / fmt::format("until-{}", iteration)),
      artifacts_(file_, workspace_, std::move(written), jobs, launches) {
  workspace_.open();
}

// Returns by how many runs what is not there is made.
std::string WholeRecording::lacking_runs(const Job& candidate) {
  const auto lacks = [](const CacheState& state) -> std::uint64_t { return state.freshness != Freshness::kFits; };
  const std::uint64_t of_reference =
      lacks(artifacts_.reference_state()) + lacks(artifacts_.tolerance_state()) * (file_.seeds + 1);
  return describe_runs(of_reference, lacks(artifacts_.candidate_state(candidate)));
}

std::string WholeRecording::runs() const { return describe_runs(file_.seeds + 2, 1); }

void WholeRecording::require_first_run(const std::string& artifact) const {
  const std::string problem = repetition_of(first_.trace_of(artifact), workspace_.trace_of(artifact)).problem;
  if (!problem.empty()) throw InputError(problem);
}

void WholeRecording::make(const Job& candidate) {
  if (const std::string lacking = lacking_runs(candidate); !lacking.empty()) {
    spdlog::info("{}: iterations {} are recorded whole, in further runs: {}", printable(candidate.name),
                 file_.iterations, lacking);
  }
  artifacts_.make_reference(Renewal::kAll, true);
  require_first_run(kReference);
  artifacts_.make_candidate(candidate);
  require_first_run(candidate_artifact(candidate));
  artifacts_.make_tolerance(Renewal::kAll);
}

}  // namespace ttrace
