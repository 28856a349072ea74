// What nothing averages over ranks has no factor of the loss.
#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "judge/judge.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// A parameter of which each of two ranks has half, or one process all: the gradient that was recorded of it in the
// micro-batch, times `factor`, and what its step takes, times `taken`.
Trace with_gradients(const char* mesh, float factor, float taken) {
  const std::size_t ranks = std::string(mesh).empty() ? 1 : 2;
  Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(ranks));
  const std::vector<float> whole = {3, 5, 7, 11};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto add = [&](Kind kind, std::int32_t microbatch, float times) {
      std::vector<float> part(whole.begin() + static_cast<std::ptrdiff_t>(rank * whole.size() / ranks),
                              whole.begin() + static_cast<std::ptrdiff_t>((rank + 1) * whole.size() / ranks));
      for (float& value : part) value *= times;
      test::add_tensor(trace, rank, tensor_id(kind, "head.weight", microbatch), {std::ssize(part)}, part);
      trace.ranks[rank].entries.back().checksum = static_cast<std::uint64_t>(part[0] * 8);
    };
    add(Kind::kParamGrad, 0, factor);
    add(Kind::kMainGrad, kNoMicrobatch, taken);
  }
  return trace;
}

Report checked_half(float factor, float taken) {
  return checked(with_gradients("", 1, 1), with_gradients("dp=2", factor, taken),
                 "{\"**\": {dp_dim: 0}, parallelism: {loss_scale: dp}}");
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a gradient that the step takes as it was recorded has no factor of the loss, where the step is right") {
  const Report report = checked_half(1, 1);
  CHECK(report.same());
  CHECK(has(report.notes.back(), "as the step takes them"));
}

TEST_CASE("it has where something divides it before the step, and where the step takes something wrong") {
  CHECK(checked_half(2, 1).same());
  CHECK(findings_in(checked_half(2, 2)) == std::vector<std::string>{"head.weight main_grad: exceeds-tolerance"});
  CHECK(findings_in(checked_half(0.5F, 1)) == std::vector<std::string>{"head.weight param_grad: exceeds-tolerance"});
}

TEST_SUITE_END();
