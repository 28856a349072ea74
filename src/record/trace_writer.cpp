#include "record/trace_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "format/format.h"
#include "format/mapping_text.h"
#include "format/run_attributes.h"
#include "record/gather.h"
#include "record/hdf5.h"
#include "record/hdf5_image.h"
#include "record/index_builder.h"
#include "record/tensor_store.h"
#include "record/write_queue.h"
#include "sketch/cells.h"
#include "sketch/fingerprint.h"

namespace ttrace {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw RecordError(RecordStatus::kInvalid, message); }

// Throws kInvalid for a tensor that can't be recorded.
void check_identity(const TensorId& id, std::string_view module_class) {
  if (const auto objection = objection_to_name(id.name); !objection.empty()) {
    refuse(fmt::format("the tensor's name {}", objection));
  }
  if (module_class.size() > kMaxNameBytes || !is_utf8(module_class)) {
    refuse(fmt::format("{}: the module class is not UTF-8 of at most 4096 bytes", to_string(id)));
  }
  if (id.iteration < 0 || id.chunk < 0 || id.microbatch < kNoMicrobatch) {
    refuse(fmt::format("{}: iteration, micro-batch and chunk must not be negative", to_string(id)));
  }
}

// Returns the tensor's size in bytes. Throws kInvalid for one that can't be recorded; `what()` is its name in the text.
template <class Name>
std::uint64_t checked_bytes(const Name& what, Dtype dtype, std::span<const std::int64_t> shape) {
  if (shape.size() > kMaxDims) refuse(fmt::format("{}: {} dimensions; at most {} fit", what(), shape.size(), kMaxDims));
  // A dimension of 0 would hide an overflow of the others, so it counts as 1 here.
  std::int64_t bytes = size_of(dtype);
  for (const std::int64_t size : shape) {
    if (size < 0) refuse(fmt::format("{}: a dimension is {}", what(), size));
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) {
      refuse(fmt::format("{}: the shape's product is too large", what()));
    }
  }
  const bool is_empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  return is_empty ? 0 : static_cast<std::uint64_t>(bytes);
}

template <class Name>
void check_mapping(const Name& what, std::string_view mapping, const Shape& shape) {
  if (mapping.empty()) return;
  try {
    if (const std::string objection = objection_to_mapping(parse_mapping(mapping), shape); !objection.empty()) {
      throw InputError(objection);
    }
  } catch (const InputError& error) {
    refuse(fmt::format("{}: {}", what(), error.what()));
  }
}

// `mapping` was checked.
std::optional<Shape> edges_of_checked(Dtype dtype, const Shape& shape, std::string_view mapping) {
  const bool is_fragment = !mapping.empty() && parse_mapping(mapping).fragment.has_value();
  return is_fragment ? std::nullopt : cell_edges(dtype, shape);
}

void check_cells(const TensorId& id, const std::byte* cells, std::uint64_t bytes, Dtype dtype, const Shape& edges) {
  for (std::uint64_t at = 0; at < bytes; at += bytes_of_cell(dtype)) {
    if (is_possible(read_cell(cells + at, dtype), element_count(edges))) continue;
    refuse(fmt::format("{}: cell {} of its sketch is none: sums that are NaN, or a negative norm or count",
                       to_string(id), at / bytes_of_cell(dtype)));
  }
}

// Sketches the tensor, and sets what its entry says of that.
std::string sketch_of(const TensorView& tensor, const Shape& edges, Entry& entry) {
  try {
    std::string gathered;
    const auto* data = static_cast<const std::byte*>(tensor.data);
    if (!is_row_major(tensor)) {
      gathered.reserve(entry.bytes);
      for_each_block(tensor, [&](std::string_view block) { gathered += block; });
      data = reinterpret_cast<const std::byte*>(gathered.data());
    }
    entry.sketch = std::make_shared<const RecordedSketch>(RecordedSketch{edges, fingerprint(data, entry.bytes)});
    return sketch_of(data, entry.dtype, entry.shape, edges);
  } catch (const std::bad_alloc&) {
    refuse(fmt::format("{}: no memory to sketch it", to_string(entry.id)));
  }
}

}  // namespace

std::optional<Shape> edges_of_recorded(Dtype dtype, std::span<const std::int64_t> shape, std::string_view mapping) {
  const auto what = [] { return "a tensor"; };
  checked_bytes(what, dtype, shape);
  const Shape checked(shape.begin(), shape.end());
  check_mapping(what, mapping, checked);
  return edges_of_checked(dtype, checked, mapping);
}

struct TraceWriter::State {
  State(const std::filesystem::path& directory, RunDescription description, std::size_t queue_bytes);
  ~State();

  RunDescription run;
  RunAttributes attributes;
  const pid_t process = ::getpid();
  std::mutex mutex;
  TensorStore store;
  std::unique_ptr<WriteQueue> queue;  // null: tensors are written as they come
  IndexBuilder index;
  std::size_t placed = 0;              // rows of the index whose place is known: the first ones
  std::optional<RecordError> failure;  // what ended the recording

  std::unique_lock<std::mutex> enter();
  void wait_for_queue();
  Entry new_entry(const TensorId& id, std::string_view module_class, Dtype dtype, std::span<const std::int64_t> shape,
                  std::string_view mapping);
  void append_sketch(Entry entry, std::string_view sketch, std::string_view mapping);
  void append(Entry entry, const TensorView& tensor, std::string_view mapping);
  void finish(bool complete);
  void redescribe(RunDescription changed);
};

TraceWriter::State::State(const std::filesystem::path& directory, RunDescription description, std::size_t queue_bytes)
    : run(std::move(description)), attributes(attributes_of(run)), store(directory, attributes) {
  if (queue_bytes == 0) return;
  try {
    queue = std::make_unique<WriteQueue>(queue_bytes, store);
  } catch (const std::system_error&) {
    queue = nullptr;  // no thread is to be had
  } catch (const std::bad_alloc&) {
    queue = nullptr;
  }
}

