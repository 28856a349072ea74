// Makes the traces that `tools/bench check` compares.
// Usage: make_traces DIRECTORY BYTES; writes annotations.yaml and these traces there, of which reference and candidate
// have about BYTES of tensors together, and prints how many:
//   reference, candidate   on 8 ranks (tp = 8)
//   whole                  the reference on one rank
//   perturbed-1 to -3      for `ttrace estimate-tolerance`, with a perturbed reference's noise
//
// A group of tensors is: bf16 and fp32, cut along dim 0 and along dim 1; a bf16 one and a small fp32 one that every
// rank holds whole. The candidate's values are the reference's with a relative noise of the dtype's epsilon, as a
// correct parallel run would have.
#include <algorithm>
#include <bit>
#include <cstddef>
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

struct Run {
  const char* name;
  int ranks;
  std::uint64_t noise;     // 0: none
  const char* provenance;  // null: none
};

constexpr Run kRuns[] = {
    {"reference", kRanks, 0, nullptr},
    {"whole", 1, 0, nullptr},
    {"candidate", kRanks, 1, nullptr},
    {"perturbed-1", kRanks, 2, R"({"perturb_seed": 1})"},
    {"perturbed-2", kRanks, 3, R"({"perturb_seed": 2})"},
    {"perturbed-3", kRanks, 4, R"({"perturb_seed": 3})"},
};

constexpr std::int64_t kCopies = kRanks;  // of a tensor that every rank holds

std::int64_t bytes_of_group() {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : kGroup) {
    bytes +=
        2 * tensor.rows * tensor.columns * (tensor.tp_dim < 0 ? kCopies : 1) * (tensor.dtype == TTRACE_FLOAT32 ? 4 : 2);
  }
  return bytes;
}

// A linear congruential generator (Knuth's constants): good enough to fill memory, and fast.
std::uint64_t next(std::uint64_t& state) { return state = state * 6364136223846793005u + 1442695040888963407u; }

// The values of the logical tensor. The same seed gives every run the same, up to the noise.
std::vector<float> values_of(const Tensor& tensor, std::uint64_t seed, std::uint64_t noise) {
  const float epsilon = tensor.dtype == TTRACE_FLOAT32 ? 0x1p-23f : 0x1p-7f;
  std::vector<float> values(static_cast<std::size_t>(tensor.rows * tensor.columns));
  for (float& value : values) {
    const std::uint64_t bits = next(seed);
    value = static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1p-31f;
    std::uint64_t drawn = bits ^ noise << 32;
    if (noise > 0) value *= 1 + epsilon * (static_cast<float>(next(drawn) >> 52) / 2048 - 1);
  }
  return values;
}

std::vector<std::uint16_t> rounded_to_bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> halves(values.size());
  std::transform(values.begin(), values.end(), halves.begin(), [](float value) {
    return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0x8000) >> 16);
  });
  return halves;
}

// Records the part of one rank, which is read in place.
void record(ttrace_recorder* recorder, const std::string& name, const Tensor& tensor, const std::byte* values,
            const Run& run, int rank) {
  const std::int64_t width = tensor.dtype == TTRACE_FLOAT32 ? 4 : 2;
  const std::int64_t shape[2] = {tensor.rows / (tensor.tp_dim == 0 ? run.ranks : 1),
                                 tensor.columns / (tensor.tp_dim == 1 ? run.ranks : 1)};
  const std::int64_t strides[2] = {tensor.columns, 1};
  const std::int64_t first = tensor.tp_dim < 0 ? 0 : rank * shape[tensor.tp_dim] * strides[tensor.tp_dim];
  ttrace_identity identity = {};
  identity.struct_size = sizeof identity;
  identity.microbatch = TTRACE_NO_MICROBATCH;
  identity.pass = TTRACE_FORWARD;
  identity.kind = TTRACE_PARAM;
  identity.name = name.c_str();
  const ttrace_tensor recorded = {
      sizeof(ttrace_tensor), values + first * width, tensor.dtype, 2, shape, strides, nullptr, 0, 0};
  require(ttrace_record(recorder, &identity, &recorded));
}

ttrace_recorder* open_rank(const std::string& directory, const Run& described, int rank) {
  const std::string axes = "tp=" + std::to_string(described.ranks);
  ttrace_run run = {};
  run.struct_size = sizeof run;
  run.directory = directory.c_str();
  run.run_id = described.name;
  run.rank = rank;
  run.world_size = described.ranks;
  run.axes = axes.c_str();
  run.compute_dtype = "bfloat16";
  run.provenance = described.provenance;
  ttrace_recorder* recorder = nullptr;
  require(ttrace_open(&run, &recorder));
  return recorder;
}

void write_run(const std::filesystem::path& directory, const Run& run, std::int64_t groups) {
  std::vector<ttrace_recorder*> ranks;
  for (int rank = 0; rank < run.ranks; ++rank) ranks.push_back(open_rank((directory / run.name).string(), run, rank));
  std::uint64_t seed = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    for (const Tensor& tensor : kGroup) {
      const std::string name = "groups." + std::to_string(group) + "." + tensor.name;
      const std::vector<float> values = values_of(tensor, ++seed, run.noise);
      const bool is_half = tensor.dtype == TTRACE_BFLOAT16;
      const std::vector<std::uint16_t> halves = is_half ? rounded_to_bf16(values) : std::vector<std::uint16_t>();
      const void* data = is_half ? static_cast<const void*>(halves.data()) : values.data();
      for (int rank = 0; rank < run.ranks; ++rank) {
        record(ranks[static_cast<std::size_t>(rank)], name, tensor, static_cast<const std::byte*>(data), run, rank);
      }
    }
  }
  for (ttrace_recorder* rank : ranks) require(ttrace_close(rank, 1));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::filesystem::path directory = argv[1];
  const std::int64_t groups = std::max<std::int64_t>(1, std::atoll(argv[2]) / bytes_of_group());
  for (const Run& run : kRuns) write_run(directory, run, groups);
  std::ofstream(directory / "annotations.yaml") << kAnnotations;
  std::printf("%lld\n", static_cast<long long>(groups * bytes_of_group()));
}
