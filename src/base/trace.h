// The trace: what a training job leaves behind, and what the checker reads.
//
// A trace is a directory with one HDF5 file per rank, `rank-00000.h5`, `rank-00001.h5`, ... Each rank
// writes its own file and talks to nobody. Format version 1:
//
//   /                        attributes (scalars; strings are variable-length UTF-8):
//     ttrace_version   int32     1
//     run_id           string    one per `ttrace collect`; files of two runs do not mix
//     world_size, rank int32
//     axes             string    JSON list, fastest first: [["tp",2],["dp",2]]; []: one rank, or not known
//     views            string    JSON list, further factorings of the same ranks, each as axes; absent: none
//     aliases          string    JSON object, axis names that share another's coordinate: {"sp":"tp"}
//     coordinates      string    JSON object, on the axes of all factorings: {"tp":1,"dp":0}
//     compute_dtype    string    a dtype name ("bfloat16"), or "" when not known
//     provenance       string    JSON object: command, versions, device, git commit, time, perturb seed, ...;
//                                "not_seen" lists what could not be recorded (`NotSeen` below)
//     complete         uint8     1; absent or 0 in the file of a rank whose recording did not end well, or whose job
//                                failed afterwards: then the seal says so, and `job.failure` beside the files how
//   /tensors/<iteration>/<microbatch or "-">/<pass>/<kind>/<chunk>/<name>
//                            one contiguous dataset per tensor, 64-byte aligned in the file; for people
//                            and other tools: h5py and h5dump read it, bf16 and fp8 included (custom float
//                            types with exactly the bits of HDF5 2.0's predefined ones; HDF5 takes every
//                            float for IEEE's kind, so that it shows e4m3fn's 256 to 448 as Inf and NaN).
//                            A '/' in a name is stored as U+2215 in the link, and as it is in the index.
//   /ttrace/run              uint8[]: the attributes but `complete`, as one JSON object
//   /ttrace/index            compound[n]: iteration i32, microbatch i32, chunk i32, pass u8, kind u8,
//                            dtype u8, ndim u8, order u64, offset u64, bytes u64, checksum u64,
//                            name u64, module u64, mapping u64, shape u64, name_length u32,
//                            module_length u32, mapping_length u32 (name, module, mapping and shape are
//                            positions in the two tables below; a mapping of length 0 is none)
//   /ttrace/text             uint8[]: names, module class names and recorded mappings (JSON objects of the
//                            grammar in base/mapping.h), UTF-8, not terminated
//   /ttrace/shapes           int64[]: the shapes, one after the other
//
// The file is laid out in three parts: 4096 bytes of header (HDF5's superblock and, at byte 64, the seal:
// `Seal` in src/format/format.h), the tensors, and all of HDF5's metadata with the tables of /ttrace. The
// seal holds the completion mark, a checksum of header and metadata, and where the tables lie. The header
// is written last: until then HDF5 cannot open the file, and the journal says what is in it.
//
// `offset` is a byte offset in the file: a reader maps the file and needs one look at the index, not an
// open per tensor. Elements are little-endian, row-major. `checksum` is XXH3-64 of the tensor's bytes. Tensors
// with the same bytes may share them (same offset, size and checksum): a module's output is the next one's input.
// Otherwise no two overlap. All tensors together have at most 64 times the bytes of header and tensors.
//
// A tensor that was recorded as a sketch (`ttrace collect --sketch`; the method is in sketch/cells.h) has 128
// added to its dtype in the index, and in /ttrace/shapes the sizes of a cell and a checksum of the tensor's own bytes
// (as int64) follow its shape: with 64 added to the dtype as well the fingerprint of src/sketch/fingerprint.h, else
// XXH3-64 (which no trace is written with any more). `bytes`, `offset` and `checksum` are the sketch's: one record a
// cell, row-major in the grid of cells. Its dataset has the grid's shape and a compound type: sums[16], square, largest, nonfinite, exponent
// (f32[16], f64, f32, u16, i16 of fp16 and bf16; f64[16], f64, f64, u32, i32 of fp32 and fp64); the sums are times
// 2^exponent. 128 stands for the table of signs that cells.h calls version 1; a reader that does not know it finds a
// dtype that is out of range.
//
// While a rank runs, its index grows in `rank-00000.journal` beside the file (one record per tensor,
// appended once the tensor's bytes are in the file; grammar in src/format/journal.h), and nothing else is
// written of the metadata. When the file is complete the journal is removed. After a crash the journal
// says where the recorded tensors lie.
//
// Nothing in a trace is believed before it is checked against the file: see src/load/.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/configuration.h"
#include "base/error.h"
#include "base/mapping.h"
#include "base/mesh.h"
#include "base/module_source.h"
#include "base/provenance.h"
#include "base/shared_value.h"
#include "base/words.h"
#include "numeric/dtype.h"
#include "numeric/shape.h"

