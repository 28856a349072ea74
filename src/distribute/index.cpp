#include "distribute/index.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "distribute/recorded.h"
#include "load/problems.h"
#include "load/rank_file.h"
#include "load/trace_reader.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// Few enough that an answer is a few MiB, and that there is something to balance.
constexpr std::size_t kMostFilesATask = 32;
constexpr std::size_t kIndexTasksAProcess = 16;

// Neighbouring files.
struct Files {
  std::size_t begin, end;
};

std::vector<Files> cut_into_tasks(std::size_t files, std::size_t processes) {
  const std::size_t each = std::clamp<std::size_t>(files / (processes * kIndexTasksAProcess), 1, kMostFilesATask);
  std::vector<Files> tasks;
  for (std::size_t begin = 0; begin < files; begin += each) tasks.push_back({begin, std::min(begin + each, files)});
  return tasks;
}

}  // namespace

Trace read_trace(const fs::path& directory, Team& team, int threads) {
  if (team.size() == 1) return read_trace(directory, threads);
  require_no_problems(directory);
  const std::vector<fs::path> paths = list_rank_files(directory);
  const std::vector<Files> files_of = cut_into_tasks(paths.size(), static_cast<std::size_t>(team.size()));
  std::vector<RankFile> read(paths.size());
  Tasks tasks;
  tasks.work = Work::kReadIndex;
  for (const Files& files : files_of) tasks.weights.push_back(files.end - files.begin);
  FileThreads own_threads(threads), threads_for_answers(threads);
  tasks.own = [&](std::size_t task) {
    const std::size_t begin = files_of[task].begin, count = files_of[task].end - begin;
    own_threads.for_each(count, [&](std::size_t i, SharedByFiles& shared) {
      read[begin + i] = read_rank_file(paths[begin + i], shared);
    });
  };
  tasks.request = [&](std::size_t task) {
    std::vector<std::string> names;
    for (std::size_t i = files_of[task].begin; i < files_of[task].end; ++i) names.push_back(paths[i].string());
    Packer packer;
    packer(threads, names);
    return packer.take();
  };
  tasks.take = [&](std::size_t task, const std::string& answer) {
    const std::size_t begin = files_of[task].begin;
    const std::vector<PackedFile> packed = unpack_rank_files(answer);
    threads_for_answers.for_each(packed.size(), [&](std::size_t i, SharedByFiles& shared) {
      read.at(begin + i) = decode_packed_file(paths.at(begin + i), packed[i], shared);
    });
  };
  team.deal(tasks);
  return make_trace(directory, std::move(read));
}

std::string answer_index(std::string_view request) {
  Unpacker unpacker(request);
  int threads = 0;
  std::vector<std::string> paths;
  unpacker(threads, paths);
  std::vector<RankTables> files(paths.size());
  FileThreads(threads).for_each(paths.size(), [&](std::size_t i, SharedByFiles& shared) {
    files[i] = check_rank_file(paths[i], map_shared_file(paths[i]), shared);
  });
  return pack_rank_files(files);
}

}  // namespace ttrace
