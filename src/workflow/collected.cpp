#include "workflow/collected.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "base/count_of.h"
#include "base/error.h"
#include "compare/same_bits.h"
#include "format/format.h"
#include "host/exit_codes.h"
#include "identify/arrangement.h"
#include "load/problems.h"
#include "load/trace_reader.h"
#include "record/completion.h"
#include "text/readable.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLinesShown = 8;  // of the ranks' problems; they also stand in the files

std::vector<fs::path> files_with(const fs::path& directory, const std::string& extension) {
  std::vector<fs::path> found;
  std::error_code ignored;  // the directory may go away while the command runs
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().extension() == extension) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// The traces of a run, more than one where it was split.
std::vector<fs::path> traces_in(const fs::path& directory) {
  std::vector<fs::path> traces;
  for (const auto& [iteration, trace] : list_iterations(directory)) traces.push_back(trace);
  return traces.empty() ? std::vector<fs::path>{directory} : traces;
}

std::vector<fs::path> rank_files_in(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const fs::path& trace : traces_in(directory)) {
    const std::vector<fs::path> more = files_with(trace, ".h5");
    files.insert(files.end(), more.begin(), more.end());
  }
  return files;
}

// Holds what was recorded, over all traces of a run.
struct Collected {
  std::size_t traces = 0, ranks = 0;
  std::int32_t world_size = 0;
  std::uint64_t tensors = 0, bytes = 0, in_files = 0;
  double recording_seconds = 0;

  void add(const Trace& trace) {
    ++traces;
    ranks = std::max(ranks, trace.ranks.size());
    world_size = trace.world_size;
    for (const RankTrace& rank : trace.ranks) {
      tensors += rank.entries.size();
      for (const Entry& entry : rank.entries) bytes += entry.bytes;
      in_files += rank.file->size();
    }
    recording_seconds = std::max(recording_seconds, trace.provenance.recording_seconds);
  }
};

std::string summary_of(const Collected& collected, const fs::path& directory, double seconds) {
  const auto& [traces, ranks, world_size, tensors, bytes, in_files, recording] = collected;
  const std::string stored = in_files < bytes ? fmt::format(" ({} in files)", readable_bytes(in_files)) : "";
  return fmt::format("collected {}{}, {} tensor{}, {}{} in {:.1f} s (recording took {:.1f} s, {:.0f} %) -> {}",
                     traces == 1 ? "" : fmt::format("{} iterations of ", traces), count_of(ranks, "rank"),
                     readable_count(tensors), tensors == 1 ? "" : "s", readable_bytes(bytes), stored, seconds,
                     recording, 100 * recording / std::max(seconds, 1e-3), directory.string());
}

// Says what keeps the trace from being whole.
std::vector<std::string> gaps_in(const Trace& trace) {
  std::set<std::int32_t> missing;
  for (std::int32_t rank = 0; rank < trace.world_size; ++rank) missing.insert(missing.end(), rank);
  std::vector<std::int32_t> incomplete;
  for (const RankTrace& rank : trace.ranks) {
    missing.erase(rank.rank);
    if (!rank.complete) incomplete.push_back(rank.rank);
  }
  std::vector<std::string> gaps;
  if (!missing.empty()) {
    gaps.push_back(fmt::format("of {} ranks, these recorded nothing: {}", trace.world_size, fmt::join(missing, ", ")));
  }
  if (!incomplete.empty()) gaps.push_back(fmt::format("incomplete: rank {}", fmt::join(incomplete, ", ")));
  return gaps;
}

void log_problems(const std::vector<std::string>& problems) {
  for (std::size_t i = 0; i < std::min(problems.size(), kLinesShown); ++i) spdlog::error("{}", problems[i]);
  if (problems.size() > kLinesShown) spdlog::error("and {} more problems", problems.size() - kLinesShown);
}

// Parts `rank 3: not traceable: ...` into the rank and the text.
std::pair<std::int64_t, std::string> part_warning(const std::string& line) {
  constexpr std::string_view kRank = "rank ";
  std::int64_t rank = -1;
  const char* const begin = line.data() + std::min(kRank.size(), line.size());
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), rank);
  const std::size_t colon = static_cast<std::size_t>(end - line.data());
  const bool is_known = line.starts_with(kRank) && error == std::errc() && line.substr(colon).starts_with(": ");
  return is_known ? std::pair(rank, line.substr(colon + 2)) : std::pair(std::int64_t{-1}, line);
}

// The text without the first name in it: what several tensors or modules are warned about alike.
std::string without_name(const std::string& text) {
  const std::size_t begin = text.find('\''), end = text.find('\'', begin + 1);
  return begin == std::string::npos || end == std::string::npos ? text : text.substr(0, begin) + text.substr(end);
}

