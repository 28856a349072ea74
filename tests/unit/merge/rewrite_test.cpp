#include "merge/rewrite.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "merge/values.h"
#include "numeric/convert.h"
#include "support/shards.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("merge");

namespace {

Rewriting recorded() {
  Rewriting rewriting;
  rewriting.activations = RewriteValues::kRecorded;
  return rewriting;
}

Rewriting generated(std::uint64_t seed) {
  Rewriting rewriting;
  rewriting.activations = RewriteValues::kGenerated;
  rewriting.seed = seed;
  return rewriting;
}

// Returns `layout` over the rewritten bytes of the ranks, which must outlive it.
LogicalTensor over(const LogicalTensor& layout, const std::vector<RewrittenShard>& shards) {
  std::vector<Piece> pieces = layout.pieces();
  for (Piece& piece : pieces) {
    for (const RewrittenShard& shard : shards) {
      if (shard.entry == piece.entry) piece.data = shard.bytes.data();
    }
  }
  LogicalTensor tensor = layout;
  set_pieces(tensor, std::move(pieces));
  return tensor;
}

LogicalTensor input(Shards& shards, Dtype dtype, Shape shape) {
  LogicalTensor tensor = shards.tensor(dtype, std::move(shape));
  tensor.id = {0, 1, 0, Pass::kForward, Kind::kInput, "decoder"};
  return tensor;
}

}  // namespace

TEST_CASE("every rank of any layout is given its own part of what the reference recorded") {
  std::mt19937_64 random(7);
  const Shape shape = {6, 4, 10};
  for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16}) {
    Shards shards;
    LogicalTensor reference = input(shards, dtype, shape);
    shards.add(reference, random_elements(random, dtype, 240), {{1, 1, 1}});
    for (const Shape& parts : {Shape{2, 1, 1}, Shape{1, 2, 3}, Shape{4, 3, 2}}) {
      LogicalTensor layout = input(shards, dtype, shape);
      shards.add(layout, random_elements(random, dtype, 240), {parts, 0, 0, 0, /*margin=*/2});
      shards.add(layout, random_elements(random, dtype, 240), {{1, 1, 2}, 50, /*replica=*/1});
      const std::vector<RewrittenShard> given = rewritten_shards(reference, layout, recorded());
      const LogicalTensor result = over(layout, given);
      CHECK(values_of(result, 0) == values_of(reference));
      CHECK(values_of(result, 1) == values_of(reference));
    }
  }
}

TEST_CASE("padding keeps what the run had there") {
  Shards shards;
  LogicalTensor reference = input(shards, Dtype::kFloat32, {4});
  shards.add(reference, bytes_of(std::vector<float>{1, 2, 3, 4}), {{1}});
  LogicalTensor layout = input(shards, Dtype::kFloat32, {4});
  shards.add(layout, bytes_of(std::vector<float>{9, 9, 9, 9}), {{1}, 0, 0, 0, /*margin=*/1});
  const std::vector<RewrittenShard> given = rewritten_shards(reference, layout, recorded());
  const Piece piece = layout.pieces()[0];
  REQUIRE(given.size() == 1);
  REQUIRE(given[0].bytes.size() == 24);
  CHECK(std::equal(piece.data, piece.data + 4, given[0].bytes.begin()));  // the element before the piece
  CHECK(std::equal(piece.data + 20, piece.data + 24, given[0].bytes.begin() + 20));
  CHECK(values_of(over(layout, given)) == Values{1, 2, 3, 4});
}

TEST_CASE("partial values are given so that their sum is the reference's") {
  Shards shards;
  LogicalTensor reference = input(shards, Dtype::kFloat32, {3});
  shards.add(reference, bytes_of(std::vector<float>{1, 2, 3}), {{1}});
  LogicalTensor layout = input(shards, Dtype::kFloat32, {3});
  shards.add(layout, bytes_of(std::vector<float>{5, 5, 5}), {{1}, 0, 0, /*term=*/0});
  shards.add(layout, bytes_of(std::vector<float>{7, 7, 7}), {{1}, 1, 0, /*term=*/1});
  const std::vector<RewrittenShard> given = rewritten_shards(reference, layout, recorded());
  CHECK(values_of(over(layout, given)) == Values{1, 2, 3});
}

TEST_CASE("a declared scale is put on what a run is given") {
  Shards shards;
  LogicalTensor reference = input(shards, Dtype::kFloat32, {2});
  shards.add(reference, bytes_of(std::vector<float>{1, 2}), {{1}});
  LogicalTensor layout = input(shards, Dtype::kBFloat16, {2});
  shards.add(layout, Bytes(4), {{1}});
  layout.scale = 8;
  const std::vector<RewrittenShard> given = rewritten_shards(reference, layout, recorded());
  Values recorded_values(2);
  widen(given.at(0).bytes.data(), Dtype::kBFloat16, 2, recorded_values.data());
  CHECK(recorded_values == Values{8, 16});
}

