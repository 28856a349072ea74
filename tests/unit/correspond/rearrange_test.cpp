#include "correspond/rearrange.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace ttrace;

namespace {

using Elements = std::vector<std::int64_t>;

// A tensor that is held in boxes, each an entry of its own: the value of an element is its position in the tensor.
std::vector<Piece> pieces_of(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<Piece> pieces;
  for (const Box& box : boxes) {
    Piece& piece = pieces.emplace_back();
    piece.rank = static_cast<std::int32_t>(pieces.size() - 1);
    piece.logical = box;
    piece.strides = row_major_strides(shape);  // the whole tensor is the entry
    for (std::size_t d = 0; d < shape.size(); ++d) piece.offset += box.start[d] * piece.strides[d];
  }
  return pieces;
}

// Returns what the pieces hold at each element of a tensor of this shape; -1 where nothing, -2 where twice.
Elements gathered(const std::vector<Piece>& pieces, const Shape& shape) {
  Elements values(static_cast<std::size_t>(element_count(shape)), -1);
  const Shape strides = row_major_strides(shape);
  for (const Piece& piece : pieces) {
    for (std::int64_t i = 0; i < element_count(piece.logical.size); ++i) {
      const Shape index = index_at(i, piece.logical.size);
      std::int64_t at = 0, from = piece.offset;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        at += (piece.logical.start[d] + index[d]) * strides[d];
        from += index[d] * piece.strides[d];
      }
      std::int64_t& value = values.at(static_cast<std::size_t>(at));
      value = value == -1 ? from : -2;
    }
  }
  return values;
}

std::vector<Box> whole(const Shape& shape) { return {whole_box(shape)}; }

Elements moved(const std::string& text, AxisSizes sizes, const Shape& from, const std::vector<Box>& boxes,
               const Shape& to, std::size_t source = 0, std::size_t target = 0, std::size_t side = 0) {
  const Rearrangement how{parse_index_pattern(text), side, 0, std::move(sizes)};
  return gathered(rearranged(how, {source, {}}, pieces_of(from, boxes), {target, {}}), to);
}

}  // namespace

TEST_SUITE_BEGIN("correspond");

TEST_CASE("a transposition permutes the dimensions") {
  CHECK(moved("b s -> s b", {{"b", 2}, {"s", 3}}, {2, 3}, whole({2, 3}), {3, 2}) == Elements{0, 3, 1, 4, 2, 5});
}

TEST_CASE("rotary halves become neighbours") {
  // Two heads of four: (real, real, imaginary, imaginary) to pairs.
  CHECK(moved("(h two p) -> (h p two)", {{"h", 2}, {"two", 2}, {"p", 2}}, {8}, whole({8}), {8}) ==
        Elements{0, 2, 1, 3, 4, 6, 5, 7});
}

TEST_CASE("a fused tensor is cut into its parts, and they make it up again") {
  const std::string text = "(g n d), (g d), (g d) -> (g (n + 1 + 1) d)";
  const AxisSizes sizes = {{"g", 2}, {"n", 2}, {"d", 2}};
  // Each group has two query heads, a key head, a value head.
  CHECK(moved(text, sizes, {16}, whole({16}), {8}, 0, 0, 1) == Elements{0, 1, 2, 3, 8, 9, 10, 11});
  CHECK(moved(text, sizes, {16}, whole({16}), {4}, 0, 1, 1) == Elements{4, 5, 12, 13});
  CHECK(moved(text, sizes, {16}, whole({16}), {4}, 0, 2, 1) == Elements{6, 7, 14, 15});
  const Elements q = moved(text, sizes, {8}, whole({8}), {16}, 0, 0),
                 v = moved(text, sizes, {4}, whole({4}), {16}, 2, 0);
  CHECK(q == Elements{0, 1, 2, 3, -1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1});
  CHECK(v == Elements{-1, -1, -1, -1, -1, -1, 0, 1, -1, -1, -1, -1, -1, -1, 2, 3});
}

TEST_CASE("two fused tensors correspond part by part") {
  // All queries, keys and values one after the other, against groups.
  CHECK(moved("((g d) + (g d)) -> (g (1 + 1) d)", {{"g", 2}, {"d", 1}}, {4}, whole({4}), {4}) == Elements{0, 2, 1, 3});
}

