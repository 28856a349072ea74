// The C API over TraceWriter: checks arguments, turns exceptions into a status and a line of text.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "capi/perturbation.h"
#include "files/annotation_file.h"
#include "load/trace_reader.h"
#include "numeric/generator.h"
#include "record/trace_writer.h"
#include "sketch/fingerprint.h"
#include "ttrace/ttrace.h"

struct ttrace_recorder {
  ttrace_recorder(const std::filesystem::path& directory, ttrace::RunDescription run, std::size_t queue_bytes,
                  ttrace::Annotations rules)
      : writer(directory, std::move(run), queue_bytes), annotations(std::move(rules)) {}

  ttrace::TraceWriter writer;
  const ttrace::Annotations annotations;
};

struct ttrace_source {
  explicit ttrace_source(ttrace::Trace whole) : trace(std::move(whole)) {
    for (const ttrace::Entry& entry : trace.ranks[0].entries) entries.emplace(entry.id, &entry);
  }

  ttrace::Trace trace;  // of one rank
  std::map<ttrace::TensorId, const ttrace::Entry*> entries;
};

namespace {

using ttrace::RecordError;
using ttrace::RecordStatus;

thread_local std::string last_error;

[[noreturn]] void refuse(const std::string& message) { throw RecordError(RecordStatus::kInvalid, message); }

ttrace_status set_last_error(ttrace_status status, const char* message) noexcept {
  try {
    last_error = message;
    std::replace(last_error.begin(), last_error.end(), '\n', ' ');
  } catch (...) {
    last_error.clear();
  }
  return status;
}

// Runs `call` and returns its status: no exception leaves the library.
template <typename Call>
ttrace_status guarded(Call call) noexcept {
  try {
    call();
    last_error.clear();
    return TTRACE_OK;
  } catch (const RecordError& error) {
    return set_last_error(static_cast<ttrace_status>(error.status()), error.what());
  } catch (const ttrace::InputError& error) {
    return set_last_error(TTRACE_INVALID, error.what());
  } catch (const std::bad_alloc&) {
    return set_last_error(TTRACE_IO, "out of memory");
  } catch (const std::exception& error) {
    return set_last_error(TTRACE_IO, error.what());
  } catch (...) {
    return set_last_error(TTRACE_IO, "unknown failure");
  }
}

// In an installation the presets lie beside the library; elsewhere annotations do without them.
std::filesystem::path preset_directory() {
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&ttrace_version), &library) == 0) return {};
  return std::filesystem::path(library.dli_fname).parent_path().parent_path() / "share/ttrace/annotations";
}

// Copies the caller's struct. A caller that was compiled against an earlier version passes a shorter one, of at least
// `least` bytes: the fields that it lacks are 0. A caller of a later version passes a longer one: the fields that this
// version does not know must be 0, because what they ask for would not happen.
template <typename Struct>
Struct checked_struct(const Struct* given, std::string_view what, std::size_t least = sizeof(Struct)) {
  if (given == nullptr) refuse(fmt::format("{} is NULL", what));
  if (given->struct_size < least) {
    refuse(fmt::format("{}: struct_size is {}; expected {}", what, given->struct_size, sizeof(Struct)));
  }
  const std::size_t known = std::min(given->struct_size, sizeof(Struct));
  const char* bytes = reinterpret_cast<const char*>(given);
  if (std::any_of(bytes + known, bytes + given->struct_size, [](char byte) { return byte != 0; })) {
    refuse(fmt::format("{}: sets a field that ttrace {} does not know", what, TTRACE_VERSION));
  }
  Struct copy{};
  std::memcpy(&copy, given, known);
  return copy;
}

const char* checked_text(const char* text, std::string_view what) {
  if (text == nullptr || *text == '\0') refuse(fmt::format("{} is empty", what));
  return text;
}

std::string text_or(const char* text, const char* otherwise) { return text == nullptr ? otherwise : text; }

// Parses "tp=1,dp=0".
ttrace::Coordinates parse_coordinates(std::string_view text) {
  ttrace::Coordinates coordinates;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equals = std::min(item.find('='), item.size());
    std::int64_t value = 0;
    const char* first = item.data() + std::min(equals + 1, item.size());
    const auto [end, error] = std::from_chars(first, item.data() + item.size(), value);
    const bool is_number = error == std::errc() && end == item.data() + item.size();
    if (!is_number || !coordinates.emplace(item.substr(0, equals), value).second) {
      refuse(fmt::format("coordinates: '{}': expected each axis once, as in tp=1,dp=0", item));
    }
  }
  return coordinates;
}

// Returns the mesh of the axes, empty where there are none, and the rank's coordinates on it.
std::pair<ttrace::Mesh, ttrace::Coordinates> parse_place(const char* axes, const char* coordinates, std::int32_t rank,
                                                         std::int32_t world_size) {
  const bool stated = coordinates != nullptr && *coordinates != '\0';
  if (axes == nullptr || *axes == '\0') {
    if (stated) refuse("coordinates without axes; expected both");
    return {};
  }
  ttrace::Mesh mesh = ttrace::parse_mesh(axes, world_size, "axes");
  ttrace::Coordinates place = stated ? parse_coordinates(coordinates) : ttrace::coordinates_of(mesh, rank);
  return {std::move(mesh), std::move(place)};
}

