#include "text/csv.h"

#include <doctest/doctest.h>

using namespace ttrace;

TEST_SUITE_BEGIN("text");

TEST_CASE("a cell that a spreadsheet would take for a formula is text") {
  CHECK(csv_field("=1+1") == "'=1+1");
  CHECK(csv_field("+1") == "'+1");
  CHECK(csv_field("-1") == "'-1");
  CHECK(csv_field("@SUM(A1)") == "'@SUM(A1)");
  CHECK(csv_field("=HYPERLINK(\"http://x\",1)") == "\"'=HYPERLINK(\"\"http://x\"\",1)\"");
  CHECK(csv_field("a=1") == "a=1");
  CHECK(csv_field("a;=1") == "\"a;=1\"");
  CHECK(csv_field("\t=1") == "\\x09=1");
}

TEST_SUITE_END();