TEST_CASE("padding is left out") {
  CHECK(moved("v c -> (v + _) c", {{"v", 2}, {"c", 2}}, {3, 2}, whole({3, 2}), {2, 2}, 0, 0, 1) ==
        Elements{0, 1, 2, 3});
}

TEST_CASE("an axis that names number is one of a stacked tensor") {
  const Rearrangement how{parse_index_pattern("f c -> e c f", {"e"}), 1, 0, {{"e", 3}, {"f", 2}, {"c", 2}}};
  const std::vector<Piece> stacked = pieces_of({3, 2, 2}, whole({3, 2, 2}));
  CHECK(gathered(rearranged(how, {0, {}}, stacked, {0, {{"e", 1}}}), {2, 2}) == Elements{4, 6, 5, 7});
  const Rearrangement back{how.pattern, 0, 0, how.sizes};
  const Elements one =
      gathered(rearranged(back, {0, {{"e", 2}}}, pieces_of({2, 2}, whole({2, 2})), {0, {}}), {3, 2, 2});
  CHECK(one == Elements{-1, -1, -1, -1, -1, -1, -1, -1, 0, 2, 1, 3});
}

TEST_CASE("what is contiguous on both sides stays one piece") {
  const Rearrangement how{parse_index_pattern("(g n d) c, (g d) c, (g d) c -> (g (n + 1 + 1) d) c"),
                          1,
                          0,
                          {{"g", 4}, {"n", 2}, {"d", 8}, {"c", 16}}};
  // One piece for each group.
  CHECK(rearranged(how, {0, {}}, pieces_of({128, 16}, whole({128, 16})), {0, {}}).size() == 4);
  const Rearrangement transposed{parse_index_pattern("b s ... -> s b ..."), 0, 1, {{"b", 2}, {"s", 4}, {"...0", 8}}};
  CHECK(rearranged(transposed, {0, {}}, pieces_of({2, 4, 8}, whole({2, 4, 8})), {0, {}}).size() == 1);
}

TEST_CASE("shards cut anywhere give what the whole gives") {
  std::mt19937 random(20261122);
  const auto below = [&](std::int64_t n) { return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random); };
  int compared = 0;
  for (const std::string text : {"(a b c) d -> d (c a) b", "((a b) + (b c)) d -> (b a) d, d (c b)",
                                 "(a (b + c) 1) d -> d (b a), (a c) d", "a (b (c + d)) -> (a b c), (d a b)"}) {
    for (int trial = 0; trial < 25; ++trial) {
      AxisSizes sizes;
      for (const char* axis : {"a", "b", "c", "d"}) sizes[axis] = 1 + below(4);
      const IndexPattern pattern = parse_index_pattern(text);
      const Shape from = *shape_of(pattern.sides[0][0], 0, sizes);
      // A grid of random cuts.
      std::vector<Box> boxes = {Box{{}, {}}};
      for (const std::int64_t size : from) {
        std::vector<std::int64_t> cuts = {0, below(size + 1), below(size + 1), size};
        std::sort(cuts.begin(), cuts.end());
        std::vector<Box> longer;
        for (const Box& box : boxes) {
          for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
            Box& next = longer.emplace_back(box);
            next.start.push_back(cuts[i]);
            next.size.push_back(cuts[i + 1] - cuts[i]);
          }
        }
        boxes = std::move(longer);
      }
      for (std::size_t target = 0; target < pattern.sides[1].size(); ++target) {
        const Shape to = *shape_of(pattern.sides[1][target], 0, sizes);
        const Elements expected = moved(text, sizes, from, whole(from), to, 0, target);
        CHECK(moved(text, sizes, from, boxes, to, 0, target) == expected);
        CHECK(std::count_if(expected.begin(), expected.end(), [](std::int64_t value) { return value < 0; }) == 0);
        // There and back again every element is where it was.
        std::vector<Box> all = whole(to);
        const Elements back = moved(text, sizes, to, all, from, target, 0, 1);
        for (std::size_t i = 0; i < back.size(); ++i) {
          if (back[i] >= 0) CHECK(expected[static_cast<std::size_t>(back[i])] == static_cast<std::int64_t>(i));
        }
        ++compared;
      }
    }
  }
  CHECK(compared == 25 * (1 + 2 + 2 + 2));
}

TEST_SUITE_END();
