#include "ttrace/record/trace_writer.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>

#include "format/format.h"
#include "format/journal.h"
#include "format/mapping_text.h"
#include "format/run_attributes.h"
#include "record/gather.h"
#include "record/hdf5.h"
#include "record/hdf5_image.h"
#include "record/index_builder.h"
#include "record/raw_file.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw RecordError(RecordStatus::kInvalid, message); }

// Returns the tensor's size in bytes. Throws kInvalid for a tensor that can't be recorded.
std::uint64_t checked_bytes(const TensorId& id, std::string_view module_class, const TensorView& tensor) {
  if (const auto objection = objection_to_name(id.name); !objection.empty()) {
    refuse(fmt::format("the tensor's name {}", objection));
  }
  if (module_class.size() > kMaxNameBytes || !is_utf8(module_class)) {
    refuse(fmt::format("{}: the module class is not UTF-8 of at most 4096 bytes", to_string(id)));
  }
  if (id.iteration < 0 || id.chunk < 0 || id.microbatch < kNoMicrobatch) {
    refuse(fmt::format("{}: iteration, micro-batch and chunk must not be negative", to_string(id)));
  }
  if (tensor.shape.size() > kMaxDims) {
    refuse(fmt::format("{}: {} dimensions; at most {} fit", to_string(id), tensor.shape.size(), kMaxDims));
  }
  // A dimension of 0 would hide an overflow of the others, so it counts as 1 here.
  std::int64_t bytes = size_of(tensor.dtype);
  for (const std::int64_t size : tensor.shape) {
    if (size < 0) refuse(fmt::format("{}: a dimension is {}", to_string(id), size));
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) {
      refuse(fmt::format("{}: the shape's product is too large", to_string(id)));
    }
  }
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  if (tensor.data == nullptr) refuse(fmt::format("{}: no data", to_string(id)));
  return static_cast<std::uint64_t>(bytes);
}

void check_mapping(const TensorId& id, std::string_view mapping, const Shape& shape) {
  if (mapping.empty()) return;
  try {
    if (const std::string objection = objection_to_mapping(parse_mapping(mapping), shape); !objection.empty()) {
      throw InputError(objection);
    }
  } catch (const InputError& error) {
    refuse(fmt::format("{}: {}", to_string(id), error.what()));
  }
}

void make_directory(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error) return;
  throw RecordError(error.value() == ENOSPC ? RecordStatus::kFull : RecordStatus::kIo,
                    fmt::format("{}: can't be created: {}", directory.string(), error.message()));
}

// Owns the state of a checksum.
struct HashState {
  XXH3_state_t* state = XXH3_createState();
  HashState() {
    if (state == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(state);
  }
  ~HashState() { XXH3_freeState(state); }
  HashState(const HashState&) = delete;
  HashState& operator=(const HashState&) = delete;
};

}  // namespace

struct TraceWriter::State {
  RunDescription run;
  RunAttributes attributes;
  const pid_t process = ::getpid();
  std::mutex mutex;
  // The journal is made first: with a trace file alone a reader could not tell an early crash from garbage.
  std::optional<RawFile> journal, file;
  std::uint64_t journal_end = 0;
  std::uint64_t data_end = kHeaderBytes;
  IndexBuilder index;
  std::optional<RecordError> failure;  // what ended the recording

  void open(const std::filesystem::path& directory);
  std::unique_lock<std::mutex> enter();
  void append_to_journal(const std::string& record);
  std::uint64_t append_data(std::uint64_t offset, const TensorView& tensor);
  void append(Entry entry, const TensorView& tensor, std::string_view mapping);
  void finish(bool complete);
  void redescribe(RunDescription changed);
};

void TraceWriter::State::open(const std::filesystem::path& directory) {
  make_directory(directory);
  journal.emplace(directory / journal_file_name(run.rank));
  try {
    append_to_journal(journal_record(attributes));
    file.emplace(directory / rank_file_name(run.rank));
    // The header's space is taken now: a hole would need it later, when the disk may be full.
    file->write_at(0, std::string(kHeaderBytes, '\0'));
  } catch (const RecordError&) {
    std::error_code ignored;
    if (file) std::filesystem::remove(file->path(), ignored);
    std::filesystem::remove(journal->path(), ignored);
    throw;
  }
}

// Takes the lock. The pid is compared before, because another thread of the parent may have held the lock at the fork,
// and in the child nobody would release it.
std::unique_lock<std::mutex> TraceWriter::State::enter() {
  if (::getpid() != process) {
    throw RecordError(RecordStatus::kForked,
                      fmt::format("rank {} is recorded by process {}, of which this one is a fork", run.rank, process));
  }
  return std::unique_lock(mutex);
}

void TraceWriter::State::append_to_journal(const std::string& record) {
  try {
    journal->write_at(journal_end, record);
  } catch (const RecordError&) {
    journal->truncate(journal_end);
    throw;
  }
  journal_end += record.size();
}

