#include "align/flat_rows.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const TensorId kFlatLogits = tensor_id(Kind::kInput, "CrossEntropyLoss", 0);

// Four samples of up to 5 positions, which two ranks have in turns: the second padded its own to 3.
SampleOrders in_turns() {
  SampleOrders orders;
  orders.told[{0, 0}][4] = {0, 2, 1, 3};
  orders.lengths[{0, 0}][5].insert({5, 3});
  return orders;
}

using RowNumbers = std::vector<std::int64_t>;

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("flat rows are the positions of each sample, as long as the rank's own are") {
  const auto flat = flat_rows(in_turns(), kFlatLogits, 20, {10, 6});
  REQUIRE(flat);
  CHECK(flat->dropped == RowNumbers{8, 9, 18, 19});
  CHECK(flat->rows == RowNumbers{0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 5, 6, 7, 13, 14, 15});
}

TEST_CASE("labels of the next token are one position shorter on all ranks") {
  const auto flat = flat_rows(in_turns(), kFlatLogits, 16, {8, 4});
  REQUIRE(flat);
  CHECK(flat->dropped == RowNumbers{6, 7, 14, 15});
}

TEST_CASE("other numbers of rows are not those of the samples") {
  for (const RowNumbers& own : {RowNumbers{10, 7}, RowNumbers{10, 3}, RowNumbers{10, 10}, RowNumbers{6, 10}}) {
    CHECK(!flat_rows(in_turns(), kFlatLogits, 20, own));
  }
  CHECK(!flat_rows(in_turns(), kFlatLogits, 22, {10, 6}));
  CHECK(!flat_rows(SampleOrders{}, kFlatLogits, 20, {10, 6}));
}

TEST_SUITE_END();
