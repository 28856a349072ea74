#include "judge/bits.h"

#include <doctest/doctest.h>

#include <cmath>

#include "judge/judge.h"
#include "support/differences.h"
#include "support/mesh_trace.h"

namespace {

using namespace ttrace;
using test::bytes_of;

struct HeldToBits {
  Finding finding;
  BitDifference bits;
};

HeldToBits held_to_bits(const LogicalTensor& reference, const LogicalTensor& candidate) {
  const TensorPair pair{&reference, &candidate};
  const std::vector<Difference> differences = {test::difference(reference, candidate)};
  HeldToBits result{judge(pair, differences[0], nullptr), compare_bits({&pair, 1}, differences, 1)[0]};
  hold_to_bits(pair, result.bits, result.finding);
  return result;
}

// Each side is on one rank.
template <class T>
HeldToBits held_to_bits_of(const std::vector<T>& reference, const std::vector<T>& candidate, Dtype dtype) {
  test::Shards shards;
  const Shape shape = {static_cast<std::int64_t>(reference.size())};
  LogicalTensor a = shards.tensor(dtype, shape), b = a;
  a.id = b.id = test::tensor_id(Kind::kOutput, "mlp", 0);
  shards.add(a, bytes_of(reference), {.parts = {1}});
  shards.add(b, bytes_of(candidate), {.parts = {1}});
  return held_to_bits(a, b);
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("equal bits pass, and other bits fail by a count of units in the last place") {
  CHECK(held_to_bits_of<float>({1, 2, 3}, {1, 2, 3}, Dtype::kFloat32).finding.verdict == Verdict::kPass);
  const HeldToBits two =
      held_to_bits_of<float>({1, 2, 3}, {1, 2, std::nextafter(std::nextafter(3.F, 4.F), 4.F)}, Dtype::kFloat32);
  CHECK(two.finding.verdict == Verdict::kFail);
  CHECK(two.bits.most_units == 2);
  CHECK(two.bits.index == std::vector<std::int64_t>{2});
  CHECK(two.finding.message.find("1 of 3 elements have other bits, by up to 2 units in the last place of float32, at "
                                 "[2]") != std::string::npos);
  // Across zero the smallest numbers are neighbours: 1 unit below and 2 above.
  CHECK(held_to_bits_of<std::uint16_t>({0x8001}, {0x0002}, Dtype::kBFloat16).bits.most_units == 3);
}

TEST_CASE("zeros of two signs are equal in value and not in their bits") {
  const HeldToBits zeros = held_to_bits_of<float>({0.F, 1.F}, {-0.F, 1.F}, Dtype::kFloat32);
  CHECK(zeros.finding.verdict == Verdict::kFail);
  CHECK(zeros.bits.most_units == 0);
  CHECK(zeros.finding.message.find("of the same value: zeros of another sign") != std::string::npos);
}

TEST_CASE("a sum over ranks has no bits: it passes by its value, and else nothing is said of its order") {
  test::Shards shards;
  LogicalTensor reference = shards.tensor(Dtype::kFloat32, {2}), candidate = reference, other = reference;
  reference.id = candidate.id = other.id = test::tensor_id(Kind::kOutput, "mlp", 0);
  shards.add(reference, bytes_of<float>({3, 5}), {.parts = {1}});
  shards.add(candidate, bytes_of<float>({1, 2}), {.parts = {1}, .first_rank = 0, .term = 0});
  shards.add(candidate, bytes_of<float>({2, 3}), {.parts = {1}, .first_rank = 1, .term = 1});
  CHECK(held_to_bits(reference, candidate).finding.verdict == Verdict::kPass);
  shards.add(other, bytes_of<float>({1, 2}), {.parts = {1}, .first_rank = 0, .term = 0});
  shards.add(other, bytes_of<float>({2, 3.000001F}), {.parts = {1}, .first_rank = 1, .term = 1});
  const HeldToBits sum = held_to_bits(reference, other);
  CHECK(sum.finding.reason == Reason::kNotCheckable);
  SumsWithoutBits sums({});
  CHECK(sums.take(sum.bits, sum.finding));
  CHECK(sums.waived() == 1);
}

TEST_SUITE_END();