// Writes the tensor's bytes at `offset` and returns their checksum.
std::uint64_t TraceWriter::State::append_data(std::uint64_t offset, const TensorView& tensor) {
  constexpr std::size_t kPartBytes =
      1 << 18;  // small enough to be in the cache still when it is written, after hashing
  HashState hash;
  for_each_block(tensor, [&](std::string_view block) {
    for (; !block.empty(); block.remove_prefix(std::min(kPartBytes, block.size()))) {
      const std::string_view part = block.substr(0, kPartBytes);
      XXH3_64bits_update(hash.state, part.data(), part.size());
      file->write_at(offset, part);
      offset += part.size();
    }
  });
  return XXH3_64bits_digest(hash.state);
}

// Writes the bytes, then the journal, then the index, so that what the journal names is always in the file.
void TraceWriter::State::append(Entry entry, const TensorView& tensor, std::string_view mapping) {
  try {
    entry.checksum = append_data(entry.offset, tensor);
    append_to_journal(journal_record(entry, mapping));
    index.add(entry, mapping);
    data_end = entry.offset + entry.bytes;
  } catch (const RecordError& error) {
    file->truncate(data_end);
    failure = error;
    throw;
  } catch (const std::bad_alloc&) {
    failure = RecordError(RecordStatus::kIo, "out of memory");
    throw *failure;
  }
}

// Writes the header last: until then the file is not a valid HDF5 file, and a reader takes the index from the journal.
void TraceWriter::State::finish(bool complete) {
  try {
    const Hdf5Image image = build_image(attributes, index.index(), data_end, complete);
    file->write_at(image.metadata_offset, image.metadata);
    file->write_at(0, image.header);
    file->close();
  } catch (const RecordError&) {
    file->truncate(data_end);
    throw;
  } catch (const Hdf5Error& error) {
    throw RecordError(RecordStatus::kIo, fmt::format("{}: {}", file->path().string(), error.what()));
  }
  if (!complete) return;
  std::error_code error;
  std::filesystem::remove(journal->path(), error);
  if (error) throw RecordError(RecordStatus::kIo, fmt::format("{}: {}", journal->path().string(), error.message()));
}

// Writes the description anew, which readers of the journal take from its last record.
void TraceWriter::State::redescribe(RunDescription changed) {
  if (const std::string objection = objection_to_run(changed); !objection.empty()) refuse(objection);
  const RunAttributes described = attributes_of(changed);
  append_to_journal(journal_record(described));
  attributes = described;
  run = std::move(changed);
}

TraceWriter::TraceWriter(const std::filesystem::path& directory, RunDescription run)
    : state_(std::make_unique<State>()) {
  if (const std::string objection = objection_to_run(run); !objection.empty()) refuse(objection);
  state_->attributes = attributes_of(run);
  state_->run = std::move(run);
  state_->open(directory);
}

TraceWriter::~TraceWriter() = default;

const RunDescription& TraceWriter::run() const { return state_->run; }

void TraceWriter::describe(std::string_view compute_dtype, std::string_view provenance) {
  const auto lock = state_->enter();
  if (state_->failure) throw *state_->failure;
  RunDescription run = state_->run;
  if (!compute_dtype.empty()) run.compute_dtype = compute_dtype;
  if (!provenance.empty()) run.provenance = provenance;
  state_->redescribe(std::move(run));
}

void TraceWriter::describe_mesh(Mesh mesh, Coordinates coordinates) {
  const auto lock = state_->enter();
  if (state_->failure) throw *state_->failure;
  RunDescription run = state_->run;
  if (run.mesh != Mesh{}) refuse(fmt::format("the axes are {} already; expected them once", to_string(run.mesh)));
  run.mesh = std::move(mesh);
  run.coordinates = std::move(coordinates);
  state_->redescribe(std::move(run));
}

void TraceWriter::record(const TensorId& id, std::string_view module_class, const TensorView& tensor,
                         std::string_view mapping) {
  const auto lock = state_->enter();
  if (state_->failure) throw *state_->failure;
  const std::uint64_t bytes = checked_bytes(id, module_class, tensor);
  if (state_->index.contains(id)) refuse(fmt::format("{}: was recorded before", to_string(id)));
  Entry entry;
  entry.id = id;
  entry.dtype = tensor.dtype;
  entry.shape.assign(tensor.shape.begin(), tensor.shape.end());
  check_mapping(id, mapping, entry.shape);
  entry.order = state_->index.index().rows.size();
  entry.offset = (state_->data_end + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
  entry.bytes = bytes;
  entry.module_class = module_class;
  state_->append(std::move(entry), tensor, mapping);
}

void TraceWriter::close(bool complete) {
  const auto lock = state_->enter();
  const std::optional<RecordError> earlier_failure = state_->failure;
  state_->failure = RecordError(RecordStatus::kInvalid, "the recorder is closed");
  try {
    state_->finish(complete && !earlier_failure);
  } catch (const RecordError&) {
    if (!earlier_failure) throw;  // the first failure is the one to report
  }
  if (earlier_failure) throw *earlier_failure;
}

}  // namespace ttrace
