// A backward that is wrong though all that the forward made, and what came back to it, is right.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "diagnose/root_causes.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

struct OfModule {
  float output = 1, grad_output = 1, loss = 1;
  std::vector<float> grad_input = {1, -2, 5, 3, -7, 2, 9, 4};
};

// One process with a module that computes a loss.
Trace trace_with_loss(const OfModule& values) {
  Trace trace = mesh_trace("", 1);
  add_tensor(trace, 0, tensor_id(Kind::kInput, "Contrast", 0), {8}, {1, 2, 3, 4, 5, 6, 7, 8});
  add_tensor(trace, 0, tensor_id(Kind::kOutput, "Contrast", 0), {1}, {values.output});
  add_tensor(trace, 0, tensor_id(Kind::kScalar, "loss", 0), {}, {values.loss});
  add_tensor(trace, 0, tensor_id(Kind::kGradOutput, "Contrast", 0), {1}, {values.grad_output});
  add_tensor(trace, 0, tensor_id(Kind::kGradInput, "Contrast", 0), {8}, values.grad_input);
  return trace;
}

std::string sentence_of_gradient(const OfModule& candidate) {
  const Trace one = trace_with_loss({}), two = trace_with_loss(candidate);
  Report report = checked(one, two, "");
  const Alignment reference = align(one, annotations(""), {}),
                  other = align(two, annotations(""), layout_of(reference));
  add_root_causes(report, {reference, other, two.mesh, {}});
  REQUIRE_FALSE(report.explanation.roots.empty());
  return report.explanation.roots[0].sentence;
}

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("a backward that is wrong by itself is told from one that is given something wrong") {
  const OfModule lost = {.grad_input = {2, 0.5, 1, 2, 2, 4, 1, 1}};
  CHECK(has(sentence_of_gradient(lost),
            "what Contrast was given and returned is right, and what came back to it, so that its "
            "backward is wrong by itself"));
  OfModule also = lost;
  also.output = 3;
  CHECK_FALSE(has(sentence_of_gradient(also), "its backward is wrong by itself"));
  also = lost;
  also.grad_output = 3;
  CHECK_FALSE(has(sentence_of_gradient(also), "its backward is wrong by itself"));
}

TEST_SUITE_END();
