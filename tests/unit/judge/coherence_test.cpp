#include "judge/coherence.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "support/mesh_trace.h"

namespace {

using namespace ttrace;

constexpr int kLayers = 16;
const std::vector<std::string> kNames = {"attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2", "norm"};

// Gradients whose scales pass one by one. All have 0.002 in common, and each has noise of 0.001; those of fc1 have
// `fault` as well.
std::vector<Finding> gradients(double fault) {
  std::vector<Finding> findings;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      const double noise = (layer + static_cast<int>(i)) % 2 == 0 ? 0.001 : -0.001;
      const double scale = 0.002 + noise + (kNames[i] == "mlp.fc1" ? fault : 0);
      Finding finding;
      finding.id = test::tensor_id(Kind::kMainGrad, "layers." + std::to_string(layer) + "." + kNames[i] + ".weight");
      finding.order = static_cast<std::uint64_t>(layer);
      finding.difference.emplace();
      finding.difference->elements = finding.difference->differing = 1024;
      finding.difference->reference_square = finding.difference->candidate_square = 1024;
      finding.difference->along = 1024 * scale;
      finding.difference->difference_square = 1024 * 0.01 * 0.01;
      finding.difference->max_abs = 0.1;
      finding.statistics.push_back({Statistic::kScale, scale, 0.008});
      findings.push_back(finding);
    }
  }
  return findings;
}

ToleranceFile tolerances() {
  ToleranceFile file;
  for (const std::string& name : kNames) {
    file.coherence[{Kind::kMainGrad, "layers.#." + name + ".weight"}] = {{0, 0, 0}, 0.0012, kLayers, 1.2, 30, 0, 0};
  }
  return file;
}

std::vector<Finding> judged(std::vector<Finding> findings, std::span<const Waiver> waivers = {}) {
  judge_coherence(tolerances(), waivers, findings);
  std::erase_if(findings, [](const Finding& finding) { return finding.verdict == Verdict::kPass; });
  return findings;
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a factor in every layer's gradient that no single one shows is found, and its correct twin passes") {
  const std::vector<Finding> wrong = judged(gradients(1.0 / 256));
  REQUIRE(wrong.size() == 1);
  CHECK(wrong[0].verdict == Verdict::kFail);
  CHECK(wrong[0].reason == Reason::kExceedsTolerance);
  CHECK(wrong[0].exceeded == Statistic::kCoherence);
  CHECK(wrong[0].id.name == "layers.0.mlp.fc1.weight");
  CHECK(wrong[0].message.find("together the 16 tensors layers.#.mlp.fc1.weight main_grad are 1.0039") !=
        std::string::npos);
  CHECK(wrong[0].message.find("times the reference's, beside the other tensors of their layers; correct runs: within "
                              "0.00") != std::string::npos);
  CHECK(judged(gradients(0)).empty());
}

TEST_CASE("a factor in a single layer is no coherence") {
  std::vector<Finding> findings = gradients(0);
  findings[2].difference->along += 1024 * 0.0075;
  CHECK(judged(findings).empty());
}

TEST_CASE("what follows from a tensor that is wrong anyway is not judged, but where it is waived the others are") {
  std::vector<Finding> findings = gradients(1.0 / 256);
  Finding& other = findings.emplace_back();
  other.id = test::tensor_id(Kind::kOutput, "head");
  other.verdict = Verdict::kFail;
  CHECK(judged(findings).size() == 1);  // the head
  std::vector<Waiver> waivers(1);
  waivers[0].pattern = "head";
  CHECK(judged(findings, waivers).size() == 2);
}

TEST_CASE("each group is one test, and the report counts it") {
  std::vector<Finding> findings = gradients(0);
  judge_coherence(tolerances(), {}, findings);
  const auto tested = std::count_if(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.statistics.back().statistic == Statistic::kCoherence;
  });
  CHECK(tested == static_cast<std::ptrdiff_t>(kNames.size()));
}
