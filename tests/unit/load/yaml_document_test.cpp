#include "load/yaml_document.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "ttrace/error.h"
#include "ttrace/load/annotation_file.h"
#include "ttrace/load/calibration_file.h"
#include "ttrace/load/run_file.h"
#include "ttrace/load/tolerance_file.h"

using namespace ttrace;

namespace {

std::string refusal_of(const std::string& text) {
  try {
    parse_yaml(text);
  } catch (const YAML::Exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("load");

TEST_CASE("a document that no value can begin is refused, by every reader of YAML") {
  // yaml-cpp 0.7 finds an empty document before the comma, and another one, and never ends.
  for (const std::string text : {",", ", a: 1", "\n  ,\n", "# a comment\n,", "--- ,", "}", "]", "%YAML 1.2\n---\n,"}) {
    INFO(text);
    CHECK(refusal_of(text) != "");
    CHECK_THROWS_AS(parse_annotations(text, "a.yaml"), InputError);
    CHECK_THROWS_AS(parse_tolerances(text, "t.yaml"), InputError);
    CHECK_THROWS_AS(parse_calibration(text, "c.yaml"), InputError);
    CHECK_THROWS_AS(parse_run_file(text, "ttrace.yaml"), InputError);
  }
  CHECK_THROWS_WITH_AS(parse_annotations("\n, a: 1", "a.yaml"),
                       "a.yaml:2: nothing can begin like this; expected YAML as in annotations/README.md", InputError);
}

TEST_CASE("a text has one document or none") {
  CHECK(parse_yaml("").IsNull());
  CHECK(parse_yaml("# only a comment\n").IsNull());
  CHECK(parse_yaml("a: 1\n")["a"].as<int>() == 1);
  CHECK(parse_yaml("--- {a: [1, 2]}\n...\n")["a"].size() == 2);
  CHECK(refusal_of("a: 1\n---\nb: 1\n") == "yaml-cpp: error at line 2, column 1: a second YAML document");
}

TEST_CASE("aliases stand for a bounded number of values") {
  CHECK(parse_yaml("a: &x {b: 1}\nc: *x\nd: *x\n")["d"]["b"].as<int>() == 1);
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 1; k < 9; ++k) bomb += ", " + before;
    bomb += "]\n";
  }
  CHECK(refusal_of(bomb) ==
        "yaml-cpp: error at line 5, column 10: aliases that stand for too many values, more than 10000");
  CHECK(refusal_of("a: &x [*x]\n") == "yaml-cpp: error at line 1, column 8: an alias of what it is part of");
}

TEST_CASE("a value with NUL is refused: whoever it is given to would see half of it") {
  CHECK(refusal_of("command: \"rm old\\0er\"\n") == "yaml-cpp: error at line 1, column 10: a NUL character");
}

TEST_CASE("what nests too deeply is refused") {
  for (const char* open : {"[", "{a: ", "- "}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += open;
    INFO(open);
    CHECK(refusal_of(text) != "");
  }
}

TEST_SUITE_END();