int conclude_without_trace(const fs::path& directory, const CommandResult& result,
                           const std::vector<std::string>& problems) {
  log_problems(problems);
  std::error_code error;
  const bool is_there = fs::is_directory(directory, error);
  if (!is_there) spdlog::error("{}: is no directory any more; what was recorded there is lost", directory.string());
  if (!result.failure.empty()) {
    spdlog::error("the command {}; nothing was recorded", result.failure);
    return result.exit_code;
  }
  if (problems.empty() && is_there) {
    spdlog::error(
        "nothing was recorded; expected a Python program that calls a torch.nn.Module with gradients enabled. Python's "
        "options -I, -E and -S keep the collector out, and so does a program that unsets PYTHONPATH or TTRACE_CONFIG");
  }
  return kExitCouldNotLook;
}

constexpr const char* kWithoutGradName = "no-grad";  // DIRECTORY of the collector's without_grad.py

// Makes what was recorded of calls without gradients the trace where no process called a model with them, and removes
// it elsewhere.
void settle_calls_without_grad(const fs::path& directory) {
  const fs::path without = directory / kWithoutGradName;
  std::error_code ignored;
  if (!fs::is_directory(without, ignored)) return;
  if (rank_files_in(directory).empty() && !rank_files_in(without).empty()) {
    for (const auto& entry : fs::directory_iterator(without, ignored)) {
      fs::rename(entry.path(), directory / entry.path().filename(), ignored);
    }
    spdlog::info("no model was called with gradients: what ran without them was recorded");
  }
  fs::remove_all(without, ignored);
}

// The tensors of each rank.
std::set<std::pair<std::int32_t, TensorId>> ids_of(const Trace& trace) {
  std::set<std::pair<std::int32_t, TensorId>> ids;
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) ids.emplace(rank.rank, entry.id);
  }
  return ids;
}

std::optional<std::string> first_other(const std::set<std::pair<std::int32_t, TensorId>>& one,
                                       const std::set<std::pair<std::int32_t, TensorId>>& other) {
  std::vector<std::pair<std::int32_t, TensorId>> different;
  std::ranges::set_symmetric_difference(one, other, std::back_inserter(different));
  if (different.empty()) return std::nullopt;
  const auto& [rank, id] = different.front();
  return fmt::format("{} on rank {}", to_string(id), rank);
}

// Takes the completion marks back from the ranks' files, and says beside them how the job failed where there were any.
void mark_all_incomplete(const fs::path& directory, const std::string& failure) {
  bool was_complete = false;
  for (const fs::path& file : files_with(directory, ".h5")) {
    try {
      was_complete = take_back_completion_mark(file) || was_complete;
    } catch (const InputError&) {  // NOLINT(bugprone-empty-catch)
      // The file is not a whole HDF5 file, so it has no mark.
    }
  }
  // Where the disk is full, the files themselves say enough.
  if (was_complete) std::ofstream(directory / kJobFailureName) << fmt::format("the command {}\n", failure);
}

}  // namespace

void show_warnings(const fs::path& directory) {
  const std::vector<std::string> lines = warnings_in(directory);
  struct Alike {
    std::set<std::string> texts;
    std::set<std::int64_t> ranks;
  };
  std::vector<std::string> firsts;  // of those that are alike, in the order of the ranks
  std::map<std::string, Alike> all;
  for (const std::string& line : lines) {
    const auto [rank, text] = part_warning(line);
    Alike& alike = all[without_name(text)];
    if (alike.texts.empty()) firsts.push_back(text);
    alike.texts.insert(text);
    if (rank >= 0) alike.ranks.insert(rank);
  }
  for (std::size_t i = 0; i < std::min(firsts.size(), kLinesShown); ++i) {
    const auto& [texts, ranks] = all[without_name(firsts[i])];
    const std::string who = ranks.empty() ? ""
                                          : fmt::format("rank{} {}: ", ranks.size() == 1 ? "" : "s",
                                                        short_list({ranks.begin(), ranks.end()}));
    const std::string more = texts.size() == 1 ? "" : fmt::format(" (and {} more such)", texts.size() - 1);
    spdlog::warn("{}{}", printable(who + firsts[i]), more);
  }
  if (lines.empty()) return;
  spdlog::info("{} warning{}, in {}/rank-*.warning", lines.size(), lines.size() == 1 ? "" : "s", directory.string());
}

Progress progress_of(const fs::path& directory) {
  Progress progress;
  std::set<std::string> ranks;
  for (const fs::path& file : rank_files_in(directory)) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(file, error);
    ranks.insert(file.filename().string());
    progress.bytes += error ? 0 : size;
  }
  progress.ranks = static_cast<int>(ranks.size());
  return progress;
}

