#include <doctest/doctest.h>

#include <cmath>

#include "support/differences.h"

namespace {

using namespace ttrace;
using test::difference;
using test::kNan;
using test::Shards;

TEST_SUITE("compare") {
  TEST_CASE("copies that agree in value are no disagreement, whatever their bits") {
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {3}), candidate = reference;
    shards.add(reference, test::bytes_of<float>({0, kNan, 1}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<float>({0, kNan, 1}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<float>({-0.0f, -kNan, 1}), {.parts = {1}, .first_rank = 1, .replica = 1});
    const Difference d = difference(reference, candidate);
    CHECK(d.replica_ranks.empty());
    CHECK(d.replica_square == 0);
    CHECK(d.differing == 0);
  }

  TEST_CASE("a wrong second copy fails on its own merits") {
    Shards shards;
    std::vector<float> values(3000, 1), wrong = values;
    wrong[2999] = 4;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {3000}), candidate = reference;
    shards.add(reference, test::bytes_of(values), {.parts = {1}});
    shards.add(candidate, test::bytes_of(values), {.parts = {2}});
    shards.add(candidate, test::bytes_of(values), {.parts = {2}, .first_rank = 2, .replica = 1});
    shards.add(candidate, test::bytes_of(wrong), {.parts = {2}, .first_rank = 4, .replica = 2});
    const Difference d = difference(reference, candidate);
    CHECK(d.replica_ranks == std::vector<std::int32_t>{5});
    CHECK(d.replica_square == 9);
    CHECK(d.rel_err() == doctest::Approx(3 / std::sqrt(3000)));
    CHECK(d.worst_rank == 5);
    CHECK(d.worst_index == Shape{2999});
    CHECK(d.worst_local_index == Shape{1499});
  }

  TEST_CASE("NaN in a second copy only is a mismatch of the tensor") {
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {2}), candidate = reference;
    shards.add(reference, test::bytes_of<float>({1, 2}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<float>({1, 2}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<float>({1, kNan}), {.parts = {1}, .first_rank = 1, .replica = 1});
    const Difference d = difference(reference, candidate);
    CHECK(d.nonfinite_mismatch == 1);
    CHECK(d.candidate_nan == 1);
    CHECK(d.replica_ranks == std::vector<std::int32_t>{1});
  }

  TEST_CASE("a reference whose copies disagree says so") {
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {2}), candidate = reference;
    shards.add(reference, test::bytes_of<float>({1, 2}), {.parts = {1}});
    shards.add(reference, test::bytes_of<float>({1, 5}), {.parts = {1}, .first_rank = 1, .replica = 1});
    shards.add(candidate, test::bytes_of<float>({1, 2}), {.parts = {1}});
    const Difference d = difference(reference, candidate);
    CHECK(d.reference_replica_ranks == std::vector<std::int32_t>{1});
    CHECK(d.reference_replica_square == 9);
    CHECK(d.replica_ranks.empty());
    CHECK(d.rel_err() == 0);
  }
}

}  // namespace
