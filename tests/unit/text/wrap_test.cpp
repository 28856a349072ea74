#include "text/wrap.h"

#include <doctest/doctest.h>

using namespace ttrace;

TEST_SUITE_BEGIN("text");

TEST_CASE("text is broken between words, and what follows the first line is indented") {
  CHECK(wrapped("one two three", 80) == "one two three");
  CHECK(wrapped("one two three", 7) == "one two\nthree");
  CHECK(wrapped("one two three four", 9, 2) == "one two\n  three\n  four");
  CHECK(wrapped("  one two", 7, 4) == "  one\n    two");
  CHECK(wrapped("", 7).empty());
}

TEST_CASE("long words and commands to copy stay whole") {
  CHECK(wrapped("a decoder.layers.0.mlp b", 5) == "a\ndecoder.layers.0.mlp\nb");
  CHECK(wrapped("run `ttrace help check` now", 10) == "run\n`ttrace help check`\nnow");
  CHECK(wrapped("worst at [0, 1, 2]: 3", 10) == "worst at\n[0, 1, 2]:\n3");
  CHECK(wrapped("threads [one a core]", 12) == "threads [one\na core]");
  CHECK(wrapped("an open ` does no harm", 12) == "an open `\ndoes no harm");
}

TEST_CASE("a character of several bytes takes one column") {
  CHECK(width_of("\u00e4\u2713") == 2);
  CHECK(wrapped("\u00e4\u00e4 \u00e4\u00e4", 5) == "\u00e4\u00e4 \u00e4\u00e4");
  CHECK(clipped("\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4", 5) == "\u00e4...\u00e4");
}

TEST_CASE("clipped text keeps its begin and its end") {
  CHECK(clipped("decoder.layers.0.mlp", 20) == "decoder.layers.0.mlp");
  CHECK(clipped("decoder.layers.0.mlp", 11) == "deco....mlp");
  CHECK(clipped("decoder", 2) == "de");
}
