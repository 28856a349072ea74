// Makes the pair of traces that `tools/bench check` compares.
// Usage: make_traces DIRECTORY BYTES; writes DIRECTORY/{reference,candidate,annotations.yaml} with about
// BYTES of tensors on both sides together.
//
// Each side has 8 ranks (tp = 8). A group of tensors is: bf16 and fp32, cut along dim 0 and along dim 1; a
// bf16 one and a small fp32 one that every rank holds whole. The candidate's values are the reference's
// with a relative noise of the dtype's epsilon, as a correct parallel run would have.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ttrace/ttrace.h"

namespace {

constexpr int kRanks = 8;

struct Tensor {
  const char* name;
  ttrace_dtype dtype;
  std::int64_t rows, columns;
  int tp_dim;  // -1: replicated
};

constexpr Tensor kGroup[] = {
    {"column_bf16.weight", TTRACE_BFLOAT16, 2048, 4096, 0}, {"row_bf16.weight", TTRACE_BFLOAT16, 2048, 4096, 1},
    {"column_fp32.weight", TTRACE_FLOAT32, 2048, 4096, 0},  {"row_fp32.weight", TTRACE_FLOAT32, 2048, 4096, 1},
    {"router.weight", TTRACE_BFLOAT16, 256, 4096, -1},      {"norm.weight", TTRACE_FLOAT32, 1, 4096, -1},
};

constexpr const char* kAnnotations =
    "column_bf16.weight: {tp_dim: 0}\n"
    "column_fp32.weight: {tp_dim: 0}\n"
    "row_bf16.weight: {tp_dim: 1}\n"
    "row_fp32.weight: {tp_dim: 1}\n";

void require(ttrace_status status) {
  if (status == TTRACE_OK) return;
  std::fprintf(stderr, "make_traces: %s\n", ttrace_last_error());
  std::exit(2);
}

std::int64_t elements_on_rank(const Tensor& tensor) {
  return tensor.rows * tensor.columns / (tensor.tp_dim < 0 ? 1 : kRanks);
}

std::int64_t bytes_of_group() {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : kGroup) {
    bytes += 2 * kRanks * elements_on_rank(tensor) * (tensor.dtype == TTRACE_FLOAT32 ? 4 : 2);
  }
  return bytes;
}

// A linear congruential generator (Knuth's constants): good enough to fill memory, and fast.
std::uint64_t next(std::uint64_t& state) { return state = state * 6364136223846793005u + 1442695040888963407u; }

// The same seed gives both sides the same values, up to the noise.
std::vector<float> values_of(const Tensor& tensor, std::uint64_t seed, bool noisy) {
  const float epsilon = tensor.dtype == TTRACE_FLOAT32 ? 0x1p-23f : 0x1p-7f;
  std::vector<float> values(static_cast<std::size_t>(elements_on_rank(tensor)));
  for (float& value : values) {
    const std::uint64_t bits = next(seed);
    value = static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1p-31f;
    if (noisy) value *= 1 + epsilon * (static_cast<float>((bits >> 20) & 0xfff) / 2048 - 1);
  }
  return values;
}

void record(ttrace_recorder* recorder, const std::string& name, const Tensor& tensor,
            const std::vector<float>& values) {
  const std::int64_t shape[2] = {tensor.rows / (tensor.tp_dim == 0 ? kRanks : 1),
                                 tensor.columns / (tensor.tp_dim == 1 ? kRanks : 1)};
  std::vector<std::uint16_t> halves;
  if (tensor.dtype == TTRACE_BFLOAT16) {
    halves.resize(values.size());
    std::transform(values.begin(), values.end(), halves.begin(), [](float value) {
      return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0x8000) >> 16);
    });
  }
  const void* data = halves.empty() ? static_cast<const void*>(values.data()) : halves.data();
  ttrace_identity identity = {};
  identity.struct_size = sizeof identity;
  identity.microbatch = TTRACE_NO_MICROBATCH;
  identity.pass = TTRACE_FORWARD;
  identity.kind = TTRACE_PARAM;
  identity.name = name.c_str();
  const ttrace_tensor recorded = {sizeof(ttrace_tensor), data, tensor.dtype, 2, shape, nullptr, nullptr, 0};
  require(ttrace_record(recorder, &identity, &recorded));
}

void write_rank(const std::string& directory, int rank, std::int64_t groups, bool noisy) {
  ttrace_run run = {};
  run.struct_size = sizeof run;
  run.directory = directory.c_str();
  run.run_id = noisy ? "candidate" : "reference";
  run.rank = rank;
  run.world_size = kRanks;
  run.axes = "tp=8";
  run.compute_dtype = "bfloat16";
  ttrace_recorder* recorder = nullptr;
  require(ttrace_open(&run, &recorder));
  for (std::int64_t group = 0; group < groups; ++group) {
    std::uint64_t seed = static_cast<std::uint64_t>(group) * 1000;
    for (const Tensor& tensor : kGroup) {
      const std::uint64_t shard = tensor.tp_dim < 0 ? 0 : static_cast<std::uint64_t>(rank);
      const std::string name = "groups." + std::to_string(group) + "." + tensor.name;
      record(recorder, name, tensor, values_of(tensor, (++seed << 8) + shard, noisy));
    }
  }
  require(ttrace_close(recorder, 1));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::filesystem::path directory = argv[1];
  const std::int64_t groups = std::max<std::int64_t>(1, std::atoll(argv[2]) / bytes_of_group());
  for (const bool noisy : {false, true}) {
    const std::filesystem::path trace = directory / (noisy ? "candidate" : "reference");
    for (int rank = 0; rank < kRanks; ++rank) write_rank(trace.string(), rank, groups, noisy);
  }
  std::ofstream(directory / "annotations.yaml") << kAnnotations;
  std::printf("%lld\n", static_cast<long long>(groups * bytes_of_group()));
}
