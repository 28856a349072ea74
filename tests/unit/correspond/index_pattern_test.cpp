#include "correspond/index_pattern.h"

#include <doctest/doctest.h>

#include "correspond/name_pattern.h"
#include "correspond/sizes.h"

using namespace ttrace;

namespace {

std::string objection_to(const std::string& text) {
  try {
    parse_index_pattern(text);
  } catch (const PatternError& error) {
    return error.what();
  }
  return "";
}

std::string objection_to_name(const std::string& text) {
  try {
    NamePattern name(text);
  } catch (const PatternError& error) {
    return error.what();
  }
  return "";
}

// The sizes that follow from a shape on each side; empty where they contradict each other.
AxisSizes sizes_of(const std::string& text, const std::vector<Shape>& left, const std::vector<Shape>& right,
                   const AxisSizes& known = {}) {
  const IndexPattern pattern = parse_index_pattern(text);
  SizeEquations equations(known);
  for (std::size_t i = 0; i < left.size(); ++i) CHECK(equations.add(pattern.sides[0][i], left[i]));
  for (std::size_t i = 0; i < right.size(); ++i) CHECK(equations.add(pattern.sides[1][i], right[i]));
  return equations.solve() ? equations.sizes() : AxisSizes();
}

}  // namespace

TEST_SUITE_BEGIN("correspond");

TEST_CASE("a pattern that is none is refused in one sentence") {
  CHECK(objection_to("b s c") == "'b s c': expected '->' between the two sides");
  CHECK(objection_to("b s -> s c") ==
        "'b s -> s c': part 1 has the axes b s on the left and c s on the right; expected the same");
  CHECK(objection_to("(a b -> a b") == "'(a b -> a b': '-> a b' is no axis; expected a name, 1, '...' or '('");
  CHECK(objection_to("a -> (a") == "'a -> (a': a parenthesis is not closed; expected ')'");
  CHECK(objection_to("a 2 -> a 2") == "'a 2 -> a 2': '2' is no axis; expected a name or 1");
  CHECK(objection_to("a a -> a") == "'a a -> a': axis 'a' stands twice in one tensor; expected it once");
  CHECK(objection_to("a, b, c -> (a + b)") ==
        "'a, b, c -> (a + b)': 3 parts on the left, 2 on the right; expected as many, or one");
  CHECK(objection_to("... a -> a") == "'... a -> a': '...' stands in some tensors only; expected it in all or none");
  CHECK(objection_to("(a + b) (c + d) -> a") ==
        "'(a + b) (c + d) -> a': a tensor with several sums; expected one at most");
  CHECK(objection_to("(x (v + _)) -> (x v)") ==
        "'(x (v + _)) -> (x v)': padding is of a whole dimension: expected '(v + _)'");
  CHECK(objection_to("_ a -> _ a") == "'_ a -> _ a': '_' is no axis; expected it as the last term of a sum");
  CHECK(objection_to("((a + (b + c)) -> a") != "");
  CHECK(objection_to("b s -> s b") == "");
}

TEST_CASE("a pattern is the same when it is written and read again") {
  for (const std::string text : {"a b -> b a", "... (a b) -> ... a b", "(v + _) d -> v d", "a b, a b -> e (a + a) b",
                                 "(g n d) c, (g d) c, (g d) c -> (g (n + 1 + 1) d) c", "1 -> (1 a)",
                                 "(h p two), f -> ((h two p) + f + _)", "a ... b -> b ... a"}) {
    CHECK(to_string(read_index_pattern(text)) == text);
  }
}

TEST_CASE("the axes of a pattern have other names where those are taken") {
  IndexPattern pattern = read_index_pattern("(g n d) c, (g d) c -> (g (n + 1) d) c");
  rename_axis("n", "n2", pattern);
  CHECK(pattern.text == "(g n2 d) c, (g d) c -> (g (n2 + 1) d) c");
  CHECK(axes_inside_products(pattern) == std::set<std::string>{"d", "g", "n2"});
  CHECK(axes_inside_products(read_index_pattern("(v + _) d, n -> v d, n")) == std::set<std::string>{});
  CHECK(axes_inside_products(read_index_pattern("((h two) + f) c -> (h two) c, f c")) ==
        std::set<std::string>{"h", "two"});
}

TEST_CASE("the sizes of axes follow from the shapes") {
  const std::string qkv = "(g n d) c, (g d) c, (g d) c -> (g (n + 1 + 1) d) c";
  CHECK(sizes_of(qkv, {{64, 32}, {16, 32}, {16, 32}}, {{96, 32}}, {{"d", 8}}) ==
        AxisSizes{{"c", 32}, {"d", 8}, {"g", 2}, {"n", 4}});
  CHECK(sizes_of(qkv, {}, {{96, 32}}, {{"d", 8}, {"g", 2}}) == AxisSizes{{"c", 32}, {"d", 8}, {"g", 2}, {"n", 4}});
  CHECK(sizes_of(qkv, {{64, 32}, {16, 32}, {16, 32}}, {{100, 32}}, {{"d", 8}}).empty());
  CHECK(sizes_of("f c, f c -> (f + f) c", {}, {{10, 3}}) == AxisSizes{{"c", 3}, {"f", 5}});
  CHECK(sizes_of("f c, f c -> (f + f) c", {}, {{11, 3}}).empty());
  CHECK(sizes_of("v c -> (v + _) c", {{50, 3}}, {{64, 3}}) == AxisSizes{{"c", 3}, {"v", 50}});
  CHECK(sizes_of("v c -> (v + _) c", {{70, 3}}, {{64, 3}}).empty());
  CHECK(sizes_of("b ... -> ... b", {{2, 3, 5}}, {{3, 5, 2}}) == AxisSizes{{"...0", 3}, {"...1", 5}, {"b", 2}});
}

TEST_CASE("names fit with captures") {
  const NamePattern layer("decoder.layers.{i}.mlp");
  CHECK(*layer.match("decoder.layers.12.mlp") == Captures{{"i", "12"}});
  CHECK(!layer.match("decoder.layers.1.2.mlp"));
  CHECK(!layer.match("decoder.layers.12.mlp.linear_fc1"));
  CHECK(layer.path_with({{"i", "3"}}) == "decoder.layers.3.mlp");
  CHECK(*NamePattern("{path*}.mlp").match("a.b.mlp") == Captures{{"path", "a.b"}});
  CHECK(NamePattern("attn:1").member() == ":1");
  CHECK(*NamePattern("w{e}x{f}").match("w10x2") == Captures{{"e", "10"}, {"f", "2"}});
  CHECK(expand_braces("a.{b,c}.{i}.{d,e}") ==
        std::vector<std::string>{"a.b.{i}.d", "a.b.{i}.e", "a.c.{i}.d", "a.c.{i}.e"});
  CHECK(objection_to_name("layers.{i") == "'layers.{i': expected captures as in layers.{i}, each once");
  CHECK(objection_to_name("{i}.{i}") == "'{i}.{i}': expected captures as in layers.{i}, each once");
  CHECK(objection_to_name("") == "'': expected the name of a module or a parameter");
}

TEST_SUITE_END();
