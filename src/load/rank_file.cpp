#include "load/rank_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/parallel_for.h"
#include "base/random_draws.h"
#include "format/journal.h"
#include "format/provenance.h"
#include "format/run_attributes.h"
#include "load/check_entries.h"
#include "load/entry_mappings.h"
#include "load/further.h"
#include "load/mapped_file.h"
#include "load/problems.h"
#include "load/program_words.h"
#include "load/rehearsals.h"
#include "load/sealed_file.h"
#include "load/trace_reader.h"
#include "team/message.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

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

// `is_checked`, here and below: a process of this team has checked them already, and what takes long is not done again.
std::vector<Entry> finish_entries(std::vector<Entry> entries, const std::vector<std::string_view>& mappings,
                                  std::uint64_t data_end, bool is_checked, std::string_view where) {
  if (!is_checked) check_entries(entries, data_end, where);
  set_mappings(entries, mappings, where);
  return entries;
}

// Tells whether the tables say what those of `last` do, but for the checksums, and no check would refuse them: the
// limits grow with the file.
bool are_decoded(const SealedTables& tables, const DecodedTables& last) {
  return tables.file_bytes >= last.file_bytes &&
         differ_in_checksums_only(tables, {{}, last.index, last.text, last.shapes, false, last.data_end, 0});
}

// The entries of a closed file. Where the last file that was decoded has the same but for the checksums, they are copied.
std::vector<Entry> decode_entries(const SealedTables& tables, const fs::path& path, bool is_checked,
                                  SharedByFiles& shared) {
  const DecodedTables& last = shared.last;
  if (are_decoded(tables, last)) {
    std::vector<Entry> entries = last.entries;
    const std::vector<std::uint64_t> checksums = checksums_in(tables.index);
    for (std::size_t i = 0; i < entries.size(); ++i) entries[i].checksum = checksums[i];
    if (!is_checked) check_disjoint(entries, path.string());
    return entries;
  }
  DecodedIndex decoded = decode_index(tables, path, shared);
  std::vector<Entry> entries =
      finish_entries(std::move(decoded.entries), decoded.mappings, tables.data_end, is_checked, path.string());
  shared.last = {std::string(tables.index), std::string(tables.text), std::string(tables.shapes),
                 tables.data_end,           tables.file_bytes,        entries};
  return entries;
}

// Decodes what a rank's file says of itself.
RankFile decode_rank(const fs::path& path, std::shared_ptr<const MappedFile> file, const RankTables& tables,
                     bool is_checked, SharedByFiles& shared) {
  RunDescription run;
  std::vector<Entry> entries;
  const bool is_closed = tables.journal.empty();
  if (is_closed) {
    run = checked_run(decode_run(tables.sealed, path), path.string());
    entries = decode_entries(tables.sealed, path, is_checked, shared);
  } else {
    std::optional<Journal> journal = parse_journal(tables.journal);
    if (!journal)
      throw InputError(fmt::format("{}: its journal cannot be read; expected one of ttrace", path.string()));
    run = checked_run(journal->run, path.string());
    entries = finish_entries(std::move(journal->entries), journal->mappings, file->size(), is_checked, path.string());
  }
  RankTrace rank{
      path, run.rank, run.coordinates, is_closed && tables.sealed.complete, std::move(entries), std::move(file), {}, {},
      {},   {}};
  rank.job_failed = is_closed && tables.sealed.taken_back;
  rank.not_seen = parse_not_seen(run.provenance, path.string());
  rank.optimizer_steps = parse_optimizer_steps(run.provenance, path.string());
  rank.unstepped = parse_unstepped(run.provenance, path.string());
  rank.trained = parse_trained(run.provenance, path.string());
  rank.kept = parse_kept(run.provenance, path.string());
  rank.sources = parse_sources(run.provenance, path.string());
  rank.configurations = parse_configurations(run.provenance, path.string());
  rank.draws = parse_draws(run.provenance, path.string());
  const Rehearsals rehearsals = parse_rehearsals(run.provenance, path.string());
  if (rank.draws && !rehearsals.microbatches.empty()) rank.draws = rank.draws->of_any_call();
  leave_out(rehearsals, rank);
  if (const auto further = parse_further(run.provenance, path.string())) leave_out_unfinished(*further, rank);
  return {run, std::move(rank)};
}

// Returns what a rank had recorded when it died; nothing without a readable journal.
std::optional<RankTables> tables_of_journal(const fs::path& path) {
  const fs::path journal_path = fs::path(path).replace_extension(".journal");
  std::error_code error;
  if (!fs::exists(journal_path, error)) return std::nullopt;
  RankTables tables;
  tables.journal_file = map_file(journal_path);
  tables.journal = mapped_text(*tables.journal_file);
  if (!parse_journal(tables.journal)) return std::nullopt;
  return tables;
}

