/* A C program that records a trace of two ranks through ttrace.h alone. Argument: the trace's directory.
 * Exits 0 when every call did what the header says. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ttrace/ttrace.h"

#define EXPECT(status, call)                                                                                \
  do {                                                                                                      \
    const ttrace_status got = (call);                                                                       \
    if (got != (status)) {                                                                                  \
      fprintf(stderr, "line %d: status %d, expected %d: %s\n", __LINE__, got, status, ttrace_last_error()); \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)

#define EXPECT_ERROR(text)                                                                    \
  do {                                                                                        \
    if (strcmp(ttrace_last_error(), text) != 0) {                                             \
      fprintf(stderr, "line %d: '%s', expected '%s'\n", __LINE__, ttrace_last_error(), text); \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

static ttrace_run example_run(const char* directory, int32_t rank) {
  ttrace_run run = {sizeof run, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, 0};
  run.directory = directory;
  run.run_id = "c-program";
  run.rank = rank;
  run.world_size = 2;
  run.axes = "tp=2,sp=tp";
  run.compute_dtype = "float32";
  run.provenance = "{\"language\": \"C\"}";
  return run;
}

static ttrace_identity example_identity(const char* name) {
  ttrace_identity identity = {sizeof identity, 0, 0, 0, TTRACE_FORWARD, TTRACE_OUTPUT, NULL, "Linear"};
  identity.name = name;
  return identity;
}

static void record_tensors(ttrace_recorder* recorder) {
  const float values[6] = {0, 1, 2, 3, 4, 5};
  const int64_t shape[2] = {3, 2};
  const int64_t transposed[2] = {1, 3};
  ttrace_identity identity = example_identity("linear");
  ttrace_tensor tensor = {sizeof tensor, NULL, TTRACE_FLOAT32, 2, NULL, NULL, NULL, 0, 0};
  tensor.data = values;
  tensor.shape = shape;
  tensor.mapping =
      "{\"shape\": [6, 2], \"axes\": [{\"axis\": \"tp\", \"size\": 2, \"placement\": \"shard\", \"dim\": 0}]}";
  EXPECT(TTRACE_OK, ttrace_record(recorder, &identity, &tensor));
  EXPECT_ERROR("");
  tensor.mapping = NULL;
  identity.name = "linear.transposed";
  tensor.strides = transposed;
  EXPECT(TTRACE_OK, ttrace_record(recorder, &identity, &tensor));
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, &identity, &tensor));
  EXPECT_ERROR("linear.transposed output, iteration 0, micro-batch 0: was recorded before");
  identity.name = "loss";
  identity.kind = TTRACE_SCALAR;
  identity.microbatch = TTRACE_NO_MICROBATCH;
  identity.module_class = NULL;
  tensor.ndim = 0;
  tensor.shape = tensor.strides = NULL;
  EXPECT(TTRACE_OK, ttrace_record(recorder, &identity, &tensor));
}

static void refuse_wrong_arguments(ttrace_recorder* recorder) {
  const float value = 1;
  const int64_t shape[1] = {1};
  ttrace_identity identity = example_identity("wrong");
  ttrace_tensor tensor = {sizeof tensor, NULL, TTRACE_FLOAT32, 1, NULL, NULL, NULL, 0, 0};
  tensor.data = &value;
  tensor.shape = shape;
  EXPECT(TTRACE_INVALID, ttrace_record(NULL, &identity, &tensor));
  EXPECT_ERROR("recorder is NULL");
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, NULL, &tensor));
  EXPECT_ERROR("identity is NULL");
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, &identity, NULL));
  EXPECT_ERROR("tensor is NULL");
  identity.struct_size = 8;
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, &identity, &tensor));
  EXPECT_ERROR("identity: struct_size is 8; expected 48");
  identity = example_identity(NULL);
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, &identity, &tensor));
  EXPECT_ERROR("name is empty");
  identity = example_identity("wrong");
  identity.kind = (ttrace_kind)19;
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, &identity, &tensor));
  EXPECT_ERROR("kind is 19; expected 1 to 18");
  identity = example_identity("wrong");
  identity.pass = (ttrace_pass)0;
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, &identity, &tensor));
  EXPECT_ERROR("pass is 0; expected TTRACE_FORWARD or TTRACE_RECOMPUTE");
  identity = example_identity("wrong");
  tensor.dtype = (ttrace_dtype)13;
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, &identity, &tensor));
  EXPECT_ERROR("dtype is 13; expected 1 to 12");
  tensor.dtype = TTRACE_FLOAT32;
  tensor.ndim = 9;
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, &identity, &tensor));
  EXPECT_ERROR("ndim is 9; expected 0 to 8");
  tensor.ndim = 1;
  tensor.shape = shape;
  tensor.mapping = "{\"shape\": [1, 1]}";
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, &identity, &tensor));
  EXPECT_ERROR("wrong output, iteration 0, micro-batch 0: mapping: shape: has 2 dimensions; expected 1");
}

/* A struct of the header before mappings were in it: what follows it is none of the library's business. */
static void take_structs_of_the_past(ttrace_recorder* recorder) {
  const float value = 1;
  ttrace_identity identity = example_identity("earlier");
  ttrace_tensor tensor = {offsetof(ttrace_tensor, mapping), NULL, TTRACE_FLOAT32, 0, NULL, NULL, "not a mapping", 0, 0};
  tensor.data = &value;
  EXPECT(TTRACE_OK, ttrace_record(recorder, &identity, &tensor));
  identity.name = "too early";
  tensor.struct_size = offsetof(ttrace_tensor, strides);
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, &identity, &tensor));
  EXPECT_ERROR("tensor: struct_size is 32; expected 64");
}

