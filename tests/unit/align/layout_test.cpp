#include "ttrace/align/layout.h"

#include <doctest/doctest.h>

using namespace ttrace;

namespace {

// Two chunks a coordinate, c and 2n - 1 - c: balances causal attention.
AxisLayout zigzag(const AxisParts& parts) {
  const auto n = static_cast<std::int64_t>(parts.sizes.size());
  const std::int64_t chunk = parts.sizes[0] / 2;
  AxisLayout layout{2 * n * chunk, {}};
  for (std::int64_t c = 0; c < n; ++c)
    layout.parts.push_back({{0, c * chunk, chunk}, {chunk, (2 * n - 1 - c) * chunk, chunk}});
  return layout;
}

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("parts of different sizes lie one after the other") {
  const std::vector<std::int64_t> sizes = {3, 0, 2};
  const AxisLayout layout = contiguous({sizes});
  CHECK(layout == AxisLayout{5, {{{0, 0, 3}}, {}, {{0, 3, 2}}}});
}

TEST_CASE("two axes on one dimension nest, the first outermost") {
  const std::vector<AxisSplit> axes = {{2, contiguous}, {2, contiguous}};
  const std::vector<std::int64_t> sizes = {1, 2, 3, 4};  // cp 0: 1 + 2, cp 1: 3 + 4
  CHECK(nest(axes, sizes) == AxisLayout{10, {{{0, 0, 1}}, {{0, 1, 2}}, {{0, 3, 3}}, {{0, 6, 4}}}});
}

TEST_CASE("a dimension without axes is its own whole") {
  const std::vector<std::int64_t> sizes = {7};
  CHECK(nest({}, sizes) == AxisLayout{7, {{{0, 0, 7}}}});
}

TEST_CASE("a contiguous split of a zigzag part falls into the chunks it crosses") {
  const std::vector<AxisSplit> axes = {{2, zigzag}, {3, contiguous}};
  const std::vector<std::int64_t> sizes(6, 4);  // blocks of 12 are chunks of 6
  const AxisLayout layout = nest(axes, sizes);
  CHECK(layout.extent == 24);
  CHECK(layout.parts[0] == std::vector<Stretch>{{0, 0, 4}});
  CHECK(layout.parts[1] == std::vector<Stretch>{{0, 4, 2}, {2, 18, 2}});
  CHECK(layout.parts[5] == std::vector<Stretch>{{0, 14, 4}});
}

TEST_CASE("a layout is found by its name once registered") {
  CHECK((find_layout("contiguous") == contiguous));
  CHECK((find_layout("test-zigzag") == nullptr));
  register_layout("test-zigzag", zigzag);
  CHECK((find_layout("test-zigzag") == zigzag));
}

TEST_SUITE_END();
