// Writes the page of a made-up check of a model of up to 128 layers, with numbers that do not repeat, and as many
// pictures as a page has: large_page FILE TENSORS. A third of the way on a tensor is wrong, as all are from there on. With
// a third word, BYTES, each name is that of a module of so many bytes.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "page/depict.h"
#include "page/html.h"

namespace {

using namespace ttrace;

constexpr std::size_t kMostLayers = 128;
constexpr std::int32_t kRanks = 64;

Finding make_finding(const TensorId& id, bool is_wrong, std::mt19937_64& random) {
  std::lognormal_distribution<double> size(-3, 2);
  Finding finding;
  finding.id = id;
  finding.verdict = is_wrong ? Verdict::kFail : Verdict::kPass;
  finding.reason = is_wrong ? Reason::kExceedsTolerance : Reason::kNone;
  if (is_wrong) {
    finding.message = to_string(id) + ": rel_err 0.882, allowed 0.0234 (37.7 times)";
    finding.ranks = {static_cast<std::int32_t>(random() % kRanks)};
  }
  finding.allowed = 0.01;
  finding.floating = true;
  Difference& difference = finding.difference.emplace();
  difference.elements = 4096 * 4096;
  difference.differing = static_cast<std::int64_t>(random() % 4096);
  difference.reference_square = 1 + size(random);
  difference.candidate_square = difference.reference_square;
  const double ratio = is_wrong ? 1.1 + size(random) * 30 : 0.9 / (1 + size(random) * 10);
  difference.difference_square = ratio * ratio * *finding.allowed * *finding.allowed * difference.reference_square;
  difference.max_abs = size(random);
  difference.worst_index = {static_cast<std::int64_t>(random() % 4096), static_cast<std::int64_t>(random() % 4096)};
  difference.worst_rank = is_wrong ? finding.ranks[0] : 0;
  difference.worst_local_index = difference.worst_index;
  difference.worst_reference = size(random);
  difference.worst_candidate = size(random);
  return finding;
}

Picture make_picture(const TensorId& id, std::mt19937_64& random) {
  std::lognormal_distribution<double> size(-3, 2);
  Picture picture;
  picture.id = id;
  picture.reference_shape = picture.candidate_shape = {4096, 4096};
  picture.reference = {1, {{{{0, 0}, {4096, 4096}}, {{0}}}}, 0};
  for (std::int32_t rank = 0; rank < kRanks; ++rank) {
    picture.candidate.boxes.push_back({{{0, rank * 64}, {4096, 64}}, {{rank}}});
  }
  picture.map = {0, 1, 64, 64, {}};
  for (int cell = 0; cell < 64 * 64; ++cell) picture.map.largest.push_back(size(random));
  for (int octave = -30; octave < 2; ++octave) picture.octaves[octave] = static_cast<std::int64_t>(random() % 100'000);
  for (std::int64_t i = 0; i < 10; ++i) picture.worst.push_back({{i, i}, 0, size(random), size(random)});
  return picture;
}

// The tensors in order of execution, as many as asked for.
std::vector<TensorId> make_tensors(std::size_t count, std::size_t bytes_of_name) {
  const std::vector<std::string> all = {"input_layernorm",
                                        "self_attention",
                                        "self_attention.linear_qkv",
                                        "self_attention.core_attention",
                                        "self_attention.linear_proj",
                                        "pre_mlp_layernorm",
                                        "mlp",
                                        "mlp.linear_fc1",
                                        "mlp.activation",
                                        "mlp.linear_fc2",
                                        "mlp.router",
                                        "mlp.experts",
                                        "mlp.shared_experts",
                                        "residual"};
  std::vector<std::string> modules(all.begin(), all.begin() + std::clamp<std::ptrdiff_t>(count / 8, 1, 14));
  const std::size_t layers = std::clamp<std::size_t>(count / (modules.size() * 16), 1, kMostLayers);
  const std::size_t microbatches = count / (modules.size() * layers * 4) + 1;
  if (bytes_of_name > 0) modules = {std::string(bytes_of_name - std::string("layers.0.").size(), 'n')};
  const std::string family = bytes_of_name > 0 ? "layers." : "decoder.layers.";
  std::vector<TensorId> tensors;
  for (const Kind kind : {Kind::kInput, Kind::kOutput, Kind::kGradOutput, Kind::kGradInput}) {
    for (std::size_t microbatch = 0; microbatch < microbatches; ++microbatch) {
      for (std::size_t layer = 0; layer < layers; ++layer) {
        for (const std::string& module : modules) {
          if (tensors.size() == count) return tensors;
          TensorId& id = tensors.emplace_back();
          id.name = family + std::to_string(layer) + "." + module;
          id.kind = kind;
          id.microbatch = static_cast<std::int32_t>(microbatch);
        }
      }
    }
  }
  return tensors;
}

RunFacts make_run(const std::string& directory, std::int32_t ranks, const std::string& axes) {
  return {directory,
          "147c77d7-f619-6aab-60d1-61ae6499469f",
          "torchrun train.py",
          "2026-11-22T04:08:24Z",
          "621b6f260210c",
          "3.11.7",
          "2.13.0",
          "cuda",
          "bfloat16",
          ranks,
          parse_mesh(axes, ranks, "made up")};
}

RootCause make_root(const TensorId& id, std::int64_t explained) {
  RootCause root;
  root.sentence = to_string(id) +
                  ": 24 of 64 rows hold the value of row 55; the rest is right; the same in 3 more "
                  "micro-batches or iterations; " +
                  std::to_string(explained) + " later differences follow from it";
  root.diagnosis = Cause::kOtherRows;
  root.explained = explained;
  root.source.forward = CodeLine{"megatron/core/transformer/layer.py", 412};
  root.source.call = CodeLine{"megatron/core/transformer/block.py", 97};
  return root;
}

}  // namespace

int main(int count, char** words) {
  if (count != 3 && count != 4) return 2;
  std::mt19937_64 random(1);
  Report report;
  PageFacts facts;
  facts.tolerance = ToleranceFacts{"tolerance.yaml", "input", "bfloat16", 3, 0.0078125, 3, {}, {}};
  const std::vector<TensorId> tensors = make_tensors(std::stoul(words[2]), count == 4 ? std::stoul(words[3]) : 0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool is_wrong = i >= tensors.size() / 3;
    std::vector<Finding>& list = is_wrong ? report.findings : report.passed;
    list.push_back(make_finding(tensors[i], is_wrong, random));
    list.back().order = i + 1;
    facts.tolerance->estimates[{tensors[i].kind, tensors[i].name}] = 1e-3;
    if (i % (tensors.size() / kMostPictures + 1) == 0) facts.pictures.push_back(make_picture(tensors[i], random));
  }
  Counts& counts = report.totals.counts;
  counts.fail = static_cast<std::int64_t>(report.findings.size());
  counts.pass = static_cast<std::int64_t>(report.passed.size());
  counts.compared = counts.fail + counts.pass;
  report.totals.coverage = 1;
  report.runs.reference = "reference";
  report.runs.candidate = "candidate";
  report.explanation.roots.push_back(make_root(report.findings[0].id, counts.fail - 1));
  report.notes.emplace_back("4 tensors are not seen: torch.compile hides them");
  facts.follows_from.assign(report.findings.size(), 0);
  facts.reference = make_run("reference", 1, "");
  facts.candidate = make_run("candidate", kRanks, "tp=8,pp=4,dp=2");
  facts.command = "ttrace check --reference reference --candidate candidate -a annotations.yaml -t tolerance.yaml";
  report.advice.next =
      "ttrace localize --reference reference --candidate candidate -a annotations.yaml -t tolerance.yaml "
      "-- torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py --tensor-model-parallel-size 8 --num-layers 32";
  std::ofstream file(words[1], std::ios::binary);
  file << to_html(report, facts);
  std::cout << tensors.size() << " tensors\n";
  return file.good() ? 0 : 1;
}