TraceWriter::State::~State() {
  // In a fork the queue's thread is not there, and its mutex may be locked for ever.
  if (::getpid() == process) return;
  [[maybe_unused]] const WriteQueue* left = queue.release();
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

// Afterwards nothing but this thread uses the store.
void TraceWriter::State::wait_for_queue() {
  if (!queue) return;
  for (const WriteQueue::Place& place : queue->drain()) index.place(placed++, place.offset, place.checksum);
  queue->check();
}

void TraceWriter::State::append(Entry entry, const TensorView& tensor, std::string_view mapping) {
  try {
    index.add(entry, mapping);
    if (queue && queue->has_room_for(entry.bytes)) {
      queue->push(std::move(entry), tensor, mapping);
      return;
    }
    wait_for_queue();
    store.store(entry, tensor, mapping);
    store.flush();
    index.place(placed++, entry.offset, entry.checksum);
  } catch (const RecordError& error) {
    failure = error;
    throw;
  } catch (const std::bad_alloc&) {
    failure = RecordError(RecordStatus::kIo, "out of memory");
    throw *failure;
  }
}

// Throws kInvalid where it can't be recorded.
Entry TraceWriter::State::new_entry(const TensorId& id, std::string_view module_class, Dtype dtype,
                                    std::span<const std::int64_t> shape, std::string_view mapping) {
  check_identity(id, module_class);
  Entry entry;
  const auto what = [&] { return to_string(id); };
  entry.bytes = checked_bytes(what, dtype, shape);
  if (index.contains(id)) refuse(fmt::format("{}: was recorded before", to_string(id)));
  entry.id = id;
  entry.dtype = dtype;
  entry.shape = Shape(shape.begin(), shape.end());
  check_mapping(what, mapping, entry.shape);
  entry.order = index.index().rows.size();
  entry.module_class = std::string(module_class);
  return entry;
}

void TraceWriter::State::append_sketch(Entry entry, std::string_view sketch, std::string_view mapping) {
  entry.bytes = sketch.size();
  const auto bytes = static_cast<std::int64_t>(sketch.size());
  const void* const cells = sketch.begin();
  append(std::move(entry), {cells, Dtype::kUInt8, {&bytes, 1}, {}}, mapping);
}

// Throws the first failure of what was queued or is written now; the file is closed in either case.
void TraceWriter::State::finish(bool complete) {
  std::optional<RecordError> first;
  try {
    wait_for_queue();
  } catch (const RecordError& error) {
    first = error;
  } catch (const std::bad_alloc&) {
    first = RecordError(RecordStatus::kIo, "out of memory");
  }
  queue.reset();
  complete = complete && !first;
  index.drop_from(store.tensors());
  try {
    store.finish(build_image(attributes, index.index(), store.data_end(), complete));
    if (complete) store.remove_journal();
  } catch (const RecordError& error) {
    if (!first) first = error;
  } catch (const Hdf5Error& error) {
    if (!first) first = RecordError(RecordStatus::kIo, fmt::format("{}: {}", store.path().string(), error.what()));
  } catch (const std::bad_alloc&) {
    if (!first) first = RecordError(RecordStatus::kIo, "out of memory; the journal says what was recorded");
  }
  if (first) throw *first;
}

void TraceWriter::State::redescribe(RunDescription changed) {
  if (const std::string objection = objection_to_run(changed); !objection.empty()) refuse(objection);
  const RunAttributes described = attributes_of(changed);
  wait_for_queue();
  store.describe(described);
  attributes = described;
  run = std::move(changed);
}

TraceWriter::TraceWriter(const std::filesystem::path& directory, RunDescription run, std::size_t queue_bytes) {
  if (const std::string objection = objection_to_run(run); !objection.empty()) refuse(objection);
  state_ = std::make_unique<State>(directory, std::move(run), queue_bytes);
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
  Entry entry = state_->new_entry(id, module_class, tensor.dtype, tensor.shape, mapping);
  if (entry.bytes > 0 && tensor.data == nullptr) refuse(fmt::format("{}: no data", to_string(id)));
  const auto edges = tensor.as_sketch ? edges_of_checked(entry.dtype, entry.shape, mapping) : std::nullopt;
  if (!edges) return state_->append(std::move(entry), tensor, mapping);
  const std::string sketch = sketch_of(tensor, *edges, entry);
  state_->append_sketch(std::move(entry), sketch, mapping);
}

void TraceWriter::record_sketch(const TensorId& id, std::string_view module_class, const SketchView& sketch,
                                std::string_view mapping) {
  const auto lock = state_->enter();
  if (state_->failure) throw *state_->failure;
  Entry entry = state_->new_entry(id, module_class, sketch.dtype, sketch.shape, mapping);
  const auto edges = edges_of_checked(entry.dtype, entry.shape, mapping);
  if (!edges) refuse(fmt::format("{}: a sketch of a tensor that is recorded whole", to_string(id)));
  if (sketch.cells == nullptr) refuse(fmt::format("{}: no cells", to_string(id)));
  const auto cells = static_cast<std::uint64_t>(element_count(cell_grid(entry.shape, *edges)));
  const std::uint64_t bytes = cells * bytes_of_cell(entry.dtype);
  check_cells(id, static_cast<const std::byte*>(sketch.cells), bytes, entry.dtype, *edges);
  entry.sketch = std::make_shared<const RecordedSketch>(RecordedSketch{*edges, sketch.fingerprint});
  state_->append_sketch(std::move(entry), {static_cast<const char*>(sketch.cells), bytes}, mapping);
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
