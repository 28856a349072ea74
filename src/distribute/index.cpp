#include "distribute/index.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

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

Trace read_trace(const fs::path& directory, Team& team) {
  if (team.size() == 1) return read_trace(directory);
  const std::vector<fs::path> paths = list_rank_files(directory);
  const std::vector<Files> files_of = cut_into_tasks(paths.size(), static_cast<std::size_t>(team.size()));
  std::vector<std::vector<RankFile>> read(files_of.size());
  Tasks tasks;
  tasks.work = Work::kReadIndex;
  for (const Files& files : files_of) tasks.weights.push_back(files.end - files.begin);
  tasks.own = [&](std::size_t task) {
    for (std::size_t i = files_of[task].begin; i < files_of[task].end; ++i) {
      read[task].push_back(read_rank_file(paths[i]));
    }
  };
  tasks.request = [&](std::size_t task) {
    std::vector<std::string> names;
    for (std::size_t i = files_of[task].begin; i < files_of[task].end; ++i) names.push_back(paths[i].string());
    Packer packer;
    packer(names);
    return packer.take();
  };
  tasks.take = [&](std::size_t task, const std::string& answer) {
    Unpacker unpacker(answer);
    for (std::size_t i = files_of[task].begin; i < files_of[task].end; ++i) {
      read[task].push_back(unpack_rank_file(paths[i], unpacker.next_view()));
    }
  };
  team.deal(tasks);
  std::vector<RankFile> files;
  for (std::vector<RankFile>& some : read) std::move(some.begin(), some.end(), std::back_inserter(files));
  return make_trace(directory, std::move(files));
}

std::string answer_index(std::string_view request) {
  Packer packer;
  for (const std::string& path : Unpacker(request).next<std::vector<std::string>>()) {
    packer(pack_rank_file(path, map_shared_file(path)));
  }
  return packer.take();
}

}  // namespace ttrace