/* A struct of a later version of the header, with a field more. */
static void refuse_fields_of_the_future(ttrace_recorder* recorder) {
  struct {
    ttrace_identity identity;
    int64_t more;
  } later;
  const float value = 1;
  ttrace_tensor tensor = {sizeof tensor, NULL, TTRACE_FLOAT32, 0, NULL, NULL, NULL, 0, 0};
  tensor.data = &value;
  later.identity = example_identity("later");
  later.identity.struct_size = sizeof later;
  later.more = 7;
  EXPECT(TTRACE_INVALID, ttrace_record(recorder, &later.identity, &tensor));
  later.more = 0;
  EXPECT(TTRACE_OK, ttrace_record(recorder, &later.identity, &tensor));
}

static void perturb(ttrace_recorder* recorder) {
  const int64_t shape[2] = {4, 6}, negative[2] = {4, -6};
  float first[24], again[24], other[24];
  ttrace_identity identity = example_identity("embedding");
  int i;
  EXPECT(TTRACE_OK, ttrace_perturbation(recorder, 7, &identity, 2, shape, first));
  EXPECT(TTRACE_OK, ttrace_perturbation(recorder, 7, &identity, 2, shape, again));
  EXPECT(TTRACE_OK, ttrace_perturbation(recorder, 8, &identity, 2, shape, other));
  if (memcmp(first, again, sizeof first) != 0 || memcmp(first, other, sizeof first) == 0) exit(2);
  for (i = 0; i < 24; ++i) {
    if (!(fabsf(first[i]) <= 1)) exit(2);
  }
  EXPECT(TTRACE_INVALID, ttrace_perturbation(recorder, 7, &identity, 2, negative, first));
  EXPECT_ERROR("local_shape: -6 is no size of a dimension");
}

static void take_from(const char* directory) {
  const float transposed[6] = {0, 3, 1, 4, 2, 5};
  ttrace_identity identity = example_identity("linear.transposed");
  ttrace_tensor found = {sizeof found, NULL, TTRACE_FLOAT32, 0, NULL, NULL, NULL, 0, 0};
  ttrace_source* source = NULL;
  EXPECT(TTRACE_OK, ttrace_open_source(directory, 1, 2, &source));
  EXPECT(TTRACE_OK, ttrace_find(source, &identity, &found));
  if (found.dtype != TTRACE_FLOAT32 || found.ndim != 2 || found.shape[0] != 3 || found.shape[1] != 2) exit(3);
  if (found.strides != NULL) exit(3);
  if (memcmp(found.data, transposed, sizeof transposed) != 0) exit(3);
  identity.microbatch = 7;
  EXPECT(TTRACE_OK, ttrace_find(source, &identity, &found));
  if (found.dtype != 0 || found.data != NULL) exit(3);
  EXPECT(TTRACE_INVALID, ttrace_find(NULL, &identity, &found));
  EXPECT(TTRACE_INVALID, ttrace_find(source, &identity, NULL));
  ttrace_close_source(source);
  ttrace_close_source(NULL);
  EXPECT(TTRACE_INVALID, ttrace_open_source(directory, 2, 2, &source));
  if (source != NULL) exit(3);
  EXPECT(TTRACE_INVALID, ttrace_open_source(directory, 1, 4, &source));
}

int main(int argc, char** argv) {
  int32_t rank;
  if (argc != 2 || ttrace_version()[0] == '\0') return 1;
  for (rank = 0; rank < 2; ++rank) {
    ttrace_run run = example_run(argv[1], rank);
    ttrace_recorder* recorder = NULL;
    ttrace_recorder* second = (ttrace_recorder*)argv;
    EXPECT(TTRACE_OK, ttrace_open(&run, &recorder));
    EXPECT(TTRACE_EXISTS, ttrace_open(&run, &second));
    if (second != NULL) return 1;
    record_tensors(recorder);
    refuse_wrong_arguments(recorder);
    take_structs_of_the_past(recorder);
    refuse_fields_of_the_future(recorder);
    perturb(recorder);
    EXPECT(TTRACE_INVALID, ttrace_describe(recorder, "float33", NULL));
    EXPECT(TTRACE_OK, ttrace_describe(recorder, "bfloat16", NULL));
    EXPECT(TTRACE_OK, ttrace_close(recorder, 1));
  }
  EXPECT(TTRACE_OK, ttrace_close(NULL, 1));
  take_from(argv[1]);
  return 0;
}
