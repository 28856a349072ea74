#include "files/yaml_document.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "files/annotation_file.h"
#include "files/calibration_file.h"
#include "files/read_run_file.h"
#include "files/tolerance_file.h"
#include "text/yaml.h"

using namespace ttrace;

namespace {

std::string refusal_of(const std::string& text) {
  try {
    parse_yaml(text);
  } catch (const YamlError& error) {
    return fmt::format("{}: {}", error.line, error.what());
  }
  return "";
}

YamlNode value_of(const YamlNode& map, std::string_view key) {
  for (const auto& [name, value] : map.entries()) {
    if (name.word() == key) return value;
  }
  FAIL("no such key");
  return {};
}

// Every value with its line, by the parser's own marks: what is kept must say the same.
std::string outline_of(const YamlNode& node) {
  const std::string at = fmt::format("{}", node.line());
  if (node.is_null()) return at + "~";
  if (node.is_word()) return fmt::format("{}'{}'", at, node.word());
  std::string text;
  for (const YamlNode& item : node.items()) text += (text.empty() ? "" : " ") + outline_of(item);
  if (node.is_list()) return fmt::format("{}[{}]", at, text);
  for (const auto& [key, value] : node.entries()) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : " ", outline_of(key), outline_of(value));
  }
  return fmt::format("{}{{{}}}", at, text);
}

}  // namespace

TEST_SUITE_BEGIN("files");

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
  CHECK(parse_yaml("").is_null());
  CHECK(parse_yaml("# only a comment\n").is_null());
  CHECK(value_of(parse_yaml("a: 1\n"), "a").word() == "1");
  CHECK(value_of(parse_yaml("--- {a: [1, 2]}\n...\n"), "a").items().size() == 2);
  CHECK(refusal_of("a: 1\n---\nb: 1\n") == "2: a second YAML document");
}

TEST_CASE("values are what the text says, in its lines") {
  // A value that is left out is in the line of what comes next.
  CHECK(outline_of(parse_yaml("a: 1\nb:\n  - x\n  - 'y z'\n\n  - {c: ~, d: \"~\"}\ne:\nf: [[], {}]\n")) ==
        "1{1'a': 1'1' 2'b': 3[3'x' 4'y z' 6{6'c': 6~ 6'd': 6'~'}] 7'e': 8~ 8'f': 8[8[] 8{}]}");
  CHECK(outline_of(parse_yaml("\n\n- null\n- Null\n- 'null'\n- !!str null\n- ''\n-\n")) ==
        "3[3~ 4~ 5'null' 6'null' 7'' 9~]");
  CHECK(outline_of(parse_yaml("? a\n: b\n? [1]\n")) == "1{1'a': 2'b' 3[3'1']: 3~}");
  // A list is kept in three ways, by the size of what it holds; what comes behind it must keep its line.
  for (const std::size_t count : {0, 1, 6, 7, 8, 100, 126, 127, 128, 300, 40'000}) {
    for (const std::size_t blank : {0, 1, 254, 255, 300}) {
      CAPTURE(count);
      CAPTURE(blank);
      std::string text = "[[", outline = "1[1[";
      for (std::size_t i = 0; i < count; ++i) {
        text += "1,";
        outline += fmt::format("{}1'1'", i == 0 ? "" : " ");
      }
      text += std::string(blank, '\n') + (count > 0 ? "2], 3]" : "], 3]");
      const std::size_t line = 1 + blank;
      outline += count > 0 ? fmt::format(" {}'2'] {}'3']", line, line) : fmt::format("] {}'3']", line);
      CHECK(outline_of(parse_yaml(text)) == outline);
    }
  }
}

TEST_CASE("words of every length are kept whole") {
  for (const std::size_t size : {1, 14, 15, 16, 127, 128, 129, 16'383, 16'384, 3'000'000}) {
    const std::string word(size, 'x');
    const YamlNode list = parse_yaml("[" + word + ", b, " + word + "]");
    std::vector<std::string> words;
    for (const YamlNode& item : list.items()) words.emplace_back(item.word());
    CHECK(words == std::vector<std::string>{word, "b", word});
  }
}

TEST_CASE("a value outlives the text and its document") {
  YamlNode value;
  {
    const std::string text = "a: {b: [1, two]}";
    value = value_of(value_of(parse_yaml(text), "a"), "b");
  }
  CHECK(outline_of(value) == "1[1'1' 1'two']");
}

TEST_CASE("aliases stand for a bounded number of values") {
  CHECK(outline_of(parse_yaml("a: &x {b: 1}\nc: *x\nd: [*x]\n")) ==
        "1{1'a': 1{1'b': 1'1'} 2'c': 1{1'b': 1'1'} 3'd': 3[1{1'b': 1'1'}]}");
  // Anchors name values inside of lists that are kept in less room than they had been given.
  CHECK(outline_of(parse_yaml("[[&x 1, &y [&z 2], *x], *y, *z, &x 3, *x]")) ==
        "1[1[1'1' 1[1'2'] 1'1'] 1[1'2'] 1'2' 1'3' 1'3']");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 1; k < 9; ++k) bomb += ", " + before;
    bomb += "]\n";
  }
  CHECK(refusal_of(bomb) == "5: aliases that stand for too many values, more than 10000");
  CHECK(refusal_of("a: &x [*x]\n") == "1: an alias of what it is part of");
  CHECK(refusal_of("a: *x\n") == "1: the referenced anchor is not defined");
  std::string anchors = "[";
  for (int i = 0; i <= 10'000; ++i) anchors += "&a,";
  CHECK(refusal_of(anchors + "]") == "1: more than 10000 anchors");
}

