#include "base/layout.h"

#include <doctest/doctest.h>

using namespace ttrace;

namespace {

using PartSizes = std::vector<std::int64_t>;

AxisLayout lay_out(const std::string& name, const PartSizes& sizes, const LayoutOptions& options = {}) {
  return find_layout(name)->function({sizes, options});
}

AxisSplit split(std::int64_t size, const std::string& name = "contiguous") {
  AxisSplit axis;
  axis.size = size;
  axis.layout = find_layout(name);
  return axis;
}

// q and kv heads of these numbers, in parts of these sizes.
AxisLayout heads(const std::string& name, std::int64_t query, std::int64_t kv, const PartSizes& sizes) {
  return lay_out(name, sizes, {{"query_heads", {query}}, {"kv_heads", {kv}}});
}

}  // namespace

TEST_SUITE_BEGIN("base");

TEST_CASE("parts of different sizes lie one after the other") {
  CHECK(lay_out("contiguous", {3, 0, 2}) == AxisLayout{5, {{{0, 0, 3}}, {}, {{0, 3, 2}}}});
}

TEST_CASE("a zigzag part holds a chunk from the front and its mirror from the back") {
  CHECK(lay_out("zigzag", {4, 4}) == AxisLayout{8, {{{0, 0, 2}, {2, 6, 2}}, {{0, 2, 2}, {2, 4, 2}}}});
  CHECK(lay_out("zigzag", {5}) == AxisLayout{5, {{{0, 0, 5}}}});
  CHECK_THROWS_WITH_AS(lay_out("zigzag", {3, 3}),
                       "parts of 3, 3 elements do not zigzag; expected equal and even parts, 4 chunks in all",
                       LayoutError);
}

TEST_CASE("stripes deal the elements one by one") {
  CHECK(lay_out("striped", {2, 1}) == AxisLayout{3, {{{0, 0, 1}, {1, 2, 1}}, {{0, 1, 1}}}});
  CHECK(lay_out("striped", {3}) == AxisLayout{3, {{{0, 0, 3}}}});
  CHECK_THROWS_WITH_AS(
      lay_out("striped", {1, 2}),
      "parts of 1, 2 elements are no stripes; expected sizes that differ by one at most, the larger first",
      LayoutError);
}

TEST_CASE("a part of stacked blocks holds its share of each, even where parts are uneven") {
  // gate 0:3 and up 3:6; the first part holds two rows of each.
  CHECK(lay_out("stacked", {4, 2}, {{"blocks", {1, 1}}}) ==
        AxisLayout{6, {{{0, 0, 2}, {2, 3, 2}}, {{0, 2, 1}, {1, 5, 1}}}});
  // q is twice as large as k and v.
  CHECK(lay_out("stacked", {4, 4}, {{"blocks", {2, 1, 1}}}) ==
        AxisLayout{8, {{{0, 0, 2}, {2, 4, 1}, {3, 6, 1}}, {{0, 2, 2}, {2, 5, 1}, {3, 7, 1}}}});
  CHECK_THROWS_WITH_AS(lay_out("stacked", {3}, {{"blocks", {1, 1}}}),
                       "a part of 3 elements in blocks of relative sizes 1, 1; expected a multiple of 2", LayoutError);
}

TEST_CASE("key and value heads are shared where there are fewer of them than parts") {
  // 4 query heads, 2 kv heads of size 3, 4 parts: parts 0 and 1 use kv head 0.
  AxisLayout layout = heads("kv_heads", 4, 2, {3, 3, 3, 3});
  CHECK(layout == AxisLayout{6, {{{0, 0, 3}}, {{0, 0, 3}}, {{0, 3, 3}}, {{0, 3, 3}}}});
  CHECK(number_occurrences(layout) == 2);
  CHECK(layout.parts ==
        std::vector<std::vector<Stretch>>{{{0, 0, 3, 0}}, {{0, 0, 3, 1}}, {{0, 3, 3, 0}}, {{0, 3, 3, 1}}});
}

TEST_CASE("key and value heads that do not divide are shared in part") {
  // 6 query heads, 3 kv heads of size 1, 2 parts: query heads 0:3 use kv 0:2, 3:6 use 1:3.
  AxisLayout layout = heads("kv_heads", 6, 3, {2, 2});
  CHECK(layout == AxisLayout{3, {{{0, 0, 2}}, {{0, 1, 2}}}});
  CHECK(number_occurrences(layout) == 2);
  CHECK(layout.parts == std::vector<std::vector<Stretch>>{{{0, 0, 2, 0}}, {{0, 1, 1, 1}, {1, 2, 1, 0}}});
}

