// Writes the page of a large model, made up: large_page FILE. 128 layers, 200,000 findings with numbers that do not
// repeat, and as many pictures as a page has. `large_page FILE BYTES` writes one of a single finding, whose name has so
// many bytes.
#include <cmath>
#include <fstream>
#include <iostream>
#include <random>
#include <string>

#include "page/depict.h"
#include "page/html.h"

namespace {

using namespace ttrace;

constexpr int kLayers = 128;
constexpr int kMicrobatches = 28;
constexpr std::size_t kFindings = 200'000;

Finding make_finding(const std::string& name, Kind kind, std::int32_t microbatch, std::mt19937_64& random) {
  std::lognormal_distribution<double> size(-3, 2);
  Finding finding;
  finding.id.name = name;
  finding.id.kind = kind;
  finding.id.microbatch = microbatch;
  finding.verdict = Verdict::kFail;
  finding.reason = Reason::kExceedsTolerance;
  finding.message = to_string(finding.id) + ": rel_err 0.882, allowed 0.0234 (37.7 times)";
  finding.ranks = {static_cast<std::int32_t>(random() % 64)};
  finding.allowed = 0.01;
  finding.floating = true;
  Difference& difference = finding.difference.emplace();
  difference.elements = 4096 * 4096;
  difference.differing = static_cast<std::int64_t>(random() % 4096);
  difference.reference_square = size(random);
  difference.candidate_square = size(random);
  difference.difference_square = size(random) * 1e-3;
  difference.max_abs = size(random);
  difference.worst_index = {static_cast<std::int64_t>(random() % 4096), static_cast<std::int64_t>(random() % 4096)};
  difference.worst_rank = finding.ranks[0];
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
  for (std::int32_t rank = 0; rank < 64; ++rank) {
    picture.candidate.boxes.push_back({{{0, rank * 64}, {4096, 64}}, {{rank}}});
  }
  picture.map = {0, 1, 64, 64, {}};
  for (int cell = 0; cell < 64 * 64; ++cell) picture.map.largest.push_back(size(random));
  for (int octave = -30; octave < 2; ++octave) picture.octaves[octave] = static_cast<std::int64_t>(random() % 100'000);
  for (std::int64_t i = 0; i < 10; ++i) picture.worst.push_back({{i, i}, 0, size(random), size(random)});
  return picture;
}

void add_findings(Report& report, std::mt19937_64& random) {
  const char* modules[] = {"input_layernorm",
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
  for (const Kind kind : {Kind::kInput, Kind::kOutput, Kind::kGradOutput, Kind::kGradInput}) {
    for (std::int32_t microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      for (int layer = 0; layer < kLayers; ++layer) {
        for (const char* module : modules) {
          if (report.findings.size() == kFindings) return;
          const std::string name = "decoder.layers." + std::to_string(layer) + "." + module;
          report.findings.push_back(make_finding(name, kind, microbatch, random));
          report.findings.back().order = report.findings.size();
        }
      }
    }
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 2 && count != 3) return 2;
  std::mt19937_64 random(1);
  Report report;
  PageFacts facts;
  if (count == 3) {
    const std::string name = "layers.0." + std::string(std::stoul(words[2]) - 9, 'n');
    report.findings.push_back(make_finding(name, Kind::kOutput, 0, random));
  } else {
    add_findings(report, random);
  }
  report.totals.counts.fail = report.totals.counts.compared = static_cast<std::int64_t>(report.findings.size());
  report.explanation.roots.emplace_back().sentence = report.findings[0].message;
  facts.follows_from.assign(report.findings.size(), 0);
  facts.tolerance.emplace();
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const TensorId& id = report.findings[i].id;
    facts.tolerance->estimates[{id.kind, id.name}] = 1e-3;
    if (i % (kFindings / kMostPictures) == 0) facts.pictures.push_back(make_picture(id, random));
  }
  std::ofstream file(words[1], std::ios::binary);
  file << to_html(report, facts);
  std::cout << report.findings.size() << " findings\n";
  return file.good() ? 0 : 1;
}