TEST_CASE("a value with NUL is refused: whoever it is given to would see half of it") {
  CHECK(refusal_of("command: \"rm old\\0er\"\n") == "1: a NUL character");
  CHECK(refusal_of(std::string("a: 1\nb: x\0y\n", 12)) == "2: a control character");
}

TEST_CASE("what is no UTF-8 is refused in its line") { CHECK(refusal_of("a: 1\n\nb: \xff\n") == "3: no UTF-8"); }

TEST_CASE("what nests too deeply, and a list that is too long, is refused") {
  for (const char* open : {"[", "{a: ", "- ", "? "}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += open;
    INFO(open);
    CHECK(refusal_of(text) == "1: more than 100 levels");
  }
  std::string list;
  for (int i = 0; i < 100'000; ++i) list += "- x\n";
  CHECK(refusal_of(list) == "");
  CHECK(refusal_of(list + "- x\n") == "100001: a list of more than 100000 values");
  // The parser keeps what is between brackets until they are closed.
  std::string map = "{";
  for (int i = 0; i < 150'000; ++i) map += "a: b,\n";
  CHECK(refusal_of(map + "}") == "99670: brackets with more than 200000 signs");
}

TEST_CASE("any name is the same when it is read back") {
  const std::vector<std::string> names{"",
                                       "a",
                                       "null",
                                       "Null",
                                       "~",
                                       "1",
                                       "a: b",
                                       "a #b",
                                       "'",
                                       "\"\\",
                                       "\n",
                                       "\t",
                                       "\x1b[31m",
                                       "\x7f",
                                       "\u0080",
                                       "\u0085",
                                       "a\u2028b",
                                       "\u2029",
                                       "\ufeff",
                                       "\ufffe",
                                       "\uffff",
                                       "\U0010ffff",
                                       "\u202e",
                                       "layers.0.\u00e9",
                                       std::string(4096, 'x'),
                                       std::string(4096, '\n')};
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(parse_yaml(yaml_word(name)).word() == name);
    const YamlNode map = parse_yaml(fmt::format("a:\n  {} {{b: 1}}\n  c: 2\n", yaml_key(name, 2)));
    CHECK(value_of(value_of(value_of(map, "a"), name), "b").word() == "1");
    CHECK(value_of(value_of(map, "a"), "c").word() == "2");
  }
}

TEST_SUITE_END();
