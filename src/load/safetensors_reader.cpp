#include "load/safetensors_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parallel_for.h"
#include "files/regular_file.h"
#include "load/mapped_file.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kSingle = "model.safetensors", kIndex = "model.safetensors.index.json";

using WeightMap = std::map<std::string, std::string>;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A link is followed where the user named it, and refused inside of a folder, which may come from anybody.
fs::path behind_links(const fs::path& path) {
  std::error_code error;
  fs::path found = fs::canonical(path, error);
  return error ? path : found;
}

// The files beside an index; each must be one there, and no link.
std::vector<fs::path> files_of(const WeightMap& index, const fs::path& path) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  std::vector<fs::path> files;
  for (const std::string& name : names) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      throw InputError(fmt::format("{}: names the file '{}'; expected one beside it", path.string(), printable(name)));
    }
    files.push_back(path.parent_path() / name);
  }
  return files;
}

void require_indexed(const SafetensorsTensor& tensor, const WeightMap& index, const fs::path& file,
                     const fs::path& path) {
  const auto found = index.find(tensor.name);
  if (found != index.end() && found->second == file.filename()) return;
  throw InputError(fmt::format("{}: holds '{}', of which {} says otherwise", file.string(), printable(tensor.name),
                               path.filename().string()));
}

void require_complete(const WeightMap& index, const std::vector<Entry>& entries, const fs::path& path) {
  std::set<std::string_view> held;
  for (const Entry& entry : entries) held.insert(entry.id.name.get());
  for (const auto& [tensor, file] : index) {
    if (held.contains(tensor)) continue;
    throw InputError(fmt::format("{}: '{}' is not in the file that it names", path.string(), printable(tensor)));
  }
}

}  // namespace

bool is_safetensors(const fs::path& source) {
  std::error_code ignored;
  if (!fs::is_directory(source, ignored)) return source.string().ends_with(kSuffix);
  return is_there(source / kSingle) || is_there(source / kIndex);
}

Entry parameter_entry(const SafetensorsTensor& tensor, std::uint64_t start, std::uint64_t order) {
  Entry entry;
  entry.id.kind = Kind::kParam;
  entry.id.name = tensor.name;
  entry.dtype = tensor.dtype;
  entry.shape = tensor.shape;
  entry.order = order;
  entry.offset = start + tensor.begin;
  entry.bytes = static_cast<std::uint64_t>(element_count(tensor.shape) * size_of(tensor.dtype));
  return entry;
}

Trace read_safetensors(const fs::path& source, int threads) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(source, ignored);
  const fs::path index_path = source / kIndex;
  WeightMap index;
  std::vector<fs::path> files = {is_folder ? source / kSingle : behind_links(source)};
  if (is_folder && is_there(index_path)) {
    index = parse_weight_map(read_text_file(index_path, "an index of safetensors"), index_path.string());
    files = files_of(index, index_path);
    if (is_there(source / kSingle) && std::find(files.begin(), files.end(), source / kSingle) == files.end()) {
      throw InputError(
          fmt::format("{}: does not list {}, which lies beside it, and a program loads the one or the other; "
                      "expected one of them",
                      index_path.string(), kSingle));
    }
  }
  if (files.empty()) throw InputError(fmt::format("{}: lists no file", index_path.string()));
  RankTrace rank;
  std::vector<FileRange> ranges;
  rank.path = source;
  rank.file = map_files(files, ranges);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string_view file = mapped_text(*rank.file).substr(ranges[i].begin, ranges[i].size);
    for (const SafetensorsTensor& tensor : parse_safetensors(file, (is_folder ? files[i] : source).string())) {
      if (!index.empty()) require_indexed(tensor, index, files[i], index_path);
      rank.entries.push_back(parameter_entry(tensor, ranges[i].begin, rank.entries.size() + 1));
    }
  }
  if (!index.empty()) require_complete(index, rank.entries, index_path);
  parallel_for(rank.entries.size(), threads, [&](std::size_t i) {
    Entry& entry = rank.entries[i];
    entry.checksum = XXH3_64bits(rank.stored_bytes_of(entry), entry.bytes);
  });
  rank.complete = true;
  Trace trace;
  trace.directory = source;
  trace.run_id = fmt::format("{} {}", behind_links(source).string(), version_of(*rank.file));
  trace.ranks.push_back(std::move(rank));
  return trace;
}

}  // namespace ttrace