namespace ttrace {

inline constexpr std::int32_t kTraceVersion = 1;
inline constexpr std::size_t kMaxDims = 8;
inline constexpr std::int32_t kNoMicrobatch = -1;

// Says what was recorded. The values are stored in files and equal `ttrace_kind` in ttrace.h.
enum class Kind : std::uint8_t {
  kInput = 1,       // a tensor that a module was given
  kOutput = 2,      // a tensor that a module returned
  kGradOutput = 3,  // gradient of the loss with respect to a module's output
  kGradInput = 4,   // ... with respect to a module's input
  kParam = 5,       // before the iteration
  kParamGrad = 6,   // what one micro-batch's backward adds to the parameter's gradient
  kMainGrad = 7,    // the gradient the optimizer uses: accumulated, reduced, not yet clipped
  kParamDelta = 8,  // what the optimizer's steps of the iteration added, to the fp32 master where there is one
  kParamAfter = 9,  // the parameter as the next iteration sees it
  kScalar = 10,     // loss, grad_norm, token counts: the name says which
  // An optimizer holds these of a parameter before the first step of an iteration; the step cannot be checked without
  // them (`OptimizerStep`). Recorded where they do not follow from the iteration before: that one was not recorded,
  // it had several steps, or the optimizer keeps its moments in less than fp32. None is the parameter's first step.
  kMaster = 11,          // the value that the optimizer updates, where it is not the parameter itself
  kExpAvg = 12,          // PyTorch's names: Adam's first moment
  kExpAvgSq = 13,        // ... its second moment
  kMaxExpAvgSq = 14,     // ... the largest of them so far (amsgrad)
  kMomentumBuffer = 15,  // of SGD with momentum
  // The gradient that the optimizer was given, where it is not main_grad times one number.
  kStepGrad = 16,
  // What modules keep beside their parameters, persistent or not: running statistics, codebooks, masks. Of modules that
  // no optimizer trains and the iteration has changed (a teacher, a moving average of the weights), parameters count as
  // buffers; these have a value after it alone.
  kBuffer = 17,       // before the iteration
  kBufferAfter = 18,  // as the next iteration sees it
};
inline constexpr std::uint8_t kKindFirst = 1;
inline constexpr std::uint8_t kKindLast = 18;

// Activation checkpointing runs a module's forward a second time; both are recorded.
enum class Pass : std::uint8_t { kForward = 1, kRecompute = 2 };

std::string_view name_of(Kind kind);
std::string_view name_of(Pass pass);
Vocabulary<Kind> vocabulary_of(Kind);
Vocabulary<Pass> vocabulary_of(Pass);
std::optional<Kind> kind_from_name(std::string_view name);

bool is_parameter_kind(Kind kind);   // param, param_grad, main_grad, param_delta, param_after, and what follows scalar
bool is_optimizer_state(Kind kind);  // master to step_grad
bool is_buffer_kind(Kind kind);      // buffer, buffer_after

// Identity of a tensor. As recorded, `name` and `microbatch` are local to the rank (stage-local layer
// numbers, local micro-batches) and `chunk` tells virtual pipeline chunks apart; `align` turns that into
// the canonical identity, whose chunk is 0.
//
// `name` is the module path (for parameters, with the parameter's name): `decoder.layers.0.mlp.linear_fc1`.
// A member of a tuple or dict follows after a colon (`attn:1`, `attn:hidden`), a second call of the same
// module within one micro-batch after a '#' (`shared#1`), in that order: `shared:1#2` (base/tensor_name.h).
struct TensorId {
  std::int32_t iteration = 0;
  std::int32_t microbatch = kNoMicrobatch;
  std::int32_t chunk = 0;
  Pass pass = Pass::kForward;
  Kind kind = Kind::kOutput;
  SharedValue<std::string> name;

