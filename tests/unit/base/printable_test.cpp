#include <doctest/doctest.h>

#include "base/trace.h"

using namespace ttrace;

TEST_SUITE_BEGIN("base");

TEST_CASE("text that can be read stays as it is") {
  for (const char* text : {"", "decoder.layers.0:1#2", "\\x1b", "\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80"}) {
    CHECK(printable(text) == text);
  }
}

TEST_CASE("what steers a terminal or hides text is escaped, byte by byte") {
  CHECK(printable("a\x1b[2J\n\t\x7f") == "a\\x1b[2J\\x0a\\x09\\x7f");
  CHECK(printable(std::string_view("\0b", 2)) == "\\x00b");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");               // CSI as one code point
  CHECK(printable("x\xe2\x80\x8by") == "x\\xe2\\x80\\x8by");  // a space of no width
  CHECK(printable("\xef\xbb\xbf") == "\\xef\\xbb\\xbf");      // another
  CHECK(printable("a\xef\xb8\x8f") == "a\\xef\\xb8\\x8f");    // a variation of a
  CHECK(printable("\xe2\x80\xae") == "\\xe2\\x80\\xae");      // right to left from here
  CHECK(printable("\xef\xbf\xbe") == "\\xef\\xbf\\xbe");      // no XML character
}

TEST_CASE("bytes that are no UTF-8 are escaped, and what follows them is read") {
  CHECK(printable("\xff") == "\\xff");
  CHECK(printable("\xc3") == "\\xc3");
  CHECK(printable("\xc3z") == "\\xc3z");
  CHECK(printable("\xc0\x80") == "\\xc0\\x80");           // overlong
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
}

TEST_CASE("a tensor's identity is printable") {
  TensorId id;
  id.name = "m\xff\n";
  CHECK(to_string(id) == "m\\xff\\x0a output, iteration 0");
}
