// usage: record_until_full DIRECTORY KIB [TENSORS] - records until an address space that may grow by so much is used up,
// or so many tensors are recorded; closes, and goes on, as a job does.
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "ttrace/ttrace.h"

static void limit_address_space(long kib) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld", &pages) != 1) exit(3);
  fclose(file);
  const rlim_t bytes = (rlim_t)pages * 4096 + (rlim_t)kib * 1024;
  const struct rlimit limit = {bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) exit(3);
}

int main(int count, char** words) {
  static char output[4096];
  setvbuf(stdout, output, _IOFBF, sizeof output);
  if (count < 3) return 3;
  ttrace_run run = {0};
  run.struct_size = sizeof run;
  run.directory = words[1];
  run.run_id = "starved";
  run.world_size = 1;
  run.compute_dtype = "float32";
  ttrace_recorder* recorder = NULL;
  if (ttrace_open(&run, &recorder) != TTRACE_OK) return 3;
  limit_address_space(atol(words[2]));
  const long most = count > 3 ? atol(words[3]) : 1000000;
  float data[1000] = {0};
  const int64_t shape[1] = {1000};
  long recorded = 0;
  int status = TTRACE_OK;
  while (recorded < most) {
    char name[512];
    data[0] = (float)recorded;
    snprintf(name, sizeof name, "layers.%ld.%0200ld", recorded, recorded);
    ttrace_identity identity = {0};
    identity.struct_size = sizeof identity;
    identity.pass = TTRACE_FORWARD;
    identity.kind = TTRACE_OUTPUT;
    identity.name = name;
    ttrace_tensor tensor = {0};
    tensor.struct_size = sizeof tensor;
    tensor.data = data;
    tensor.dtype = TTRACE_FLOAT32;
    tensor.ndim = 1;
    tensor.shape = shape;
    status = ttrace_record(recorder, &identity, &tensor);
    if (status != TTRACE_OK) break;
    ++recorded;
  }
  const int closed = ttrace_close(recorder, 1);
  printf("%ld %d %d %s\n", recorded, status, closed, closed == TTRACE_OK ? "" : ttrace_last_error());
  return 0;
}
