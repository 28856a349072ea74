#include "merge/elements.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "merge/region.h"
#include "support/shards.h"

using namespace ttrace;
using test::counted;

TEST_SUITE_BEGIN("merge");

namespace {

template <class Number>
std::vector<Number> numbers_of(const Elements& elements) {
  std::vector<Number> numbers(static_cast<std::size_t>(elements.bytes()) / sizeof(Number));
  elements.copy_to(reinterpret_cast<std::byte*>(numbers.data()));
  return numbers;
}

}  // namespace

TEST_CASE("elements of shards have the recorded dtype, and the order of the logical tensor") {
  test::Shards shards;
  const LogicalTensor tensor = counted(shards, {4, 3}, {{.parts = {2, 3}, .margin = 1}});
  const Elements elements(region_of(tensor, {{1, 1}, {2, 2}}));
  REQUIRE(elements.dtype() == Dtype::kInt32);
  CHECK(elements.shape() == Shape{2, 2});
  CHECK(numbers_of<std::int32_t>(elements) == std::vector<std::int32_t>{4, 5, 7, 8});
}

TEST_CASE("elements that ranks hold transposed are put in order") {
  test::Shards shards;
  LogicalTensor tensor = counted(shards, {2, 3}, {{.parts = {1, 1}}});
  std::vector<Piece> pieces = tensor.pieces();
  tensor.shape = pieces[0].logical.size = {3, 2};
  pieces[0].strides = {1, 3};
  test::set_pieces(tensor, pieces);
  CHECK(numbers_of<std::int32_t>(Elements(tensor)) == std::vector<std::int32_t>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("sums of terms, and what was recorded with a scale, are computed in float64") {
  test::Shards shards;
  LogicalTensor sum = counted(shards, {4}, {{.parts = {2}}, {.parts = {4}, .first_rank = 2, .term = 1}});
  REQUIRE(Elements(sum).dtype() == Dtype::kFloat64);
  CHECK(numbers_of<double>(Elements(sum)) == std::vector<double>{0, 2, 4, 6});

  LogicalTensor scaled = counted(shards, {3}, {{.parts = {1}}});
  scaled.scale = 2;
  CHECK(numbers_of<double>(Elements(scaled)) == std::vector<double>{0, 0.5, 1});
}

TEST_CASE("an empty region has no elements") {
  test::Shards shards;
  const LogicalTensor tensor = counted(shards, {4}, {{.parts = {2}}});
  CHECK(numbers_of<std::int32_t>(Elements(region_of(tensor, {{2}, {0}}))).empty());
}

TEST_SUITE_END();