  friend auto operator<=>(const TensorId&, const TensorId&) = default;

  // The tensor of another kind beside this one: the update of a parameter, the output of a gradient's module.
  TensorId with_kind(Kind other) const;
};

// Makes text from files fit for a terminal or an XML file. Control characters, bytes that are no UTF-8 and code
// points that XML forbids, that turn the direction of writing or that take no room become `\xNN`, byte by byte.
std::string printable(std::string_view text);

// `decoder.layers.3.mlp output, iteration 0, micro-batch 1` with `, recompute` where it is one;
// printable.
std::string to_string(const TensorId& id);

// Holds what a tensor's entry says where its sketch was recorded in place of its elements.
struct RecordedSketch {
  Shape edges;                 // sizes of a cell, one a dimension
  std::uint64_t checksum = 0;  // of the tensor's own bytes: XXH3-64, or
  bool is_fingerprint = true;  // ... what a device can make as well (src/sketch/fingerprint.h)
};

// One recorded tensor. A large trace has millions of them: those of a rank share what is equal, shapes, classes and
// mappings. `offset` and `bytes` lie inside the file, `bytes` equals
// element_count(shape) * size_of(dtype), or is the size of the sketch: load has checked it.
struct Entry {
  TensorId id;
  Dtype dtype = Dtype::kFloat32;
  SharedValue<Shape> shape;
  std::uint64_t order = 0;  // position in the rank's execution, strictly increasing
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
  SharedValue<std::string> module_class;  // "torch.nn.modules.linear.Linear"; empty for scalars
  // The placement that the program recorded with the tensor; null where it recorded none.
  std::shared_ptr<const RecordedMapping> mapping;
  std::shared_ptr<const RecordedSketch> sketch;  // then the file holds no elements; else null
};

// Elements were asked of a tensor that was recorded as a sketch. What may do without that tensor catches it.
class RecordedAsSketch : public InputError {
 public:
  explicit RecordedAsSketch(const Entry& entry);
};

// A read-only memory mapping of one rank's file.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual const std::byte* data() const = 0;
  virtual std::uint64_t size() const = 0;
  virtual std::string path() const { return ""; }  // for messages; empty where there is none
  // Drops the pages that hold [begin, begin + bytes) from this process's memory; the next access brings
  // them back from the file. A file that is not a real mapping keeps its memory.
  virtual void release(const std::byte* /*begin*/, std::uint64_t /*bytes*/) const {}
  // Copies [begin, begin + bytes) of the mapping from the file, which touches none of its pages. Returns false where
  // there is no file to read from. Throws InputError where the bytes are gone.
  virtual bool read(const std::byte* /*begin*/, std::uint64_t /*bytes*/, std::byte* /*into*/) const { return false; }
  // True where an access to bytes that are gone ends the program with a line that says so. Elsewhere it may be killed,
  // and what can be read is better read.
  virtual bool explains_losses() const { return false; }
};

// A rank's statement of what it could not record. Its provenance holds it as
//
//   "not_seen": [{"reason": "what runs inside 'mlp' is compiled by torch.compile", "kinds": ["input", "output"],
//                 "iterations": [0, 1], "chunk": 0, "tensors": ["embed:mask"], "modules": ["mlp.fc1", "mlp.fc2"]}]
//
// where `chunk`, `tensors` and `modules` may be absent, and `"by_design": true` says that nobody wanted it: the
// recorder was told to leave it out (`ttrace collect --only`). Names are those that the rank would have recorded. A
// tensor that is a container stands for what it holds: `embed:cache` for `embed:cache.0`. A module stands for the
// tensors of all its calls, and not for the modules inside. A trace that cannot name what it lacks says so of all that
// is not there:
//
//   "not_seen": [{"reason": "imported with --partial", "everything": true}]
struct NotSeen {
  std::string reason;
  std::set<Kind> kinds;
  std::set<std::int32_t> iterations;
  std::int32_t chunk = 0;
  std::vector<std::string> tensors, modules;
  bool by_design = false;
  bool everything = false;  // then it is by design, and all but the reason is empty
};

