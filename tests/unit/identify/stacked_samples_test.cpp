// Tensors of several blocks of the batch, one behind the other.
#include <doctest/doctest.h>

#include <vector>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const TensorId kGiven = tensor_id(Kind::kInput, "(model)", 0);
const TensorId kCrops = tensor_id(Kind::kInput, "head", 0);
const TensorId kLogits = tensor_id(Kind::kOutput, "head", 0);

using Numbers = std::vector<std::size_t>;

// Adds to a rank what one process with these samples has of the batch, and of two crops of each: one behind the other,
// or those of a sample together. `rounding` makes them computed ones.
void add_crops(Trace& trace, std::size_t rank, const Numbers& samples, bool together, float rounding = 0) {
  const auto n = std::ssize(samples);
  std::vector<float> given, crops, logits;
  for (const std::size_t sample : samples) {
    given.push_back(static_cast<float>(sample) + 1);
    given.push_back(static_cast<float>(sample * sample) - 7);
  }
  for (std::ptrdiff_t row = 0; row < 2 * n; ++row) {
    const auto sample = static_cast<float>(samples[static_cast<std::size_t>(together ? row / 2 : row % n)]);
    const auto crop = static_cast<float>(together ? row % 2 : row / n);
    crops.push_back((3 * sample - 10 * crop) * (1 + rounding));
    crops.push_back(sample * sample + 5 * crop);
    logits.push_back(sample + 20 * crop);
  }
  add_tensor(trace, rank, kGiven, {n, 2}, given);
  add_tensor(trace, rank, kCrops, {2 * n, 2}, crops);
  add_tensor(trace, rank, kLogits, {2 * n}, logits);
}

Trace one_process(bool together) {
  Trace trace = mesh_trace("", 1);
  add_crops(trace, 0, {0, 1, 2, 3, 4, 5}, together);
  return trace;
}

Trace two_ranks(const Numbers& first, const Numbers& second, bool together, float rounding = 0) {
  Trace trace = mesh_trace("dp=2", 2);
  add_crops(trace, 0, first, together, rounding);
  add_crops(trace, 1, second, together, rounding);
  return trace;
}

const std::string kNothingSaid;

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("crops one behind the other, and rows of a sample together, are told apart however the samples are dealt") {
  const std::vector<std::pair<Numbers, Numbers>> deals = {
      {{0, 1, 2}, {3, 4, 5}}, {{0, 2, 4}, {1, 3, 5}}, {{4, 1, 0}, {5, 3, 2}}};
  for (const bool together : {false, true}) {
    for (const float rounding : {0.0F, 1e-7F}) {
      for (const auto& [first, second] : deals) {
        const Trace candidate = two_ranks(first, second, together, rounding);
        CAPTURE(together);
        CAPTURE(rounding);
        const auto found = findings_in(checked(one_process(together), candidate, kNothingSaid));
        CHECK(found.size() ==
              (rounding > 0 ? 1 : 0));  // nothing is allowed here: what is rounded otherwise fails itself
        for (const std::string& text : found) CHECK(has(text, "head input"));
      }
    }
  }
}

TEST_CASE("crops of other samples on one rank are no other order") {
  Trace candidate = mesh_trace("dp=2", 2);
  add_crops(candidate, 0, {0, 2, 4}, false);
  add_crops(candidate, 1, {1, 3, 3}, false);
  const Report report = checked(one_process(false), candidate, kNothingSaid);
  CHECK(!report.same());
  for (const Finding& finding : report.findings) {
    if (finding.id == kCrops || finding.id == kLogits) CHECK(finding.ranks == std::vector<std::int32_t>{1});
  }
}

TEST_SUITE_END();
