#include <doctest/doctest.h>

#include "identify/samples.h"

namespace ttrace {

TEST_SUITE_BEGIN("identify");

TEST_CASE("own lengths are followed through a stride, where one makes all of them") {
  SampleOrders orders;
  orders.lengths[{0, 0}][57] = {{56, 57}};
  const auto are_own = [&](std::int64_t extent, const std::vector<std::int64_t>& own) {
    TensorId id;
    id.kind = Kind::kOutput;
    id.iteration = 0;
    id.microbatch = 0;
    return orders.are_own_lengths(id, extent, own);
  };
  CHECK(are_own(57, {56, 57}));
  CHECK(are_own(29, {28, 29}));        // floor((L + 1) / 2)
  CHECK(are_own(15, {14, 15}));        // of two of them
  CHECK_FALSE(are_own(29, {29, 29}));  // nothing to cut
  CHECK_FALSE(are_own(29, {29, 28}));  // of other ranks
  CHECK_FALSE(are_own(29, {27, 29}));  // no stride from 2 on makes two steps of one
  CHECK_FALSE(are_own(12, {6, 6}));    // halves of something else
}

TEST_SUITE_END();

}  // namespace ttrace