// The statements of one rank may name no more: a trace is not trusted.
inline constexpr std::size_t kMaxNamesNotSeen = 10'000;

// A rank's statement of one step that an optimizer took with some of its parameters. Its provenance holds it as
//
//   "optimizer_steps": {"parameters": [["decoder.norm.weight", "decoder.norm.bias"], ["embed.weight"]],
//                       "steps": [{"iteration": 0, "chunk": 0, "parameters": 0, "optimizer": "torch.optim.adam.Adam",
//                                  "step": 1, "calls": 1, "clip_factor": 0.96, "master": "float32",
//                                  "options": {"lr": 0.001, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8}}]}
//
// where `parameters` of a step is the place of its names in the list above, and `step`, `clip_factor`, `master`,
// `changed_after` (true) and `options_after` (as `options`) may be absent. Names are those that the rank records, or
// "(masters).0" and so on for the parameter groups of what the program keeps by hand in the place of its parameters. All
// is absent where the document would be too long.
struct OptimizerStep {
  std::int32_t iteration = 0;
  std::int32_t chunk = 0;
  std::string optimizer;  // the class with its module; empty: these parameters are in no optimizer
  // The options of the parameter group by PyTorch's names (lr, eps, weight_decay, momentum, dampening, and as 0 or 1
  // amsgrad, maximize, nesterov, decoupled_weight_decay, bias_correction), a pair `betas` as beta1 and beta2. Others
  // that are numbers or truth values are there as well.
  std::map<std::string, double> options;
  std::optional<double> step;  // the optimizer's own count: 1 after its first step
  std::int64_t calls = 1;      // of `step` in this iteration, with gradients for these parameters and not skipped
  std::optional<double> clip_factor;  // the gradient that the optimizer was given = this times main_grad
  std::string master;                 // dtype of the value that it updates; empty: it updates the parameter itself
  std::vector<std::string> parameters;
  bool changed_after = false;  // that value was changed after `step` had returned; param_delta has both
  // Options that are others where the program goes on, for the next step: what a schedule makes of them. None: it does
  // not say, or the program ended.
  std::optional<std::map<std::string, double>> options_after = {};
};

// A rank's statement of calls of models that no backward followed, before they trained: a dry run that asks for a shape, a
// look at a model before it is wrapped; or, at any time, inside a transform of torch.func. Its provenance holds it as
//
//   "rehearsals": {"chunks": [0], "microbatches": [[0, 1, 0]]}
//
// where a micro-batch is (iteration, chunk, its number). What the rank recorded of them is no part of its trace, and the
// others' numbers are as if it had not been recorded.
struct Rehearsals {
  std::set<std::int32_t> chunks;
  std::set<std::array<std::int32_t, 3>> microbatches;
};

// A rank's statement of parameters that want gradients, used or not, of all models that ran in what was recorded. It
// stands beside the steps as
//
//   "trained": [{"chunk": 0, "parameters": 0, "optimizer": "torch.optim.adam.Adam", "number": 0, "group": 1}]
//
// where `parameters` is the place of their names in the list there, `number` that of the optimizer among the program's,
// in the order in which they were made, and `group` that of its parameter group. `optimizer` is "" where none has them,
// and absent where nobody knows: then some optimizer has tensors of which it is not known what they are. May be absent.
struct TrainedGroup {
  std::int32_t chunk = 0;
  std::vector<std::string> parameters;
  std::optional<std::string> optimizer;
  std::int64_t number = 0, group = 0;
};

