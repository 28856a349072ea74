#include <doctest/doctest.h>

#include "base/annotation.h"

using namespace ttrace;

namespace {

AnnotationRule rule(std::string pattern, std::optional<Kind> kind, int line) {
  return {std::move(pattern), kind, {}, {"", line}};
}

// The line of the rule that places the tensor; 0 without one.
int line_for(const std::vector<AnnotationRule>& rules, Kind kind, std::string_view name) {
  Annotations annotations;
  annotations.rules = rules;
  const AnnotationRule* found = rule_for(annotations, kind, name);
  return found == nullptr ? 0 : found->source.line;
}

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("a pattern is a name or what follows one of its dots") {
  CHECK(matches("linear_qkv.weight", "decoder.layers.0.self_attention.linear_qkv.weight"));
  CHECK(matches("decoder", "decoder"));
  CHECK_FALSE(matches("qkv.weight", "decoder.linear_qkv.weight"));
  CHECK_FALSE(matches("decoder", "decoder.layers.0"));
  CHECK_FALSE(matches("linear_qkv.weight", "weight"));
}

TEST_CASE("wildcards work on whole names and after dots") {
  CHECK(matches("decoder.layers.[0-9]", "decoder.layers.3"));
  CHECK(matches("layers.?", "decoder.layers.3"));
  CHECK_FALSE(matches("layers.?", "decoder.layers.13"));
  CHECK(matches("layers.*.mlp", "decoder.layers.3.mlp"));
  CHECK_FALSE(matches("ayers.*", "decoder.layers.3"));
}

TEST_CASE("a star stays within a component, two cross dots") {
  CHECK(matches("layers.*", "decoder.layers.13"));
  CHECK_FALSE(matches("layers.*", "decoder.layers.13.mlp"));
  CHECK_FALSE(matches("layers.*.weight", "decoder.layers.3.mlp.linear_fc1.weight"));
  CHECK(matches("layers.**.weight", "decoder.layers.3.mlp.linear_fc1.weight"));
  CHECK(matches("layers.3.**", "decoder.layers.3.mlp.linear_fc1"));
  CHECK(matches("layers.3.**", "decoder.layers.3"));
  CHECK_FALSE(matches("layers.3.**", "decoder.layers.30"));
  CHECK(matches("**", "decoder"));
}

TEST_CASE("a component of a pattern is a glob") {
  CHECK(matches("layers.*[0-9]x?", "layers.ab3xy"));
  CHECK_FALSE(matches("layers.*[0-9]x?", "layers.ab3x"));
  CHECK(matches("[!a-c]*[^x]", "dx y"));
  CHECK_FALSE(matches("[!a-c]*[^x]", "ax y"));
  CHECK(matches("[]a]*", "]b"));
  CHECK(matches("[[:digit:]]?", "3]"));
  CHECK_FALSE(matches("[[:digit:]]?", "a]"));
  CHECK(matches("[\\]]*", "]"));
  CHECK(matches("\\**", "*a"));
  CHECK_FALSE(matches("\\**", "a"));
  CHECK(matches("[a*", "[abc"));  // no bracket expression
  CHECK_FALSE(matches("[a*", "abc"));
  CHECK(matches("[", "["));
}

TEST_CASE("many wildcards take no longer than the lengths of pattern and name multiplied") {
  std::string deep, wide(4000, 'a'), stars;
  for (int i = 0; i < 1000; ++i) deep += "a.";
  for (int i = 0; i < 1000; ++i) stars += "a*";
  CHECK_FALSE(matches("**.a.**.a.**.a.**.a.**.b", deep + "c"));  // every way to divide a name's parts was tried
  CHECK(matches("**.a.**.a.**.a.**.a.**.b", deep + "b"));
  CHECK_FALSE(matches(stars + "b", wide));
  CHECK(matches(stars + "b", wide + "b"));
}

TEST_CASE("members and calls are ignored by a pattern that has none") {
  CHECK(matches("attention", "layers.0.attention:1"));
  CHECK(matches("attention", "layers.0.attention:hidden.x#2"));
  CHECK(matches("attention:1", "attention:1#2"));
  CHECK(matches("attention#2", "attention:1#2"));
  CHECK_FALSE(matches("attention:0", "attention:1"));
  CHECK_FALSE(matches("attention:0", "attention"));
  CHECK_FALSE(matches("attention#1", "attention"));
}

TEST_CASE("the more specific pattern wins") {
  const auto output = Kind::kOutput;
  CHECK(line_for({rule("mlp", output, 1), rule("layers.**", output, 2)}, output, "layers.0.mlp") == 1);
  CHECK(line_for({rule("0.mlp", output, 1), rule("mlp", output, 2)}, output, "layers.0.mlp") == 1);
  CHECK(line_for({rule("layers.**", output, 1), rule("**", output, 2)}, output, "layers.0.mlp") == 1);
  CHECK(line_for({rule("*.mlp", output, 1), rule("[0-9].mlp", output, 2)}, output, "layers.0.mlp") == 2);
  CHECK(line_for({rule("mlp", output, 1)}, output, "layers.0.attention") == 0);
}

TEST_CASE("a pattern that says nothing about the kind does not take part") {
  CHECK(line_for({rule("mlp", Kind::kInput, 1), rule("*", Kind::kOutput, 2)}, Kind::kOutput, "mlp") == 2);
  CHECK(line_for({rule("mlp.weight", std::nullopt, 1)}, Kind::kOutput, "mlp.weight") == 0);
}

TEST_CASE("gradients follow what they are the gradient of, unless named themselves") {
  CHECK(line_for({rule("mlp", Kind::kInput, 1)}, Kind::kGradInput, "mlp") == 1);
  CHECK(line_for({rule("mlp", Kind::kInput, 1)}, Kind::kGradOutput, "mlp") == 0);
  CHECK(line_for({rule("mlp", Kind::kOutput, 1)}, Kind::kGradOutput, "mlp") == 1);
  // Within one pattern, whose rules share its line.
  Annotations annotations;
  annotations.rules = {rule("mlp", Kind::kGradOutput, 1), rule("mlp", Kind::kOutput, 1), rule("w", Kind::kParamGrad, 2),
                       rule("w", std::nullopt, 2)};
  CHECK(rule_for(annotations, Kind::kGradOutput, "mlp") == &annotations.rules[0]);
  CHECK(rule_for(annotations, Kind::kOutput, "mlp") == &annotations.rules[1]);
  CHECK(rule_for(annotations, Kind::kParamGrad, "w") == &annotations.rules[2]);
  CHECK(rule_for(annotations, Kind::kParamDelta, "w") == &annotations.rules[3]);
  CHECK(rule_for(annotations, Kind::kScalar, "w") == nullptr);
}

TEST_SUITE_END();
