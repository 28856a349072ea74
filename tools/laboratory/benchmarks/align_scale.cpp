// `align_scale RANKS THREADS ANNOTATIONS PRESETS`: time and memory to align the index of a model of Llama 3 405B's size,
// trained with TP 8 and sequence parallelism, CP 2, PP 16 and DP the rest. There is an index and no data. Prints one
// line of JSON.
#include <fmt/format.h>
#include <sys/resource.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "align/shard_mapping.h"
#include "base/error.h"
#include "base/mesh.h"
#include "files/annotation_file.h"

using namespace ttrace;

namespace {

constexpr std::int64_t kTp = 8, kCp = 2, kPp = 16, kLayers = 126;
constexpr std::int64_t kHidden = 16384, kFfn = 53248, kHeads = 128, kKvHeads = 8, kHead = 128, kSequence = 8192;

class NoData : public MappedFile {
 public:
  const std::byte* data() const override { return nullptr; }
  std::uint64_t size() const override { return 0; }
};

// Says what one layer records of one rank: name, shape, whether the module gave it out.
struct Activation {
  const char* name;
  bool output;
  Shape shape;
};
struct Parameter {
  const char* name;
  Shape shape;
};

std::vector<Activation> activations() {
  const std::int64_t s = kSequence / kCp, part = s / kTp, qkv = (kHeads + 2 * kKvHeads) * kHead / kTp;
  const Shape stream = {part, 1, kHidden};
  std::vector<Activation> all;
  for (const char* name : {"", ".input_layernorm", ".self_attention", ".pre_mlp_layernorm", ".mlp"}) {
    all.push_back({name, false, stream});
    all.push_back({name, true, stream});
  }
  all.push_back({".self_attention.linear_qkv", false, stream});
  all.push_back({".self_attention.linear_qkv", true, {s, 1, qkv}});
  all.push_back({".self_attention.core_attention:0", false, {s, 1, kHeads / kTp, kHead}});
  all.push_back({".self_attention.core_attention:1", false, {s, 1, kKvHeads / kTp, kHead}});
  all.push_back({".self_attention.core_attention:2", false, {s, 1, kKvHeads / kTp, kHead}});
  all.push_back({".self_attention.core_attention", true, {s, 1, kHeads * kHead / kTp}});
  all.push_back({".self_attention.linear_proj", false, {s, 1, kHeads * kHead / kTp}});
  all.push_back({".self_attention.linear_proj", true, stream});
  all.push_back({".mlp.linear_fc1", false, stream});
  all.push_back({".mlp.linear_fc1", true, {s, 1, 2 * kFfn / kTp}});
  all.push_back({".mlp.activation", false, {s, 1, 2 * kFfn / kTp}});
  all.push_back({".mlp.activation", true, {s, 1, kFfn / kTp}});
  all.push_back({".mlp.linear_fc2", false, {s, 1, kFfn / kTp}});
  all.push_back({".mlp.linear_fc2", true, stream});
  return all;
}

std::vector<Parameter> parameters() {
  return {{".input_layernorm.weight", {kHidden}},
          {".self_attention.linear_qkv.weight", {(kHeads + 2 * kKvHeads) * kHead / kTp, kHidden}},
          {".self_attention.linear_proj.weight", {kHidden, kHeads * kHead / kTp}},
          {".pre_mlp_layernorm.weight", {kHidden}},
          {".mlp.linear_fc1.weight", {2 * kFfn / kTp, kHidden}},
          {".mlp.linear_fc2.weight", {kHidden, kFfn / kTp}}};
}

void add(RankTrace& rank, Kind kind, std::int32_t microbatch, std::string name, const Shape& shape) {
  Entry& entry = rank.entries.emplace_back();
  entry.id = {0, microbatch, 0, Pass::kForward, kind, std::move(name)};
  entry.dtype = Dtype::kBFloat16;
  entry.shape = shape;
  entry.order = rank.entries.size();
}

Trace index_of(std::int32_t ranks) {
  const Mesh mesh = parse_mesh(fmt::format("tp={},cp={},dp={},pp={},sp=tp", kTp, kCp, ranks / (kTp * kCp * kPp), kPp),
                               ranks, "align_scale");
  Trace trace;
  trace.directory = "index";
  trace.world_size = ranks;
  trace.mesh = mesh;
  const auto file = std::make_shared<const NoData>();
  const std::vector<Activation> of_layer = activations();
  const std::vector<Parameter> weights = parameters();
  for (std::int32_t number = 0; number < ranks; ++number) {
    RankTrace& rank = trace.ranks.emplace_back();
    rank.rank = number;
    rank.coordinates = coordinates_of(mesh.axes, number);
    rank.complete = true;
    rank.file = file;
    const std::int64_t stage = rank.coordinates.at("pp");
    // Embedding and head count as a layer.
    const std::int64_t layers = (kLayers + 2) / kPp - (stage == 0 || stage == kPp - 1 ? 1 : 0);
    rank.entries.reserve(static_cast<std::size_t>(layers) * (2 * of_layer.size() + 5 * weights.size()));
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string layer = fmt::format("decoder.layers.{}", i);
      for (const Activation& activation : of_layer) {
        add(rank, activation.output ? Kind::kOutput : Kind::kInput, 0, layer + activation.name, activation.shape);
        add(rank, activation.output ? Kind::kGradOutput : Kind::kGradInput, 0, layer + activation.name,
            activation.shape);
      }
      for (const Parameter& weight : weights) {
        add(rank, Kind::kParamGrad, 0, layer + weight.name, weight.shape);
        for (const Kind kind : {Kind::kParam, Kind::kMainGrad, Kind::kParamDelta, Kind::kParamAfter}) {
          add(rank, kind, kNoMicrobatch, layer + weight.name, weight.shape);
        }
      }
    }
  }
  return trace;
}