Repetition repetition_of(const fs::path& first, const fs::path& again) {
  const Trace traces[] = {read_trace(first), read_trace(again)};
  std::map<std::pair<std::int32_t, TensorId>, std::pair<const RankTrace*, const Entry*>> known;
  for (const RankTrace& rank : traces[0].ranks) {
    for (const Entry& entry : rank.entries) known.emplace(std::pair(rank.rank, entry.id), std::pair(&rank, &entry));
  }
  Repetition result;
  std::int64_t different = 0, unknown = 0;
  for (const RankTrace& rank : traces[1].ranks) {
    for (const Entry& entry : rank.entries) {
      const auto found = known.find({rank.rank, entry.id});
      if (found == known.end()) continue;
      const auto& [rank_before, before] = found->second;
      const std::byte *const stored = rank.stored_bytes_of(entry), *const stored_before =
                                                                       rank_before->stored_bytes_of(*before);
      const SameBits same = have_same_bits(*before, stored_before, entry, stored);
      rank.file->release(stored, entry.bytes);
      rank_before->file->release(stored_before, before->bytes);
      ++result.compared;
      unknown += same == SameBits::kUnknown;
      if (same != SameBits::kNo) continue;
      if (different++ == 0) result.first = fmt::format("{} on rank {}", to_string(entry.id), rank.rank);
    }
  }
  if (different == 0 && unknown > 0) {
    result.problem = fmt::format(
        "{}: nothing says whether it is the run of {} again: {} of {} tensors are sketches with another checksum; "
        "expected both to be recorded by one version of ttrace",
        again.string(), first.string(), unknown, result.compared);
  } else if (result.compared == 0 || different > 0) {
    result.problem = fmt::format("{}: is not the run of {} again: {}; expected the same command, seeds and data",
                                 again.string(), first.string(),
                                 result.compared == 0 ? "they have no tensor in common"
                                                      : fmt::format("{} of {} tensors have other bits, the first is {}",
                                                                    different, result.compared, result.first));
  }
  return result;
}

std::string problem_of_replays(const fs::path& first, const std::vector<fs::path>& replays) {
  try {
    const Trace reference = read_trace(first);
    for (const fs::path& replay : replays) {
      const std::vector<std::string> problems = problems_in(replay);
      if (!problems.empty()) return problems.front();
      if (rank_files_in(replay).empty()) return "the program ended before";
      const Trace trace = read_trace_as_it_is(replay);
      if (const auto gaps = gaps_in(trace); !gaps.empty()) return gaps.front();
      if (const auto other = first_other(ids_of(reference), ids_of(trace))) {
        return fmt::format("the program computed other tensors ({})", *other);
      }
    }
    const Repetition repetition = repetition_of(first, replays.back());
    if (repetition.problem.empty()) return "";
    return fmt::format("the program did not compute the same again ({})", repetition.first);
  } catch (const InputError& error) {
    return error.what();
  }
}

int conclude_collection(const fs::path& directory, const CommandResult& result, double seconds, bool check_follows) {
  settle_calls_without_grad(directory);
  const std::vector<std::string> problems = problems_in(directory);
  if (rank_files_in(directory).empty()) return conclude_without_trace(directory, result, problems);
  // An iteration that has a trace of its own was over when the command failed.
  if (!result.failure.empty()) mark_all_incomplete(directory, result.failure);
  std::vector<std::string> gaps;
  Collected collected;
  std::string axes;  // to propose, where nothing says how the ranks are arranged
  for (const fs::path& path : traces_in(directory)) {
    try {
      const Trace trace = read_trace_as_it_is(path);
      collected.add(trace);
      if (!check_follows && trace.world_size > 1 && trace.mesh.axes.empty()) axes = axes_to_propose(trace);
      for (const std::string& gap : gaps_in(trace)) gaps.push_back(fmt::format("{}: {}", path.string(), gap));
    } catch (const InputError& error) {
      // A check that follows may have removed it.
      if (fs::exists(path)) gaps.emplace_back(error.what());
    }
  }
  if (collected.traces > 0) spdlog::info("{}", summary_of(collected, directory, seconds));
  if (!axes.empty()) {
    spdlog::info(
        "nothing says how the {} ranks are arranged: say it when the trace is checked, as in `ttrace check "
        "--axes {}`",
        collected.world_size, axes);
  }
  show_warnings(directory);
  log_problems(problems);
  if (!result.failure.empty()) {
    spdlog::error("the command {}; {}", result.failure,
                  list_iterations(directory).empty() ? "the trace is marked incomplete"
                                                     : "the iterations that it had finished are whole");
    return result.exit_code;
  }
  for (const std::string& gap : gaps) spdlog::error("{}", gap);
  return gaps.empty() && problems.empty() ? kExitSame : kExitCouldNotLook;
}

}  // namespace ttrace
