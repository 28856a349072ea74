#include "annotate/row_map.h"

#include <doctest/doctest.h>

#include <utility>

using namespace ttrace;

namespace {

// A whole that has these rows of these parts.
RowMap map_of(const std::vector<std::pair<std::int64_t, std::int64_t>>& rows) {
  RowMap map;
  for (const auto& [part, row] : rows) {
    map.part.push_back(part);
    map.row.push_back(row);
  }
  return map;
}

std::vector<std::pair<std::int64_t, std::int64_t>> rows_of(std::int64_t part, std::int64_t first, std::int64_t count) {
  std::vector<std::pair<std::int64_t, std::int64_t>> rows;
  for (std::int64_t i = 0; i < count; ++i) rows.emplace_back(part, first + i);
  return rows;
}

template <class Rows>
Rows joined(std::initializer_list<Rows> parts) {
  Rows all;
  for (const Rows& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string text_of(const std::optional<RowPattern>& pattern) {
  if (!pattern) return "none";
  std::string text;
  for (const std::string& part : pattern->parts) text += part + " ";
  return text + "-> " + pattern->whole;
}

}  // namespace

TEST_SUITE_BEGIN("annotate");

TEST_CASE("parts one after the other are a concatenation, in the order of the whole") {
  const RowMap map = map_of(joined({rows_of(1, 0, 3), rows_of(0, 0, 3)}));
  const auto pattern = row_pattern(map, std::vector<std::int64_t>{3, 3});
  CHECK(text_of(pattern) == "f f -> (f + f)");
  CHECK(pattern->order == std::vector<std::size_t>{1, 0});
}

TEST_CASE("groups of heads are found by the runs that repeat") {
  const RowMap map = map_of(joined(
      {rows_of(0, 0, 4), rows_of(1, 0, 2), rows_of(2, 0, 2), rows_of(0, 4, 4), rows_of(1, 2, 2), rows_of(2, 2, 2)}));
  const auto pattern = row_pattern(map, std::vector<std::int64_t>{8, 4, 4});
  CHECK(text_of(pattern) == "(g n d) (g d) (g d) -> (g ((n d) + d + d))");
  CHECK(pattern->sizes.at("g") == 2);
}

TEST_CASE("rotary halves that became pairs are a pattern, with a remark") {
  const RowMap map = map_of({{0, 0}, {0, 2}, {0, 1}, {0, 3}, {0, 4}, {0, 6}, {0, 5}, {0, 7}});
  const auto pattern = row_pattern(map, std::vector<std::int64_t>{8});
  CHECK(text_of(pattern) == "(h two p) -> (h p two)");
  CHECK(!pattern->remark.empty());
}

TEST_CASE("rows that are of no part, at the end, are padding; elsewhere they are filled by what values decide") {
  const RowMap map = map_of(joined({rows_of(0, 0, 3), rows_of(-1, 0, 2)}));
  const auto pattern = row_pattern(map, std::vector<std::int64_t>{3});
  CHECK(text_of(pattern) == "f -> (f + _)");
  CHECK(!pattern->remark.empty());
}

TEST_CASE("an order that no pattern says is none") {
  CHECK(text_of(row_pattern(map_of({{0, 2}, {0, 0}, {0, 1}}), std::vector<std::int64_t>{3})) == "none");
  CHECK(text_of(row_pattern(map_of({{0, 0}, {1, 0}, {1, 1}, {0, 1}}), std::vector<std::int64_t>{2, 2})) == "none");
}

TEST_CASE("rows of equal elements tell nothing") {
  CHECK(hash_rows({1, 1, 1, 2}, {2, 2}, false)[0] == 0);
  CHECK(hash_rows({1, 1, 1, 2}, {2, 2}, false)[1] != 0);
  CHECK(hash_rows({1, 2, 3, 4}, {2, 2}, true) == hash_rows({1, 3, 2, 4}, {2, 2}, false));
}

TEST_SUITE_END();
