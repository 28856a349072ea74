#include "numeric/shape.h"

#include <doctest/doctest.h>

using namespace ttrace;

TEST_SUITE_BEGIN("numeric");

TEST_CASE("the last dimension's elements lie beside each other") {
  CHECK(row_major_strides({2, 3, 4}) == Shape{12, 4, 1});
  CHECK(row_major_strides({}) == Shape{});
  CHECK(row_major_strides({2, 0}) == Shape{0, 1});
}

TEST_CASE("an element's index leads back to its position") {
  const Shape shape = {2, 3, 4}, strides = row_major_strides(shape);
  for (std::int64_t position = 0; position < element_count(shape); ++position) {
    const Shape index = index_at(position, shape);
    CHECK(index[0] * strides[0] + index[1] * strides[1] + index[2] * strides[2] == position);
    for (std::size_t d = 0; d < shape.size(); ++d) CHECK((index[d] >= 0 && index[d] < shape[d]));
  }
  CHECK(index_at(23, shape) == Shape{1, 2, 3});
  CHECK(index_at(0, {}) == Shape{});
}

TEST_SUITE_END();