ttrace::RunDescription parse_run(const ttrace_run& given) {
  ttrace::RunDescription run;
  run.run_id = checked_text(given.run_id, "run_id");
  run.rank = given.rank;
  run.world_size = given.world_size;
  std::tie(run.mesh, run.coordinates) = parse_place(given.axes, given.coordinates, given.rank, given.world_size);
  run.compute_dtype = text_or(given.compute_dtype, "");
  run.provenance = text_or(given.provenance, "{}");
  return run;
}

ttrace::TensorId parse_identity(const ttrace_identity& given) {
  if (given.pass != TTRACE_FORWARD && given.pass != TTRACE_RECOMPUTE) {
    refuse(fmt::format("pass is {}; expected TTRACE_FORWARD or TTRACE_RECOMPUTE", static_cast<int>(given.pass)));
  }
  if (given.kind < TTRACE_INPUT || given.kind > TTRACE_BUFFER_AFTER) {
    refuse(fmt::format("kind is {}; expected {} to {}", static_cast<int>(given.kind), static_cast<int>(TTRACE_INPUT),
                       static_cast<int>(TTRACE_BUFFER_AFTER)));
  }
  return {given.iteration,
          given.microbatch,
          given.chunk,
          static_cast<ttrace::Pass>(given.pass),
          static_cast<ttrace::Kind>(given.kind),
          checked_text(given.name, "name")};
}

std::span<const std::int64_t> checked_dims(const std::int64_t* dims, std::int32_t ndim, std::string_view what) {
  if (ndim < 0 || ndim > static_cast<std::int32_t>(ttrace::kMaxDims)) {
    refuse(fmt::format("ndim is {}; expected 0 to {}", ndim, ttrace::kMaxDims));
  }
  if (dims == nullptr && ndim > 0) refuse(fmt::format("{} is NULL", what));
  return {dims, static_cast<std::size_t>(ndim)};
}

ttrace::TensorView parse_tensor(const ttrace_tensor& given) {
  if (given.dtype < TTRACE_FLOAT64 || given.dtype > TTRACE_BOOL) {
    refuse(fmt::format("dtype is {}; expected {} to {}", static_cast<int>(given.dtype),
                       static_cast<int>(TTRACE_FLOAT64), static_cast<int>(TTRACE_BOOL)));
  }
  ttrace::TensorView view;
  view.data = given.data;
  view.dtype = static_cast<ttrace::Dtype>(given.dtype);
  view.shape = checked_dims(given.shape, given.ndim, "shape");
  if (given.strides != nullptr) view.strides = checked_dims(given.strides, given.ndim, "strides");
  if (given.sketch < TTRACE_WHOLE || given.sketch > TTRACE_SKETCHED) {
    refuse(fmt::format("sketch is {}; expected TTRACE_WHOLE, TTRACE_SKETCH or TTRACE_SKETCHED", given.sketch));
  }
  view.as_sketch = given.sketch == TTRACE_SKETCH;
  return view;
}

ttrace_recorder& checked_recorder(ttrace_recorder* recorder) {
  if (recorder == nullptr) refuse("recorder is NULL");
  return *recorder;
}

// Refuses a shape that no tensor in memory has.
void check_shape(std::span<const std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, std::max<std::int64_t>(size, 1), &elements)) {
      refuse(fmt::format("local_shape: {} is no size of a dimension", size));
    }
  }
}

}  // namespace

const char* ttrace_version(void) { return TTRACE_VERSION; }

const char* ttrace_last_error(void) { return last_error.c_str(); }

ttrace_status ttrace_open(const ttrace_run* run, ttrace_recorder** out) {
  return guarded([&] {
    if (out == nullptr) refuse("out is NULL");
    *out = nullptr;
    const ttrace_run given = checked_struct(run, "run", offsetof(ttrace_run, queue_bytes));
    const char* directory = checked_text(given.directory, "directory");
    ttrace::Annotations annotations;
    if (given.annotations != nullptr && *given.annotations != '\0') {
      annotations = ttrace::read_annotations_of_job(given.annotations, preset_directory());
    }
    *out = new ttrace_recorder(directory, parse_run(given), given.queue_bytes, std::move(annotations));
  });
}

ttrace_status ttrace_describe(ttrace_recorder* recorder, const char* compute_dtype, const char* provenance) {
  return guarded(
      [&] { checked_recorder(recorder).writer.describe(text_or(compute_dtype, ""), text_or(provenance, "")); });
}