// A rank's statement of iterations that it recorded beyond those it was asked for: since the gradients of some parameters
// were zero so far, or light ones, of which it recorded only what carries over into the next (`is_light`). Its
// provenance holds it as
//
//   "further": {"asked": [0], "finished": [1, 2], "light": [2]}
//
// What it recorded of any other iteration is of one that the program did not finish, and no part of its trace. `light`
// may be absent.
struct FurtherIterations {
  std::set<std::int32_t> asked, finished, light = {};
};

// Whether tensors of this kind are recorded of light iterations (schedule.py).
constexpr bool is_light(Kind kind) {
  return kind == Kind::kScalar || kind == Kind::kMainGrad || kind == Kind::kParamDelta || kind == Kind::kParamAfter ||
         kind == Kind::kBufferAfter;
}

// A rank's statement of an optimizer that took no step in what was recorded, though it has parameters that want
// gradients, and others stepped: `"unstepped": [{"optimizer": "torch.optim.adam.Adam", "parameters": 6}]` beside the
// steps. May be absent.
struct UnsteppedOptimizer {
  std::string optimizer;
  std::int64_t parameters = 0;  // how many it has

  auto operator<=>(const UnsteppedOptimizer&) const = default;
};

// A rank's statement of what it keeps beside the models that optimizers update, changed or not: the titles that its
// `buffer_after` have in front, as `"kept": {"titles": ["EMA.shadow", "Teacher"]}`. Null where it says nothing.
using KeptModels = std::set<std::string>;

class RandomDraws;  // base/random_draws.h

// The contents of one rank's file.
struct RankTrace {
  std::filesystem::path path;
  std::int32_t rank = 0;
  Coordinates coordinates;  // on the axes of all factorings, without aliases
  bool complete = false;
  std::vector<Entry> entries;  // in order of `order`
  std::shared_ptr<const MappedFile> file;
  std::vector<NotSeen> not_seen;
  std::vector<OptimizerStep> optimizer_steps;
  std::vector<UnsteppedOptimizer> unstepped;
  std::shared_ptr<const ModuleSources> sources;  // null: it says nothing of them
  std::int64_t rehearsed = 0;                    // how many recorded tensors of rehearsals were left out
  bool job_failed = false;                       // after all was recorded: `complete` was taken back
  std::shared_ptr<const ModuleConfigurations> configurations = nullptr;  // null: it says nothing of them
  std::set<std::int32_t> further = {};                                   // iterations beyond those that were asked for
  std::set<std::int32_t> light = {};                                     // of these
  bool lacks_further = false;                          // an iteration of these that another rank has recorded
  std::vector<TrainedGroup> trained = {};              // empty: it says nothing of what the program trains
  std::shared_ptr<const RandomDraws> draws = nullptr;  // null: it says nothing of them
  std::optional<KeptModels> kept = std::nullopt;

  bool is_whole() const { return complete || job_failed; }
  const std::byte* bytes_of(const Entry& entry) const {  // its elements; throws RecordedAsSketch
    if (entry.sketch) throw RecordedAsSketch(entry);
    return stored_bytes_of(entry);
  }
  const std::byte* stored_bytes_of(const Entry& entry) const { return file->data() + entry.offset; }  // or its sketch
};

struct ProgramWords;  // base/annotation.h

struct Trace {
  std::filesystem::path directory;
  std::string run_id;
  std::int32_t world_size = 1;
  Mesh mesh;                                    // without axes where several ranks did not know how they are arranged
  std::string compute_dtype;                    // a dtype's name, or empty
  Provenance provenance;                        // of the lowest rank
  std::shared_ptr<const ProgramWords> program;  // null: the ranks say nothing of how they are parallel
  std::vector<RankTrace> ranks;                 // by rank; a missing rank is absent, a duplicate appears twice
  // How the job failed after ranks had recorded all that they were to: "the command exited with code 3 after all of
  // this was recorded". None: no rank says so.
  std::optional<std::string> failure = {};
  std::set<std::int32_t> left_out = {};  // further iterations that not all ranks recorded
};

// Throws InputError where a tensor of the trace was recorded as a sketch; `what` needs its elements.
void require_elements(const Trace& trace, std::string_view what);

}  // namespace ttrace
