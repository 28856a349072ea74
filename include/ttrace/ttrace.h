/* The C API for recorders: a C, C++, Rust or Python (ctypes) program records one rank's trace with it.
 *
 *   ttrace_run run = {sizeof run};
 *   run.directory = "trace"; run.run_id = "2f6c..."; run.rank = 0; run.world_size = 2;
 *   run.axes = "tp=2";
 *   ttrace_recorder* recorder;
 *   if (ttrace_open(&run, &recorder)) die(ttrace_last_error());
 *   ttrace_identity id = {sizeof id};
 *   id.microbatch = 0; id.pass = TTRACE_FORWARD; id.kind = TTRACE_OUTPUT; id.name = "decoder.final_norm";
 *   int64_t shape[2] = {16, 64};
 *   ttrace_tensor tensor = {sizeof tensor, data, TTRACE_FLOAT32, 2, shape, NULL, NULL};
 *   if (ttrace_record(recorder, &id, &tensor)) warn(ttrace_last_error());
 *   ttrace_close(recorder, 1);
 *
 * Every call that can fail returns a status, 0 for success; ttrace_last_error() then has one line of text.
 * A recorder may be used from several threads; calls are serialised. The library starts no thread, unless
 * `queue_bytes` asks for one, which takes no signals; it writes nothing to stdout or stderr, does not throw,
 * and a failure leaves the calling program unharmed: record fails, training goes on. A tensor whose bytes the
 * file has already is written again only once in 64 times. Memory in use is about 250 bytes a tensor, twice the text of each
 * different mapping, 1 MiB, `queue_bytes`, 4 MiB while a non-contiguous tensor is recorded, and while the recorder closes
 * another 1000 bytes a tensor.
 *
 * The names of files and the format: base/trace.h. */
#ifndef TTRACE_TTRACE_H
#define TTRACE_TTRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __GNUC__
#define TTRACE_API __attribute__((visibility("default")))
#else
#define TTRACE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ttrace_status {
  TTRACE_OK = 0,
  TTRACE_INVALID = 1, /* an argument is wrong; nothing was written */
  TTRACE_IO = 2,      /* the file system or HDF5 refused */
  TTRACE_FULL = 3,    /* no space left; the recorder takes no more tensors */
  TTRACE_FORKED = 4,  /* the recorder belongs to the parent of this process */
  TTRACE_EXISTS = 5   /* another process already records this rank of this run */
} ttrace_status;

typedef enum ttrace_dtype {
  TTRACE_FLOAT64 = 1,
  TTRACE_FLOAT32 = 2,
  TTRACE_FLOAT16 = 3,
  TTRACE_BFLOAT16 = 4,
  TTRACE_FLOAT8_E4M3FN = 5,
  TTRACE_FLOAT8_E5M2 = 6,
  TTRACE_INT8 = 7,
  TTRACE_INT16 = 8,
  TTRACE_INT32 = 9,
  TTRACE_INT64 = 10,
  TTRACE_UINT8 = 11,
  TTRACE_BOOL = 12
} ttrace_dtype;

typedef enum ttrace_kind {
  TTRACE_INPUT = 1,
  TTRACE_OUTPUT = 2,
  TTRACE_GRAD_OUTPUT = 3,
  TTRACE_GRAD_INPUT = 4,
  TTRACE_PARAM = 5,
  TTRACE_PARAM_GRAD = 6,
  TTRACE_MAIN_GRAD = 7,
  TTRACE_PARAM_DELTA = 8,
  TTRACE_PARAM_AFTER = 9,
  TTRACE_SCALAR = 10,
  TTRACE_MASTER = 11, /* what an optimizer holds of a parameter before its step: see Kind in base/trace.h */
  TTRACE_EXP_AVG = 12,
  TTRACE_EXP_AVG_SQ = 13,
  TTRACE_MAX_EXP_AVG_SQ = 14,
  TTRACE_MOMENTUM_BUFFER = 15,
  TTRACE_STEP_GRAD = 16,
  TTRACE_BUFFER = 17, /* what a module keeps beside its parameters, before the iteration */
  TTRACE_BUFFER_AFTER = 18
} ttrace_kind;

typedef enum ttrace_pass { TTRACE_FORWARD = 1, TTRACE_RECOMPUTE = 2 } ttrace_pass;

#define TTRACE_NO_MICROBATCH (-1)

typedef struct ttrace_recorder ttrace_recorder;

/* One rank of one run. Strings are UTF-8; NULL where optional. `struct_size` is sizeof the struct, so
 * that later versions can add fields: what a shorter struct lacks is 0. */
typedef struct ttrace_run {
  size_t struct_size;
  const char* directory; /* of the trace; made if missing */
  const char* run_id;    /* the same for all ranks of the run */
  int32_t rank, world_size;
  const char* axes;          /* "tp=2,dp=2,sp=tp", fastest first, as in --axes; NULL where not known (yet) */
  const char* coordinates;   /* "tp=1,dp=0" where they do not follow from the rank; optional */
  const char* compute_dtype; /* "bfloat16"; optional */
  const char* provenance;    /* a JSON object; optional */
  const char* annotations;   /* path of an annotation file, for ttrace_perturbation; optional */
  /* Not 0: ttrace_record copies a tensor to memory of so many bytes, and a thread writes it from there. */
  size_t queue_bytes;
} ttrace_run;

