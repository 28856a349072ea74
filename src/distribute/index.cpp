#include "distribute/index.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/parallel_for.h"
#include "distribute/recorded.h"
#include "load/rank_file.h"
#include "ttrace/load/trace_reader.h"

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
  const std::vector<fs::path> paths = list_rank_files(directory);
  const std::vector<Files> files_of = cut_into_tasks(paths.size(), static_cast<std::size_t>(team.size()));
  std::vector<RankFile> read(paths.size());
  Tasks tasks;
  tasks.work = Work::kReadIndex;
  for (const Files& files : files_of) tasks.weights.push_back(files.end - files.begin);
  tasks.own = [&](std::size_t task) {
    const std::size_t begin = files_of[task].begin, count = files_of[task].end - begin;
    parallel_for(count, threads, [&](std::size_t i) { read[begin + i] = read_rank_file(paths[begin + i]); });
  };
  tasks.request = [&](std::size_t task) {
    std::vector<std::string> names;
    for (std::size_t i = files_of[task].begin; i < files_of[task].end; ++i) names.push_back(paths[i].string());
    Packer packer;
    packer(threads, names);
    return packer.take();
  };
  tasks.take = [&](std::size_t task, const std::string& answer) {
    const std::size_t begin = files_of[task].begin, count = files_of[task].end - begin;
    Unpacker unpacker(answer);
    std::vector<std::string_view> packed;
    while (!unpacker.at_end()) packed.push_back(unpacker.next_view());
    parallel_for(count, threads,
                 [&](std::size_t i) { read[begin + i] = unpack_rank_file(paths[begin + i], packed.at(i)); });
  };
  team.deal(tasks);
  return make_trace(directory, std::move(read));
}

std::string answer_index(std::string_view request) {
  Unpacker unpacker(request);
  int threads = 0;
  std::vector<std::string> paths;
  unpacker(threads, paths);
  std::vector<std::string> packed(paths.size());
  parallel_for(paths.size(), threads,
               [&](std::size_t i) { packed[i] = pack_rank_file(paths[i], map_shared_file(paths[i])); });
  Packer packer;
  for (const std::string& file : packed) packer(file);
  return packer.take();
}

}  // namespace ttrace
