// An iteration that is given more samples, or fewer, than the reference's.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "diagnose/root_causes.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// One process whose model is given so many samples in each of its micro-batches, the first of which has this number.
Trace trace_given(const std::vector<std::int64_t>& samples, float first = 1) {
  Trace trace = mesh_trace("", 1);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::vector<float> values;
    for (std::int64_t k = 0; k < 4 * samples[i]; ++k) values.push_back(first + static_cast<float>(k * k % 13));
    add_tensor(trace, 0, tensor_id(Kind::kInput, "(model)", static_cast<std::int32_t>(i)), {samples[i], 4}, values);
  }
  return trace;
}

std::string sentence_about_batch(const Trace& one, const Trace& two) {
  Report report = checked(one, two, "");
  const Alignment reference = align(one, annotations(""), {}),
                  candidate = align(two, annotations(""), layout_of(reference));
  add_root_causes(report, {reference, candidate, two.mesh, {}});
  REQUIRE_FALSE(report.explanation.roots.empty());
  return report.explanation.roots[0].sentence;
}

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("a batch of another size is said, whatever micro-batches it comes in") {
  CHECK(has(
      sentence_about_batch(trace_given({8, 8}), trace_given({16, 16})),
      "the candidate's model is given 32 samples in the iteration, and the reference's 16 (dimension 0 of (model))"));
  CHECK_FALSE(has(sentence_about_batch(trace_given({8, 8}), trace_given({8, 8}, 2)), "samples in the iteration"));
}

TEST_SUITE_END();
