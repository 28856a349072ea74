#include "text/table.h"

#include <doctest/doctest.h>

using namespace ttrace;

TEST_SUITE_BEGIN("text");

TEST_CASE("columns are as wide as their widest cell, and no line ends with a space") {
  TextTable table({{"name"}, {"count", Justify::kRight}, {"note"}}, 2);
  table.add({"a", "1", ""});
  table.add({"attention", "123456", "long"});
  CHECK(table.text() ==
        "  name        count  note\n"
        "  a               1\n"
        "  attention  123456  long\n");
}

TEST_CASE("a name with other letters than ASCII's moves no column") {
  TextTable table({{"name"}, {"count"}});
  table.add({"größe", "1"});
  table.add({"sizes", "2"});
  CHECK(table.text() == "name   count\ngröße  1\nsizes  2\n");
}

TEST_CASE("what would move a terminal's cursor is escaped, and counts as it is shown") {
  TextTable table({{"name"}, {"count"}});
  table.add({"a\x1b[2J", "1"});
  CHECK(table.text() == "name      count\na\\x1b[2J  1\n");
}

TEST_CASE("a table can be printed line by line, once its rows were fitted") {
  TextTable table({{"a", Justify::kLeft, 3}, {"b"}});
  table.fit({"four", ""});
  CHECK(table.titles() == "a     b\n");
  CHECK(table.line({"1", "2"}) == "1     2\n");
}

TEST_SUITE_END();
