#include "ttrace/load/trace_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "format/journal.h"
#include "format/provenance.h"
#include "format/run_attributes.h"
#include "load/check_entries.h"
#include "load/entry_mappings.h"
#include "load/mapped_file.h"
#include "load/program_words.h"
#include "load/sealed_file.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// One rank's file, read and checked.
struct RankFile {
  RunDescription run;
  RankTrace rank;
};

// Lists the rank files. The number in a file's name is not read: a copy under another name counts as a duplicate rank.
std::vector<fs::path> list_rank_files(const fs::path& directory) {
  std::error_code error;
  const fs::directory_iterator listing(directory, error);
  if (error) {
    throw InputError(fmt::format("{}: {}; expected a trace: a directory with rank-00000.h5, rank-00001.h5, ...",
                                 directory.string(), error.message()));
  }
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : listing) {
    if (entry.path().filename().string().starts_with("rank-") && entry.path().extension() == ".h5") {
      files.push_back(entry.path());
    }
  }
  if (files.empty()) {
    throw InputError(fmt::format("{}: no rank's file in it; expected a trace: rank-00000.h5, rank-00001.h5, ...",
                                 directory.string()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

RunDescription checked_run(const RunAttributes& attributes, const std::string& where) {
  if (attributes.version != kTraceVersion) {
    throw InputError(fmt::format("{}: trace format version {}; this ttrace reads version {}", where, attributes.version,
                                 kTraceVersion));
  }
  const std::optional<RunDescription> run = parse_attributes(attributes);
  if (!run) throw InputError(fmt::format("{}: axes, views, aliases or coordinates do not parse; expected JSON", where));
  if (const std::string objection = objection_to_run(*run); !objection.empty()) {
    throw InputError(fmt::format("{}: {}", where, objection));
  }
  return *run;
}

RankFile checked_rank(const fs::path& path, std::shared_ptr<const MappedFile> file, const RunAttributes& attributes,
                      std::vector<Entry> entries, const std::vector<std::string_view>& mappings, std::uint64_t data_end,
                      bool complete) {
  const RunDescription run = checked_run(attributes, path.string());
  check_entries(entries, data_end, path.string());
  set_mappings(entries, mappings, path.string());
  RankTrace rank{path, run.rank, run.coordinates, complete, std::move(entries), std::move(file), {}, {}, {}};
  rank.not_seen = parse_not_seen(run.provenance, path.string());
  rank.optimizer_steps = parse_optimizer_steps(run.provenance, path.string());
  rank.sources = parse_sources(run.provenance, path.string());
  return {run, std::move(rank)};
}

// Reads what a rank had recorded when it died; nothing without a readable journal.
std::optional<RankFile> rank_from_journal(const fs::path& path, const std::shared_ptr<const MappedFile>& file) {
  const fs::path journal_path = fs::path(path).replace_extension(".journal");
  std::error_code error;
  if (!fs::exists(journal_path, error)) return std::nullopt;
  const auto bytes = map_file(journal_path);
  std::optional<Journal> journal = parse_journal(mapped_text(*bytes));
  if (!journal) return std::nullopt;
  return checked_rank(path, file, journal->run, std::move(journal->entries), journal->mappings, file->size(),
                      /*complete=*/false);
}

RankFile read_rank_file(const fs::path& path) {
  const std::shared_ptr<const MappedFile> file = map_file(path);
  try {
    SealedFile sealed = read_sealed_file(path, *file);
    return checked_rank(path, file, sealed.run, std::move(sealed.entries), sealed.mappings, sealed.data_end,
                        sealed.complete);
  } catch (const InputError&) {
    // The rank died before it could close its file, or while it did.
    if (std::optional<RankFile> rank = rank_from_journal(path, file)) return std::move(*rank);
    throw;
  }
}

void check_same_run(const RankFile& first, const RankFile& other) {
  const auto require = [&](bool holds, std::string_view what, const auto& of_other, const auto& of_first) {
    if (holds) return;
    throw InputError(fmt::format("{}: {} {}, but {} has {}; expected the files of one run", other.rank.path.string(),
                                 what, of_other, first.rank.path.filename().string(), of_first));
  };
  require(other.run.run_id == first.run.run_id, "run id", other.run.run_id, first.run.run_id);
  require(other.run.world_size == first.run.world_size, "world size", other.run.world_size, first.run.world_size);
  if (first.run.mesh == Mesh{} || other.run.mesh == Mesh{}) return;  // a rank that ended before it knew them
  // Meshes are compared as text: each was checked to parse back from its text.
  const std::string other_mesh = to_string(other.run.mesh), first_mesh = to_string(first.run.mesh);
  require(other_mesh == first_mesh, "axes", other_mesh, first_mesh);
}

// Gives the ranks that do not know the axes those that the others know, with the coordinates of their number.
void share_axes(std::vector<RankFile>& files) {
  const auto known =
      std::find_if(files.begin(), files.end(), [](const RankFile& file) { return file.run.mesh != Mesh{}; });
  if (known == files.end()) return;
  const Mesh mesh = known->run.mesh;
  for (RankFile& file : files) {
    if (file.run.mesh != Mesh{}) continue;
    file.run.mesh = mesh;
    file.rank.coordinates = coordinates_of(mesh, file.rank.rank);
  }
}

std::vector<WordsOfRank> words_of(const std::vector<RankFile>& files) {
  std::vector<WordsOfRank> words;
  for (const RankFile& file : files) {
    if (file.run.provenance.find("\"parallelism\"") == std::string::npos) continue;  // most say nothing
    const std::string path = file.rank.path.string();
    words.push_back({path, parse_provenance(file.run.provenance, path).parallelism});
  }
  return words;
}

Trace make_trace(const fs::path& directory, std::vector<RankFile> files) {
  share_axes(files);
  const RunDescription& run = files.front().run;
  Trace trace{directory,
              run.run_id,
              run.world_size,
              run.mesh,
              run.compute_dtype,
              parse_provenance(run.provenance, directory.string()),
              read_program_words(words_of(files)),
              {}};
  for (RankFile& file : files) trace.ranks.push_back(std::move(file.rank));
  return trace;
}

}  // namespace

Trace read_trace(const std::filesystem::path& directory) {
  std::vector<RankFile> files;
  for (const fs::path& path : list_rank_files(directory)) {
    files.push_back(read_rank_file(path));
    check_same_run(files.front(), files.back());
    if (files.front().run.mesh == Mesh{}) std::swap(files.front(), files.back());  // the others are held to known axes
  }
  std::stable_sort(files.begin(), files.end(),
                   [](const RankFile& a, const RankFile& b) { return a.rank.rank < b.rank.rank; });
  return make_trace(directory, std::move(files));
}

Trace read_rank(const std::filesystem::path& directory, std::int32_t rank) {
  const fs::path path = directory / fmt::format("rank-{:05}.h5", rank);
  std::vector<RankFile> files;
  files.push_back(read_rank_file(path));
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
  return XXH3_64bits(rank.bytes_of(entry), entry.bytes) == entry.checksum;
}

}  // namespace ttrace