TEST_CASE("generated values have the reference's norm and are the same in every layout") {
  std::mt19937_64 random(5);
  Shards shards;
  LogicalTensor reference = input(shards, Dtype::kFloat32, {8, 16});
  shards.add(reference, random_elements(random, Dtype::kFloat32, 128, 40.0), {{1, 1}});
  LogicalTensor whole = input(shards, Dtype::kFloat32, {8, 16}), cut = whole;
  shards.add(whole, Bytes(512), {{1, 1}});
  shards.add(cut, Bytes(512), {{4, 2}});
  const auto values = [&](const LogicalTensor& layout, std::uint64_t seed) {
    const std::vector<RewrittenShard> given = rewritten_shards(reference, layout, generated(seed));
    return values_of(over(layout, given));
  };
  CHECK(values(whole, 1) == values(cut, 1));
  CHECK(values(whole, 1) != values(whole, 2));
  CHECK(relative_distance(values(whole, 1), values_of(reference)) > 0.5);
  CHECK(norm_of(values(whole, 1)) == doctest::Approx(norm_of(values_of(reference))).epsilon(1e-6));
}

TEST_CASE("masks, constants and what is not finite are never generated") {
  Shards shards;
  const auto unchanged = [&](const std::vector<float>& values) {
    LogicalTensor reference = input(shards, Dtype::kFloat32, {static_cast<std::int64_t>(values.size())});
    shards.add(reference, bytes_of(values), {{1}});
    const std::vector<RewrittenShard> given = rewritten_shards(reference, reference, generated(1));
    return given.at(0).bytes == bytes_of(values);
  };
  CHECK(unchanged({0, -10000, 0, -10000}));
  CHECK(unchanged({0, -INFINITY, 0, 1}));
  CHECK(unchanged({1, 1, 1}));
  CHECK(unchanged({0, 0, 0}));
  CHECK_FALSE(unchanged({1, 2, 3}));
}

TEST_CASE("perturbed values differ by at most the dtype's epsilon, relative, and by the seed") {
  std::mt19937_64 random(5);
  Shards shards;
  LogicalTensor reference = input(shards, Dtype::kFloat32, {512});
  shards.add(reference, random_elements(random, Dtype::kFloat32, 512), {{1}});
  Rewriting rewriting = recorded();
  const auto values = [&](std::uint64_t seed) {
    rewriting.perturb = seed;
    const std::vector<RewrittenShard> given = rewritten_shards(reference, reference, rewriting);
    return values_of(over(reference, given));
  };
  CHECK(values(1) == values(1));
  CHECK(values(1) != values(2));
  const double distance = relative_distance(values(1), values_of(reference));
  CHECK(distance > 0.3 * epsilon_of(Dtype::kFloat32));
  CHECK(distance < 1.1 * epsilon_of(Dtype::kFloat32));
}

TEST_CASE("integers are given only when asked for, exactly, or refused") {
  Shards shards;
  LogicalTensor tokens = input(shards, Dtype::kInt64, {3});
  const std::vector<std::int64_t> ids = {5, 1 << 20, -1};
  shards.add(tokens, bytes_of(ids), {{1}});
  Rewriting rewriting = recorded();
  CHECK_FALSE(is_rewritten(tokens, rewriting));
  rewriting.integers = true;
  CHECK(is_rewritten(tokens, rewriting));
  LogicalTensor layout = input(shards, Dtype::kInt64, {3});
  shards.add(layout, Bytes(24), {{3}});
  const std::vector<RewrittenShard> given = rewritten_shards(tokens, layout, rewriting);
  CHECK(values_of(over(layout, given)) == Values{5, 1 << 20, -1});

  LogicalTensor large = input(shards, Dtype::kInt64, {1});
  shards.add(large, bytes_of(std::vector<std::int64_t>{(std::int64_t{1} << 60) + 1}), {{1}});
  CHECK_THROWS_AS(rewritten_shards(large, large, rewriting), InputError);
}

TEST_CASE("inputs and output gradients are rewritten, parameters when asked for, nothing else") {
  Shards shards;
  LogicalTensor tensor = input(shards, Dtype::kFloat32, {3});
  Rewriting rewriting = recorded();
  CHECK(is_rewritten(tensor, rewriting));
  tensor.id.kind = Kind::kGradOutput;
  CHECK(is_rewritten(tensor, rewriting));
  tensor.id.kind = Kind::kParam;
  CHECK_FALSE(is_rewritten(tensor, rewriting));
  rewriting.parameters = RewriteValues::kRecorded;
  CHECK(is_rewritten(tensor, rewriting));
  for (const Kind kind : {Kind::kOutput, Kind::kGradInput, Kind::kParamGrad, Kind::kScalar}) {
    tensor.id.kind = kind;
    CHECK_FALSE(is_rewritten(tensor, rewriting));
  }
}

TEST_SUITE_END();
