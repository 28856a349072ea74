#include "load/tensors_in_place.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parallel_for.h"
#include "files/regular_file.h"
#include "format/safetensors.h"
#include "load/mapped_file.h"
#include "load/safetensors_reader.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNanoseconds = 1'000'000'000;

// The mapping sees what is written from now on.
void require_unchanged_since(const FileOfPlaces& file) {
  struct stat now{};
  const bool is_there = ::stat(file.path.c_str(), &now) == 0;
  if (is_there && static_cast<std::uint64_t>(now.st_size) == file.bytes &&
      now.st_mtim.tv_sec * kNanoseconds + now.st_mtim.tv_nsec == file.changed) {
    return;
  }
  throw InputError(fmt::format("{}: changed while it was read; expected a file that nobody writes to", file.path));
}

// Gives the entries that were copied the places in the order of the import that the others leave.
void renumber(std::vector<Entry>& copied, const std::set<std::uint64_t>& taken) {
  std::uint64_t order = 0;
  for (Entry& entry : copied) {
    do ++order;
    while (taken.contains(order));
    entry.order = order;
  }
}

void require_names_apart(const std::vector<Entry>& entries, const fs::path& where) {
  std::set<TensorId> seen;
  for (const Entry& entry : entries) {
    if (seen.insert(entry.id).second) continue;
    throw InputError(fmt::format("{}: two tensors '{}'; expected names that differ", where.string(),
                                 printable(entry.id.name.get())));
  }
}

}  // namespace

void add_tensors_in_place(Trace& trace, const fs::path& places, int threads) {
  const auto files = parse_places(read_text_file(places, "places of tensors"), places.string());
  if (files.empty()) return;
  RankTrace& rank = trace.ranks.front();
  std::vector<fs::path> paths;
  std::set<std::uint64_t> taken;
  for (const FileOfPlaces& file : files) {
    paths.emplace_back(file.path);
    for (const FileOfPlaces::Tensor& each : file.tensors) taken.insert(each.order);
  }
  paths.push_back(rank.path);
  std::vector<FileRange> ranges;
  rank.file = map_files(paths, ranges);
  std::vector<Entry> entries = std::move(rank.entries);
  renumber(entries, taken);
  for (Entry& entry : entries) entry.offset += ranges.back().begin;
  const std::size_t copied = entries.size();
  for (std::size_t i = 0; i < files.size(); ++i) {
    require_unchanged_since(files[i]);
    for (const FileOfPlaces::Tensor& each : files[i].tensors) {
      entries.push_back(parameter_entry(each.tensor, ranges[i].begin, each.order));
    }
  }
  rank.entries = std::move(entries);
  require_names_apart(rank.entries, rank.path);
  parallel_for(rank.entries.size() - copied, threads, [&](std::size_t i) {
    Entry& entry = rank.entries[copied + i];
    entry.checksum = XXH3_64bits(rank.stored_bytes_of(entry), entry.bytes);
  });
  std::sort(rank.entries.begin(), rank.entries.end(), [](const Entry& a, const Entry& b) { return a.order < b.order; });
}

}  // namespace ttrace
