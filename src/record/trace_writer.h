// Writes one rank's trace. The C API (ttrace/ttrace.h) is a thin layer over this.
//
// While the rank runs, record() appends the tensor's bytes to `rank-00000.h5` and then one record to
// `rank-00000.journal`, with plain writes: what record() has returned for outlives a SIGKILL, unless a queue was
// asked for. A tensor whose bytes are in the file already shares them. HDF5 comes
// in only at close(), which builds the file's metadata around the bytes that are already there. So
// nothing of HDF5 is alive while the training program runs, forks or crashes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/run_description.h"
#include "base/trace.h"

namespace ttrace {

// The values equal `ttrace_status` in ttrace.h.
enum class RecordStatus : std::uint8_t { kInvalid = 1, kIo = 2, kFull = 3, kForked = 4, kExists = 5 };

// Says in one line what went wrong while recording. It has a type of its own because it must never end the traced
// program.
class RecordError : public std::runtime_error {
 public:
  RecordError(RecordStatus status, const std::string& message) : std::runtime_error(message), status_(status) {}
  RecordStatus status() const { return status_; }

 private:
  RecordStatus status_;
};

// A tensor in the memory of the traced program.
struct TensorView {
  const void* data = nullptr;  // may be null when a dimension is 0
  Dtype dtype = Dtype::kFloat32;
  std::span<const std::int64_t> shape;
  std::span<const std::int64_t> strides;  // in elements, may be 0 or negative; empty: row-major
  bool as_sketch = false;                 // where the tensor is large enough for one (sketch/cells.h)
};

// The sketch of a tensor, as `sketch_of` makes it, with the fingerprint of its bytes (src/sketch/fingerprint.h). Edges are
// those that the writer would give it, `edges_of_recorded`.
struct SketchView {
  const void* cells = nullptr;
  Dtype dtype = Dtype::kFloat32;
  std::span<const std::int64_t> shape;
  std::uint64_t fingerprint = 0;
};

// The edges of the cells that a tensor which is to be recorded as a sketch gets; nothing where it is recorded whole: a
// part of a flattened tensor is no box of cells, and `cell_edges` says the rest. Throws RecordError with kInvalid for a
// tensor that record() refuses for its shape or its mapping.
std::optional<Shape> edges_of_recorded(Dtype dtype, std::span<const std::int64_t> shape, std::string_view mapping);

// All members throw RecordError, with kForked in a child of the process that opened the writer. Members
// may be called from several threads; calls are serialised.
class TraceWriter {
 public:
  // Makes `directory` if needed, and the rank's two files. kExists when one of them is there already. With
  // `queue_bytes`, record() copies tensors to a queue of so many bytes, and a thread of the writer's writes them: a
  // SIGKILL costs what is in it and what left it in the last 20 ms, and a failure is thrown by a later call. A
  // tensor larger than half of it is written at once. Where no thread is to be had, there is no queue.
  TraceWriter(const std::filesystem::path& directory, RunDescription run, std::size_t queue_bytes = 0);
  // Without a close() before, the files stay as after a crash: the journal says what is there.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Returns the description that the writer was made with, with what describe() and describe_mesh() have changed.
  const RunDescription& run() const;

  // Sets what became known after the writer was made; an empty view leaves the value as it is.
  void describe(std::string_view compute_dtype, std::string_view provenance);

  // Sets the mesh of a writer that was made without axes. kInvalid where it has some, and for a mesh that does not fit.
  void describe_mesh(Mesh mesh, Coordinates coordinates);

  // Appends one tensor. kInvalid (nothing is written) for an identity that was recorded before, a name
  // that is empty, too long, not UTF-8, "." or holds U+2215, more than kMaxDims dimensions, an
  // overflowing size, a `mapping` (text as in base/mapping.h; empty: none) that does not parse or does not
  // fit. kFull or kIo end the recording: every later call throws the same.
  void record(const TensorId& id, std::string_view module_class, const TensorView& tensor,
              std::string_view mapping = {});

  // The same of a tensor whose sketch was made elsewhere. kInvalid also where it would be recorded whole, and for what is
  // no sketch: sums that are NaN, a negative norm or count.
  void record_sketch(const TensorId& id, std::string_view module_class, const SketchView& sketch,
                     std::string_view mapping = {});

  // Writes the HDF5 metadata, with the completion mark when `complete` and no record() failed for lack
  // of space or I/O. The journal is removed after the mark is in the file, and otherwise stays. The
  // writer takes no more tensors, whatever the outcome.
  void close(bool complete);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ttrace
