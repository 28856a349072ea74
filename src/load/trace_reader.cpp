#include "load/trace_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "load/problems.h"
#include "load/rank_file.h"
#include "numeric/xxh3.h"

namespace ttrace {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kIteration = "iteration-";  // begins the names of the traces of a split run

}  // namespace

Trace read_trace(const std::filesystem::path& directory, int threads) {
  require_no_problems(directory);
  return read_trace_as_it_is(directory, threads);
}

Trace read_trace_as_it_is(const std::filesystem::path& directory, int threads) {
  const std::vector<fs::path> paths = list_rank_files(directory);
  std::vector<RankFile> files(paths.size());
  FileThreads(threads).for_each(
      paths.size(), [&](std::size_t i, SharedByFiles& shared) { files[i] = read_rank_file(paths[i], shared); });
  return make_trace(directory, std::move(files));
}

fs::path iteration_in(const fs::path& directory, std::int32_t iteration) {
  return directory / fmt::format("{}{:06}", kIteration, iteration);
}

std::map<std::int32_t, fs::path> list_iterations(const fs::path& directory) {
  std::map<std::int32_t, fs::path> iterations;
  std::error_code ignored;  // the directory may not be there yet
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kIteration)) continue;
    std::int32_t number = 0;
    std::from_chars(name.data() + kIteration.size(), name.data() + name.size(), number);
    if (iteration_in(directory, number).filename() == name) iterations[number] = entry.path();
  }
  return iterations;
}

Trace read_rank(const std::filesystem::path& directory, std::int32_t rank) {
  const fs::path path = directory / fmt::format("rank-{:05}.h5", rank);
  std::vector<RankFile> files;
  SharedByFiles shared;
  files.push_back(read_rank_file(path, shared));
  if (files[0].run.rank != rank) {
    throw InputError(
        fmt::format("{}: is the file of rank {}; expected that of {}", path.string(), files[0].run.rank, rank));
  }
  return make_trace(directory, std::move(files));
}

std::string digest_of(const Trace& trace) {
  XXH3_state_t* state = XXH3_createState();
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> owner(state, XXH3_freeState);
  XXH3_64bits_reset(state);
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) {
      const TensorId& id = entry.id;
      const std::string line = fmt::format("{} {} {} {} {} {} {} [{}] {} {}\n", rank.rank, id.iteration, id.microbatch,
                                           id.chunk, name_of(id.pass), name_of(id.kind), name_of(entry.dtype),
                                           fmt::join(entry.shape, ","), entry.checksum, id.name);
      XXH3_64bits_update(state, line.data(), line.size());
    }
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state));
}

bool verify_checksum(const RankTrace& rank, const Entry& entry) {
  return XXH3_64bits(rank.stored_bytes_of(entry), entry.bytes) == entry.checksum;
}

}  // namespace ttrace