typedef struct ttrace_identity {
  size_t struct_size;
  int32_t iteration;
  int32_t microbatch; /* this rank's own count, or TTRACE_NO_MICROBATCH */
  int32_t chunk;      /* virtual pipeline chunk; 0 without */
  ttrace_pass pass;
  ttrace_kind kind;
  const char* name;         /* module path, as this rank knows it; see TensorId in base/trace.h */
  const char* module_class; /* optional */
} ttrace_identity;

typedef enum ttrace_sketch {
  TTRACE_WHOLE = 0,
  TTRACE_SKETCH = 1,  /* a sketch in place of the elements, where the tensor is large enough (sketch/cells.h) */
  TTRACE_SKETCHED = 2 /* `data` is the sketch, made elsewhere (on a device) in the cells of ttrace_cell_edges */
} ttrace_sketch;

typedef struct ttrace_tensor {
  size_t struct_size;
  const void* data; /* may be NULL when a dimension is 0 */
  ttrace_dtype dtype;
  int32_t ndim; /* 0 to 8 */
  const int64_t* shape;
  const int64_t* strides; /* in elements, may be 0 or negative; NULL: contiguous, row-major */
  /* Where the tensor lies in the logical one, if the program knows: a JSON object, see RecordedMapping in
   * base/mapping.h. NULL: annotations say it. */
  const char* mapping;
  int32_t sketch; /* a ttrace_sketch */
  /* Of TTRACE_SKETCHED: the fingerprint of the tensor's own bytes, row-major (src/sketch/fingerprint.h). */
  uint64_t fingerprint;
} ttrace_tensor;

TTRACE_API const char* ttrace_version(void);

/* Text of this thread's last failure: one line, never NULL, valid until this thread's next call. */
TTRACE_API const char* ttrace_last_error(void);

/* Creates the rank's file and, beside it, its journal. On failure `*out` is NULL. */
TTRACE_API ttrace_status ttrace_open(const ttrace_run* run, ttrace_recorder** out);

/* Sets the text attribute `provenance`, or the compute dtype, learnt after opening; NULL leaves it. */
TTRACE_API ttrace_status ttrace_describe(ttrace_recorder* recorder, const char* compute_dtype, const char* provenance);

/* Sets axes and coordinates, as in ttrace_run, of a recorder that was opened without axes. Once; a trace of several
 * ranks that never learns them says nothing of how its ranks are arranged, and `ttrace check --axes` must. */
TTRACE_API ttrace_status ttrace_describe_axes(ttrace_recorder* recorder, const char* axes, const char* coordinates);

/* Records one tensor. When the call returns, the bytes have been handed to the operating system: they
 * outlive a crash or a kill of this process. With `queue_bytes` a kill costs what is still queued and what left
 * the queue in the last 20 ms, and a failure to write is returned by a later call. An identity that was
 * recorded before is TTRACE_INVALID. */
TTRACE_API ttrace_status ttrace_record(ttrace_recorder* recorder, const ttrace_identity* identity,
                                       const ttrace_tensor* tensor);

/* Fills `edges`, room for `ndim` numbers, with the sizes of the cells that a sketch of this tensor has; with zeros where
 * it is recorded whole in any case. `data`, `sketch` and `fingerprint` do not count. */
TTRACE_API ttrace_status ttrace_cell_edges(const ttrace_tensor* tensor, int64_t* edges);

/* Returns the fingerprint of a tensor's bytes, row-major, as TTRACE_SKETCHED takes it: equal bytes have equal ones, and
 * others almost never. `data` may be NULL when `bytes` is 0. */
TTRACE_API uint64_t ttrace_fingerprint(const void* data, size_t bytes);

/* Writes the index and, if `complete` and nothing was lost, the completion mark; frees the recorder,
 * whatever it returns. What failed first (TTRACE_FULL, TTRACE_IO) comes back here once more. NULL is
 * allowed. In a forked child it frees the child's copy, leaves the file alone and returns TTRACE_OK. */
TTRACE_API ttrace_status ttrace_close(ttrace_recorder* recorder, int complete);

/* Fills `out` with uniform values in [-1, 1) for this rank's shard of a tensor that it is about to perturb. Any
 * division of the logical tensor gets the same values: they depend on the seed, the canonical identity (global layer
 * and micro-batch) and the element's place, which follows from the recorder's annotations and coordinates, shards
 * assumed even. `out` has room for the local tensor's elements, row-major. */
TTRACE_API ttrace_status ttrace_perturbation(ttrace_recorder* recorder, uint64_t seed, const ttrace_identity* identity,
                                             int32_t ndim, const int64_t* local_shape, float* out);

/* A rank's file of a finished trace, to take tensors from: what a run is given in place of its own values. */
typedef struct ttrace_source ttrace_source;

/* Opens the file of `rank` in `directory`, a trace of `world_size` ranks. TTRACE_INVALID where there is none, it is not
 * whole, or is of another number of ranks. On failure `*out` is NULL. */
TTRACE_API ttrace_status ttrace_open_source(const char* directory, int32_t rank, int32_t world_size,
                                            ttrace_source** out);

/* Fills `tensor` (its struct_size set by the caller) with what the file holds of `identity`, whose name and micro-batch
 * are the rank's own and whose module_class does not count. What it points to lives as long as the source, contiguous,
 * row-major. A file without it: TTRACE_OK, and dtype 0. */
TTRACE_API ttrace_status ttrace_find(const ttrace_source* source, const ttrace_identity* identity,
                                     ttrace_tensor* tensor);

TTRACE_API void ttrace_close_source(ttrace_source* source); /* NULL is allowed */

#ifdef __cplusplus
}
#endif

#endif