TEST_CASE("stacked query, key and value heads lie in one dimension") {
  // 2 query heads and 1 kv head of size 2 on 2 parts: q 0:4, k 4:6, v 6:8.
  CHECK(heads("qkv_heads", 2, 1, {6, 6}) ==
        AxisLayout{8, {{{0, 0, 2}, {2, 4, 2}, {4, 6, 2}}, {{0, 2, 2}, {2, 4, 2}, {4, 6, 2}}}});
  CHECK_THROWS_WITH_AS(heads("qkv_heads", 2, 1, {5, 5}),
                       "a part of 5 elements for 3 heads; expected a multiple of that", LayoutError);
  CHECK_THROWS_WITH_AS(heads("qkv_heads", 2, 1, {6, 9}), "a part of 9 elements for 3 heads; expected 2 a head",
                       LayoutError);
}

TEST_CASE("parts with a halo begin with the last elements of the one before") {
  const LayoutOptions options = {{"overlap", {2}}};
  AxisLayout layout = lay_out("halo", {3, 5, 4}, options);
  CHECK(layout == AxisLayout{8, {{{0, 0, 3}}, {{0, 1, 5}}, {{0, 4, 4}}}});
  CHECK(number_occurrences(layout) == 2);
  CHECK(layout.parts[1] == std::vector<Stretch>{{0, 1, 2, 1}, {2, 3, 3, 0}});
  CHECK_THROWS_WITH_AS(lay_out("halo", {3, 2}, options), "parts of 3, 2 that overlap by 2; expected longer ones",
                       LayoutError);
}

TEST_CASE("two axes on one dimension nest, the first outermost") {
  const std::vector<AxisSplit> axes = {split(2), split(2)};
  const PartSizes sizes = {1, 2, 3, 4};  // cp 0: 1 + 2, cp 1: 3 + 4
  CHECK(nest(axes, sizes) == AxisLayout{10, {{{0, 0, 1}}, {{0, 1, 2}}, {{0, 3, 3}}, {{0, 6, 4}}}});
}

TEST_CASE("a dimension without axes is its own whole") {
  const PartSizes sizes = {7};
  CHECK(nest({}, sizes) == AxisLayout{7, {{{0, 0, 7}}}});
}

TEST_CASE("a contiguous split of a zigzag part falls into the chunks it crosses") {
  const std::vector<AxisSplit> axes = {split(2, "zigzag"), split(3)};
  const AxisLayout layout = nest(axes, PartSizes(6, 4));  // blocks of 12 are chunks of 6
  CHECK(layout.extent == 24);
  CHECK(layout.parts[0] == std::vector<Stretch>{{0, 0, 4}});
  CHECK(layout.parts[1] == std::vector<Stretch>{{0, 4, 2}, {2, 18, 2}});
  CHECK(layout.parts[5] == std::vector<Stretch>{{0, 14, 4}});
}

TEST_CASE("each packed sequence zigzags by itself, and its padding is left out") {
  std::vector<AxisSplit> axes = {split(2, "zigzag")};
  axes[0].segments = std::vector<Segment>{{0, 4, 3}, {4, 8, 8}};
  CHECK(nest(axes, PartSizes{6, 6}) ==
        AxisLayout{11, {{{0, 0, 1}, {2, 3, 2}, {4, 9, 2}}, {{0, 1, 1}, {1, 2, 1}, {2, 5, 2}, {4, 7, 2}}}});
  // What follows the last sequence is padding, too.
  CHECK(nest(axes, PartSizes{7, 7}).extent == 11);
  CHECK_THROWS_WITH_AS(nest(axes, PartSizes{5, 5}),
                       "packed sequences of 12 elements in parts of 5, 5; expected room for all", LayoutError);
  axes[0].segments = std::vector<Segment>{{0, 3, 3}};
  CHECK_THROWS_WITH_AS(nest(axes, PartSizes{6, 6}),
                       "a packed sequence of 3 elements on 2 parts; expected a multiple of that", LayoutError);
}

TEST_CASE("padding at the end of the whole is cut off") {
  AxisLayout layout = lay_out("contiguous", {4, 4});
  cut_padding(layout, 5);
  CHECK(layout == AxisLayout{5, {{{0, 0, 4}}, {{0, 4, 1}}}});
  CHECK_THROWS_WITH_AS(cut_padding(layout, 6), "5 elements; expected at least 6, without padding", LayoutError);
}

TEST_CASE("a layout says where it may be used") {
  CHECK(layout_names(&Layout::recordable) == std::vector<std::string>{"contiguous", "stacked"});
  // Those that a trace's integer inputs are held against (`microbatches_of`).
  CHECK(layout_names(&Layout::of_slices) == std::vector<std::string>{"contiguous", "striped"});
}

TEST_CASE("a layout is found by its name once registered") {
  CHECK(find_layout("test-new") == nullptr);
  register_layout("test-new", {contiguous, {"blocks"}});
  REQUIRE(find_layout("test-new") != nullptr);
  CHECK(find_layout("test-new")->options == std::vector<std::string>{"blocks"});
}

TEST_SUITE_END();
