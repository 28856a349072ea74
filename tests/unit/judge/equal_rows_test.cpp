// Rows that are the same in all samples, of which a program goes on with some: their gradient comes back to these.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "judge/judge.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

using Rows = std::vector<float>;

// What a module returns for four samples, [4, 2], of which the first value is the same in all, and its gradient.
Trace run_of(const char* mesh, const Rows& gradient, float of_weight) {
  Trace trace = mesh_trace(mesh, *mesh == '\0' ? 1 : 2);
  const auto ranks = static_cast<std::int64_t>(trace.ranks.size());
  const Rows values = {5, 1, 5, 2, 5, 3, 5, 4};
  const std::int64_t share = 8 / ranks;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const auto part = [&](const Rows& whole) {
      return Rows(whole.begin() + rank * share, whole.begin() + (rank + 1) * share);
    };
    const auto of_rank = static_cast<std::size_t>(rank);
    test::add_tensor(trace, of_rank, tensor_id(Kind::kOutput, "fc", 0), {share / 2, 2}, part(values));
    test::add_tensor(trace, of_rank, tensor_id(Kind::kGradOutput, "fc", 0), {share / 2, 2}, part(gradient));
    test::add_tensor(trace, of_rank, tensor_id(Kind::kMainGrad, "fc.weight"), {1}, {of_weight});
  }
  return trace;
}

std::vector<std::string> found_with(const Rows& gradient, float of_weight = 3) {
  const Rows whole = {3, 1, 2, 2, 0, 3, 0, 4};
  const std::string text = "fc: {output: {dp_dim: 0}, grad_output: {dp_dim: 0}}";
  return findings_in(checked(run_of("", whole, 3), run_of("dp=2", gradient, of_weight), text));
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("the gradient of equal rows may come back to others of them") {
  CHECK(found_with({3, 1, 0, 2, 2, 3, 0, 4}).empty());
  CHECK_FALSE(found_with({3, 1, 0, 2, 1, 3, 0, 4}).empty());  // some of it is lost
  CHECK_FALSE(found_with({3, 2, 2, 1, 0, 3, 0, 4}).empty());  // of values that differ
  CHECK_FALSE(found_with({3, 1, 0, 2, 2, 3, 0, 4}, 2).empty());
}

TEST_SUITE_END();