ttrace_status ttrace_describe_axes(ttrace_recorder* recorder, const char* axes, const char* coordinates) {
  return guarded([&] {
    ttrace::TraceWriter& writer = checked_recorder(recorder).writer;
    const ttrace::RunDescription& run = writer.run();
    auto [mesh, place] = parse_place(checked_text(axes, "axes"), coordinates, run.rank, run.world_size);
    writer.describe_mesh(std::move(mesh), std::move(place));
  });
}

ttrace_status ttrace_record(ttrace_recorder* recorder, const ttrace_identity* identity, const ttrace_tensor* tensor) {
  return guarded([&] {
    const ttrace_identity id = checked_struct(identity, "identity");
    const ttrace_tensor given = checked_struct(tensor, "tensor", offsetof(ttrace_tensor, mapping));
    ttrace::TraceWriter& writer = checked_recorder(recorder).writer;
    const ttrace::TensorView view = parse_tensor(given);
    const std::string module_class = text_or(id.module_class, ""), mapping = text_or(given.mapping, "");
    if (given.sketch != TTRACE_SKETCHED) return writer.record(parse_identity(id), module_class, view, mapping);
    if (given.strides != nullptr) refuse("strides of a sketch; expected NULL");
    writer.record_sketch(parse_identity(id), module_class, {view.data, view.dtype, view.shape, given.fingerprint},
                         mapping);
  });
}

ttrace_status ttrace_cell_edges(const ttrace_tensor* tensor, int64_t* edges) {
  return guarded([&] {
    if (edges == nullptr) refuse("edges is NULL");
    const ttrace_tensor given = checked_struct(tensor, "tensor", offsetof(ttrace_tensor, mapping));
    const ttrace::TensorView view = parse_tensor(given);
    const auto found = ttrace::edges_of_recorded(view.dtype, view.shape, text_or(given.mapping, ""));
    std::fill_n(edges, view.shape.size(), 0);
    if (found) std::copy(found->begin(), found->end(), edges);
  });
}

uint64_t ttrace_fingerprint(const void* data, size_t bytes) {
  return ttrace::fingerprint(static_cast<const std::byte*>(data), bytes);
}

ttrace_status ttrace_close(ttrace_recorder* recorder, int complete) {
  if (recorder == nullptr) return TTRACE_OK;
  const ttrace_status status = guarded([&] { recorder->writer.close(complete != 0); });
  delete recorder;
  // A forked child may close its copy of the parent's recorder: that only frees memory, and is no error.
  return status == TTRACE_FORKED ? TTRACE_OK : status;
}

ttrace_status ttrace_perturbation(ttrace_recorder* recorder, uint64_t seed, const ttrace_identity* identity,
                                  int32_t ndim, const int64_t* local_shape, float* out) {
  return guarded([&] {
    const ttrace_recorder& self = checked_recorder(recorder);
    const auto shape = checked_dims(local_shape, ndim, "local_shape");
    check_shape(shape);
    if (out == nullptr && std::find(shape.begin(), shape.end(), 0) == shape.end()) refuse("out is NULL");
    ttrace::fill_perturbation(self.annotations, self.writer.run(), seed,
                              parse_identity(checked_struct(identity, "identity")), {shape.begin(), shape.end()}, out);
  });
}

ttrace_status ttrace_open_source(const char* directory, int32_t rank, int32_t world_size, ttrace_source** out) {
  return guarded([&] {
    if (out == nullptr) refuse("out is NULL");
    *out = nullptr;
    ttrace::Trace trace = ttrace::read_rank(checked_text(directory, "directory"), rank);
    const std::string path = trace.ranks[0].path.string();
    if (trace.world_size != world_size) {
      refuse(fmt::format("{}: a trace of {} ranks; expected {}, as this run has", path, trace.world_size, world_size));
    }
    if (!trace.ranks[0].complete) refuse(fmt::format("{}: is not whole; expected a finished trace", path));
    *out = new ttrace_source(std::move(trace));
  });
}

ttrace_status ttrace_find(const ttrace_source* source, const ttrace_identity* identity, ttrace_tensor* tensor) {
  return guarded([&] {
    if (source == nullptr) refuse("source is NULL");
    // The struct of every version has what is filled in.
    if (tensor == nullptr || tensor->struct_size < offsetof(ttrace_tensor, sketch)) {
      refuse(fmt::format("tensor is NULL or of another struct_size; expected {}", sizeof *tensor));
    }
    const auto found = source->entries.find(parse_identity(checked_struct(identity, "identity")));
    tensor->data = nullptr;
    tensor->dtype = ttrace_dtype{};
    tensor->ndim = 0;
    tensor->shape = tensor->strides = nullptr;
    tensor->mapping = nullptr;
    if (found == source->entries.end()) return;
    const ttrace::Entry& entry = *found->second;
    tensor->data = source->trace.ranks[0].bytes_of(entry);
    tensor->dtype = static_cast<ttrace_dtype>(entry.dtype);
    tensor->ndim = static_cast<int32_t>(entry.shape.size());
    tensor->shape = entry.shape.data();
  });
}

void ttrace_close_source(ttrace_source* source) { delete source; }