double peak_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

// 0 where the text is no number.
std::int32_t number_in(std::string_view text) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? number : 0;
}

// The preset, with the numbers of this model.
Annotations annotations_of(const std::string& path, const std::string& presets) {
  return parse_annotations(fmt::format("include: {}\n"
                                       "parameters: {{query_heads: {}, kv_heads: {}}}\n"
                                       "parallelism:\n"
                                       "  pipeline: {{layers: decoder.layers, embedding: true, head: true}}\n",
                                       path, kHeads, kKvHeads),
                           "align_scale", presets);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int32_t ranks = argc == 5 ? number_in(argv[1]) : 0, threads = argc == 5 ? number_in(argv[2]) : 0;
  if (threads < 1 || ranks < kTp * kCp * kPp || ranks % (kTp * kCp * kPp) != 0) {
    std::fprintf(stderr, "usage: align_scale RANKS THREADS ANNOTATIONS PRESETS    RANKS: a multiple of %d\n",
                 static_cast<int>(kTp * kCp * kPp));
    return 2;
  }
  try {
    const Annotations annotations = annotations_of(argv[3], argv[4]);
    const Trace trace = index_of(ranks);
    std::size_t shards = 0;
    for (const RankTrace& rank : trace.ranks) shards += rank.entries.size();
    const double index_gib = peak_gib();
    const auto started = std::chrono::steady_clock::now();
    const Alignment alignment = align(trace, annotations, ModelLayout{{{"decoder.layers", kLayers}}}, threads);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
    fmt::print(
        "{{\"ranks\": {}, \"shards\": {}, \"tensors\": {}, \"findings\": {}, \"seconds\": {:.2f}, "
        "\"index_gib\": {:.2f}, \"peak_gib\": {:.2f}}}\n",
        ranks, shards, alignment.tensors.size(), alignment.findings.size(), seconds.count(), index_gib, peak_gib());
    return alignment.findings.empty() ? 0 : 1;
  } catch (const InputError& failure) {
    std::fprintf(stderr, "align_scale: error: %s\n", failure.what());
    return 2;
  }
}