// Reads and checks a rank's file; `tables` gets what it was decoded from, which lies in `file` or in its journal.
RankFile read_with_tables(const fs::path& path, const std::shared_ptr<const MappedFile>& file, RankTables& tables,
                          SharedByFiles& shared) {
  try {
    tables.sealed = read_sealed_tables(path, *file);
    return decode_rank(path, file, tables, /*is_checked=*/false, shared);
  } catch (const InputError&) {
    // The rank died before it could close its file, or while it did.
    const std::optional<RankTables> journal = tables_of_journal(path);
    if (!journal) throw;
    tables = *journal;
    // One that records on has bytes for all that its journal names, but `file` may be older than that.
    return decode_rank(path, map_file(path), tables, /*is_checked=*/false, shared);
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

std::optional<std::string> failure_of(const Trace& trace) {
  const bool has_failed = std::any_of(trace.ranks.begin(), trace.ranks.end(), std::mem_fn(&RankTrace::job_failed));
  if (!has_failed) return std::nullopt;
  const std::string said = job_failure_in(trace.directory);
  return fmt::format("{} after all of this was recorded", said.empty() ? "the job failed" : said);
}

}  // namespace

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
    if (const auto iterations = list_iterations(directory); !iterations.empty()) {
      throw InputError(
          fmt::format("{}: holds a trace for each iteration (ttrace collect --split); expected one of them, such as "
                      "{}, or ttrace check --follow",
                      directory.string(), iterations.begin()->second.string()));
    }
    throw InputError(fmt::format("{}: no rank's file in it; expected a trace: rank-00000.h5, rank-00001.h5, ...",
                                 directory.string()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

RankFile read_rank_file(const fs::path& path, SharedByFiles& shared) {
  RankTables tables;
  RankFile file = read_with_tables(path, map_file(path), tables, shared);
  // The index of a large job is gigabytes, and all of it was decoded.
  const SealedTables& sealed = tables.sealed;
  const MappedFile& mapped = *file.rank.file;
  if (tables.journal.empty()) mapped.release(mapped.data() + sealed.data_end, sealed.file_bytes - sealed.data_end);
  return file;
}

Trace make_trace(const fs::path& directory, std::vector<RankFile> files) {
  if (files.empty()) throw std::logic_error("a trace of no files");
  std::size_t first = 0;  // the others are held to known axes
  for (std::size_t i = 1; i < files.size(); ++i) {
    check_same_run(files[first], files[i]);
    if (files[first].run.mesh == Mesh{}) first = i;
  }
  std::stable_sort(files.begin(), files.end(),
                   [](const RankFile& a, const RankFile& b) { return a.rank.rank < b.rank.rank; });
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
  std::vector<RankTrace*> ranks;
  for (RankFile& file : files) trace.ranks.push_back(std::move(file.rank));
  for (RankTrace& rank : trace.ranks) ranks.push_back(&rank);
  mark_those_that_lack(ranks);
  trace.left_out = leave_out_uncommon(ranks);
  trace.failure = failure_of(trace);
  return trace;
}

RankTables check_rank_file(const fs::path& path, const std::shared_ptr<const MappedFile>& file, SharedByFiles& shared) {
  RankTables tables;
  tables.file = read_with_tables(path, file, tables, shared).rank.file;
  return tables;
}

std::string pack_rank_files(const std::vector<RankTables>& files) {
  Packer packer;
  std::optional<std::size_t> whole;  // the last one that was packed whole
  for (std::size_t i = 0; i < files.size(); ++i) {
    const SealedTables& sealed = files[i].sealed;
    packer(version_of(*files[i].file), files[i].journal);
    if (!files[i].journal.empty()) continue;
    const bool is_whole = !whole || !differ_in_checksums_only(sealed, files[*whole].sealed);
    if (is_whole) whole = i;
    packer(*whole);
    if (is_whole) {
      packer(sealed.index, sealed.text, sealed.shapes, sealed.data_end);
    } else {
      packer(checksums_in(sealed.index));
    }
    packer(sealed.run, sealed.complete, sealed.taken_back, sealed.file_bytes);
  }
  return packer.take();
}

std::vector<PackedFile> unpack_rank_files(std::string_view packed) {
  std::vector<PackedFile> files;
  for (Unpacker unpacker(packed); !unpacker.at_end();) {
    PackedFile& file = files.emplace_back();
    unpacker(file.version);
    file.tables.journal = unpacker.next_view();
    if (!file.tables.journal.empty()) continue;
    SealedTables& sealed = file.tables.sealed;
    const auto whole = unpacker.next<std::size_t>();
    if (whole == files.size() - 1) {
      for (std::string_view* table : {&sealed.index, &sealed.text, &sealed.shapes}) *table = unpacker.next_view();
      unpacker(sealed.data_end);
    } else {
      sealed = files.at(whole).tables.sealed;
      file.index = with_checksums(sealed.index, unpacker.next<std::vector<std::uint64_t>>());
    }
    sealed.run = unpacker.next_view();
    unpacker(sealed.complete, sealed.taken_back, sealed.file_bytes);
  }
  return files;
}

RankFile decode_packed_file(const fs::path& path, const PackedFile& packed, SharedByFiles& shared) {
  std::shared_ptr<const MappedFile> file = map_file(path);
  require_version(*file, packed.version);
  RankTables tables = packed.tables;
  if (!packed.index.empty()) tables.sealed.index = packed.index;
  return decode_rank(path, std::move(file), tables, /*is_checked=*/true, shared);
}

FileThreads::FileThreads(int threads) : shared_(static_cast<std::size_t>(thread_count(threads))) {}

void FileThreads::for_each(std::size_t count, const std::function<void(std::size_t, SharedByFiles&)>& body) {
  parallel_for(count, static_cast<int>(shared_.size()), [&](std::size_t i) { body(i, shared_[thread_number()]); });
}

}  // namespace ttrace
