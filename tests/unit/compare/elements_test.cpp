#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "support/differences.h"

namespace {

using namespace ttrace;
using test::Bytes;
using test::difference;
using test::kInf;
using test::kNan;
using test::Shards;

TEST_SUITE("compare") {
  TEST_CASE("NaN and Inf are counted on each side and left out of the sums") {
    const Difference d = difference({1, kNan, kNan, kInf, kInf, -kInf, 2, 3}, {1, kNan, 5, kInf, -kInf, 6, kNan, 4});
    CHECK(d.reference_nan == 2);
    CHECK(d.reference_inf == 3);
    CHECK(d.candidate_nan == 2);
    CHECK(d.candidate_inf == 2);
    CHECK(d.nonfinite_mismatch == 4);  // NaN-5, Inf--Inf, -Inf-6, 2-NaN
    CHECK(d.differing == 5);
    CHECK(d.reference_square == 10);
    CHECK(d.candidate_square == 17);
    CHECK(d.difference_square == 1);
    CHECK(d.worst_index == Shape{7});
    CHECK(d.nonfinite_by_rank == std::map<std::int32_t, std::int64_t>{{0, 4}});
  }

  TEST_CASE("NaN in the same places on both sides is no difference") {
    std::vector<float> values(10000, 2);
    for (std::size_t i = 0; i < values.size(); i += 97) values[i] = kNan;
    const Difference d = difference(values, values);
    CHECK(d.differing == 0);
    CHECK(d.nonfinite_mismatch == 0);
    CHECK(d.rel_err() == 0);
    CHECK(d.candidate_nan == 104);
  }

  TEST_CASE("integers are compared exactly, beyond what fp64 can tell apart") {
    const std::int64_t big = std::int64_t{1} << 60, least = std::numeric_limits<std::int64_t>::min();
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kInt64, {4}), candidate = reference;
    shards.add(reference, test::bytes_of<std::int64_t>({big, big, 7, least}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<std::int64_t>({big, big + 1, 7, least}), {.parts = {1}});
    const Difference d = difference(reference, candidate);
    CHECK(d.differing == 1);
    CHECK(d.max_abs == 1);
    CHECK(d.worst_index == Shape{1});
    CHECK(d.difference_square == 1);
  }

  TEST_CASE("a scalar is compared, an empty tensor has nothing to compare") {
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {}), candidate = reference;
    shards.add(reference, test::bytes_of<float>({3}), {.parts = {}});
    shards.add(candidate, test::bytes_of<float>({4}), {.parts = {}, .first_rank = 5});
    const Difference d = difference(reference, candidate);
    CHECK(d.elements == 1);
    CHECK(d.max_abs == 1);
    CHECK(d.worst_rank == 5);
    LogicalTensor empty = shards.tensor(Dtype::kFloat32, {8, 0});
    shards.add(empty, {}, {.parts = {2, 1}});
    const Difference none = difference(empty, empty);
    CHECK(none.elements == 0);
    CHECK(none.rel_err() == 0);
  }

  TEST_CASE("of equal differences the first in the logical tensor is named, whichever rank holds it") {
    Shards shards;
    const Shape shape = {4, 6};
    std::vector<float> zeros(24, 0), wrong = zeros;
    wrong[4] = wrong[6] = wrong[23] = 1;  // row 0 on rank 1, row 1 on rank 0
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, shape), candidate = reference;
    shards.add(reference, test::bytes_of(zeros), {.parts = {1, 1}});
    shards.add(candidate, test::bytes_of(wrong), {.parts = {1, 2}});
    const Difference d = difference(reference, candidate);
    CHECK(d.worst_index == Shape{0, 4});
    CHECK(d.worst_rank == 1);
    CHECK(d.worst_local_index == Shape{0, 1});
    CHECK(d.square_by_rank == std::map<std::int32_t, double>{{0, 1}, {1, 2}});
  }

  TEST_CASE("an element that no shard holds is never passed over") {
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {4}), candidate = reference;
    shards.add(reference, test::bytes_of<float>({1, 2, 3, 4}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<float>({1, 2, 3, 4}), {.parts = {2}});
    std::vector<Piece> pieces = candidate.pieces();
    pieces.pop_back();
    test::set_pieces(candidate, pieces);
    CHECK_THROWS_WITH(difference(reference, candidate), "layer output, iteration 0: 2 of 4 elements were compared");
  }

  TEST_CASE("what a thread throws arrives at the caller") {
    struct Broken : MappedFile {
      const std::byte* data() const override { return nullptr; }
      std::uint64_t size() const override { return 0; }
      void release(const std::byte*, std::uint64_t) const override { throw std::runtime_error("no"); }
    } broken;
    Shards shards;
    LogicalTensor tensor = shards.tensor(Dtype::kFloat32, {4});
    shards.add(tensor, test::bytes_of<float>({1, 2, 3, 4}), {.parts = {2}});
    std::vector<Piece> pieces = tensor.pieces();
    pieces.back().file = &broken;
    test::set_pieces(tensor, pieces);
    CHECK_THROWS_WITH(difference(tensor, tensor, 3), "no");
  }

  TEST_CASE("all that was read of a mapped file is released") {
    struct Recorded : MappedFile {
      const std::byte* data() const override { return begin; }
      std::uint64_t size() const override { return flags.size(); }
      void release(const std::byte* from, std::uint64_t bytes) const override {
        std::fill_n(flags.begin() + (from - begin), bytes, true);
      }
      const std::byte* begin = nullptr;
      mutable std::vector<bool> flags;
    } file;
    Shards shards;
    LogicalTensor tensor = shards.tensor(Dtype::kInt8, {700, 1000});
    shards.add(tensor, Bytes(700000), {.parts = {1, 1}});
    LogicalTensor candidate = shards.tensor(Dtype::kInt8, {700, 1000});
    shards.add(candidate, Bytes(700000), {.parts = {1, 3}});
    std::vector<Piece> pieces = tensor.pieces();
    file.begin = pieces.front().data;
    file.flags.resize(700000);
    pieces.front().file = &file;
    test::set_pieces(tensor, pieces);
    difference(tensor, candidate);
    CHECK(std::count(file.flags.begin(), file.flags.end(), true) == 700000);
  }

  TEST_CASE("progress ends at all bytes of both sides") {
    Shards shards;
    LogicalTensor tensor = shards.tensor(Dtype::kBFloat16, {4});
    shards.add(tensor, Bytes(8), {.parts = {2}});
    const TensorPair pair{&tensor, &tensor};
    std::uint64_t done = 0, all = 0;
    compare({&pair, 1}, {1, [&](std::uint64_t now, std::uint64_t total) { done = now, all = total; }});
    CHECK(done == 16);
    CHECK(all == 16);
  }
}

}  // namespace
