#include "base/tensor_name.h"

#include <doctest/doctest.h>

#include <tuple>

using namespace ttrace;

TEST_SUITE_BEGIN("base");

namespace {

using Parts = std::tuple<std::string, std::string, std::string>;

Parts parts_of(std::string_view text) {
  const TensorName name(text);
  return {std::string(name.path), std::string(name.member), std::string(name.call)};
}

}  // namespace

TEST_CASE("a name is a path, a member and a call, of which the last two may be absent") {
  CHECK(parts_of("decoder.layers.0.mlp") == Parts("decoder.layers.0.mlp", "", ""));
  CHECK(parts_of("attn:1") == Parts("attn", ":1", ""));
  CHECK(parts_of("attn:hidden#12") == Parts("attn", ":hidden", "#12"));
  CHECK(parts_of("block.fc#1") == Parts("block.fc", "", "#1"));
  CHECK(parts_of("(model):labels") == Parts("(model)", ":labels", ""));
  CHECK(parts_of("") == Parts("", "", ""));
}

TEST_CASE("the keys of a dict may hold what parts a name") {
  CHECK(parts_of("attn:cache.1#2") == Parts("attn", ":cache.1", "#2"));
  CHECK(parts_of("attn:a:b#c#1") == Parts("attn", ":a:b#c", "#1"));
  CHECK(parts_of("attn:#") == Parts("attn", ":#", ""));
}

TEST_CASE("another member of the same call") {
  CHECK(TensorName("attn:1#2").with_member(":0") == "attn:0#2");
  CHECK(TensorName("attn").with_member(":query") == "attn:query");
  CHECK(TensorName("attn:1#2").without_member() == "attn#2");
  CHECK(call_of("attn", 0) == "attn");
  CHECK(call_of("attn", 2) == "attn#2");
}

TEST_CASE("the parameters of the outermost module go by their own names alone") {
  CHECK(owner_of("block.fc.weight") == "block.fc");
  CHECK(parameter_of("block.fc", "weight") == "block.fc.weight");
  CHECK(owner_of("scale") == kRootModule);
  CHECK(parameter_of(kRootModule, "scale") == "scale");
}

TEST_CASE("what is inside a module begins with its whole path, and everything is inside the outermost one") {
  CHECK(is_inside("block.fc.weight", "block"));
  CHECK_FALSE(is_inside("block", "block"));
  CHECK_FALSE(is_inside("block2.fc", "block"));
  CHECK(is_inside("block", kRootModule));
  CHECK(is_inside("model1.block.fc", "model1.(model)"));
  CHECK_FALSE(is_inside("model1.(model)", "model1.(model)"));
  CHECK_FALSE(is_inside("block.fc", "model1.(model)"));
  CHECK_FALSE(is_inside(kRootModule, kRootModule));
}

TEST_CASE("dotted names come apart, and a member stays whole") {
  CHECK(components_of("a.b.c") == std::vector<std::string>{"a", "b", "c"});
  CHECK(last_component("torch.nn.modules.linear.Linear") == "Linear");
  CHECK(last_component("Linear") == "Linear");
  CHECK(suffixes_of("a.b:c.d#1") == std::vector<std::string_view>{"a.b:c.d#1", "b:c.d#1"});
}

TEST_CASE("numbers are components of the path, beginning with its second") {
  const auto number = number_in("0.layers.12.mlp:3#4");
  REQUIRE(number);
  CHECK(number->value == 12);
  CHECK(number->prefix == "0.layers");
  CHECK(with_number("0.layers.12.mlp:3#4", *number, 5) == "0.layers.5.mlp:3#4");
  for (const char* none : {"a.01", "a.1b", "a.-1", "a.1234567890", "a:b.1", "a.b#1", "1"}) CHECK_FALSE(number_in(none));
  CHECK(layer_number("m.layers.7#1", "layers")->value == 7);
  CHECK_FALSE(layer_number("sublayers.7", "layers"));
}

TEST_CASE("without its numbers a name is the same in all layers") {
  CHECK(without_numbers("decoder.layers.12.mlp.experts.3.fc1.weight") == "decoder.layers.#.mlp.experts.#.fc1.weight");
  CHECK(without_numbers("layers.1.mlp") != without_numbers("layers.1.attention"));
  CHECK(without_numbers("layers.1.linear_fc1") == "layers.#.linear_fc1");
  CHECK(without_numbers("12") == "#");
  CHECK(without_numbers("0.layers.007:cache.1#2") == "#.layers.#:cache.1#2");
  CHECK(without_numbers("") == "");
}

TEST_SUITE_END();
