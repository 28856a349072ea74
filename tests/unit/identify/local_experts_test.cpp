// Experts that each rank numbers from 0: which of the reference's they are.
#include "identify/local_experts.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "align/shard_mapping.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// Adds experts 0, 1, ... of two layers, which begin with these values and one more in the second layer.
void add_experts(Trace& trace, std::size_t rank, const std::vector<float>& begin, float step = 1) {
  for (const int layer : {0, 1}) {
    for (std::size_t number = 0; number < begin.size(); ++number) {
      const std::string name = "layers." + std::to_string(layer) + ".moe.experts." + std::to_string(number) + ".w";
      const float value = begin[number] + static_cast<float>(layer);
      add_tensor(trace, rank, tensor_id(Kind::kParam, name), {2}, {value, 1});
      add_tensor(trace, rank, tensor_id(Kind::kParamAfter, name), {2}, {value - step, 1});
    }
  }
}

Trace of_one_rank(const std::vector<float>& begin) {
  Trace trace = mesh_trace("", 1);
  add_experts(trace, 0, begin);
  return trace;
}

Trace of_ranks(const std::string& mesh, const std::vector<std::vector<float>>& begin, float more_step = 0) {
  Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(begin.size()));
  for (std::size_t rank = 0; rank < begin.size(); ++rank) {
    add_experts(trace, rank, begin[rank], 1 + more_step * static_cast<float>(rank));
  }
  return trace;
}

// The line that is told, with "?" behind it where the bytes do not tell it; "" where there is none.
std::string line_for(const Trace& reference, const Trace& candidate) {
  const Alignment whole = align(reference, {}, {});
  const auto local = find_local_experts(whole, candidate);
  if (!local) return "";
  return local->line() + (local->told ? "" : "?");
}

const Trace kFourExperts = of_one_rank({10, 20, 30, 40});
const std::string kAlongTp = "experts: {axis: tp, layers: moe.experts}";

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("experts that each rank numbers from 0 are the parts whose bytes they begin with") {
  CHECK(line_for(kFourExperts, of_ranks("tp=2", {{10, 20}, {30, 40}})) == kAlongTp);
  CHECK(line_for(kFourExperts, of_ranks("tp=4", {{10}, {20}, {30}, {40}})) == kAlongTp);
}

TEST_CASE("of several axes the one is told along which they lie") {
  CHECK(line_for(kFourExperts, of_ranks("tp=2,dp=2", {{10, 20}, {30, 40}, {10, 20}, {30, 40}})) == kAlongTp);
  CHECK(line_for(kFourExperts, of_ranks("dp=2,tp=2", {{10, 20}, {10, 20}, {30, 40}, {30, 40}})) == kAlongTp);
  CHECK(line_for(kFourExperts, of_ranks("tp=2,dp=2/ep=4", {{10}, {20}, {30}, {40}})) ==
        "experts: {axis: ep, layers: moe.experts}");
}

TEST_CASE("experts in another order, with other bytes, or that all begin alike are asked about") {
  CHECK(line_for(kFourExperts, of_ranks("tp=2", {{30, 40}, {10, 20}})) == kAlongTp + "?");
  CHECK(line_for(kFourExperts, of_ranks("tp=2", {{10, 20}, {30, 41}})) == kAlongTp + "?");
  CHECK(line_for(of_one_rank({5, 5, 5, 5}), of_ranks("tp=2", {{5, 5}, {5, 5}}, 1)) == kAlongTp + "?");
}

TEST_CASE("ranks that hold the same experts have forgotten the others") {
  CHECK(line_for(kFourExperts, of_ranks("tp=2", {{10, 20}, {10, 20}})) == "");
  CHECK(line_for(kFourExperts, of_ranks("tp=2", {{10, 20}, {10, 20}}, 1)) == "");
  CHECK(line_for(of_one_rank({5, 5, 5, 5}), of_ranks("tp=2", {{5, 5}, {5, 5}})) == "");
}

TEST_CASE("all experts on each rank, or numbers that add up to others than the reference's, are none of these") {
  CHECK(line_for(kFourExperts, of_ranks("tp=2", {{10, 20, 30, 40}, {10, 20, 30, 40}})) == "");
  CHECK(line_for(kFourExperts, of_ranks("tp=2", {{10}, {20}})) == "");
  CHECK(line_for(kFourExperts, of_ranks("tp=2", {{10, 20, 30}, {40}})) == "");
}

TEST_CASE("layers that stages of a pipeline number from 0 are no experts") {
  CHECK(line_for(kFourExperts, of_ranks("pp=2", {{10, 20}, {30, 40}})) == "");
}
TEST_SUITE_END();
