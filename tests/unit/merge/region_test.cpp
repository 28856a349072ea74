#include "merge/region.h"

#include <doctest/doctest.h>

#include "merge/values.h"
#include "support/shards.h"

using namespace ttrace;
using test::counted;

TEST_SUITE_BEGIN("merge");

TEST_CASE("a region has the elements of its box, whichever ranks hold them") {
  test::Shards shards;
  const LogicalTensor tensor = counted(shards, {6, 5}, {{.parts = {3, 2}, .margin = 1}});
  CHECK(values_of(region_of(tensor, {{1, 1}, {4, 3}})) == Values{6, 7, 8, 11, 12, 13, 16, 17, 18, 21, 22, 23});
  CHECK(values_of(region_of(tensor, {{5, 4}, {1, 1}})) == Values{29});
  CHECK(region_of(tensor, {{2, 0}, {2, 1}}).pieces().size() == 1);  // of the six
}

TEST_CASE("a region of a scalar is the scalar") {
  test::Shards shards;
  const LogicalTensor tensor = counted(shards, {}, {{.parts = {}}});
  CHECK(values_of(region_of(tensor, whole_box({}))) == Values{0});
}

TEST_CASE("a region adds the terms of its elements") {
  test::Shards shards;
  const LogicalTensor tensor = counted(shards, {4}, {{.parts = {2}}, {.parts = {4}, .first_rank = 2, .term = 1}});
  CHECK(values_of(region_of(tensor, {{1}, {2}})) == Values{2, 4});
}

TEST_CASE("held rows follow each other") {
  test::Shards shards;
  LogicalTensor tensor = counted(shards, {3, 2}, {{.parts = {3, 1}}});
  std::vector<Piece> pieces = tensor.pieces();
  tensor.shape = {100, 2};
  tensor.rows = {7, 40, 99};
  for (std::size_t i = 0; i < 3; ++i) pieces[i].logical.start[0] = (*tensor.rows)[i];
  test::set_pieces(tensor, pieces);
  const LogicalTensor held = held_rows_of(tensor);
  CHECK(held.shape == Shape{3, 2});
  CHECK(values_of(held) == Values{0, 1, 2, 3, 4, 5});
}

TEST_SUITE_END();
