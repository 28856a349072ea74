#include "format/mapping_text.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.h"

using namespace ttrace;

namespace {

// Returns what is wrong with a mapping of a tensor of `shape`; empty where nothing is.
std::string error_of(std::string_view text, const Shape& shape = {4, 16}) {
  try {
    return objection_to_mapping(parse_mapping(text), shape);
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string axis_error(std::string_view axis) { return error_of(fmt::format(R"({{"axes":[{}]}})", axis)); }

std::string fragment_error(std::string_view fragment, const Shape& shape = {4, 16}) {
  return error_of(fmt::format(R"({{"fragment":{}}})", fragment), shape);
}

std::string slices_error(std::string_view slices) {
  return fragment_error(fmt::format(R"({{"whole":[8,16],"slices":[{}]}})", slices));
}

std::string long_text(std::size_t size) {
  return fmt::format(R"({{"shape":{}[4,16]}})",
                     std::string(size - std::string_view(R"({"shape":[4,16]})").size(), ' '));
}

}  // namespace

TEST_SUITE("format") {
  TEST_CASE("A mapping says how axes split a tensor, its logical shape, and of what it is a fragment") {
    const RecordedMapping mapping = parse_mapping(R"({
      "axes": [{"axis": "dp", "size": 2, "placement": "replicate"}, {"axis": "tp", "size": 4, "placement": "shard", "dim": -1},
               {"axis": "pp", "size": 1, "placement": "partial"}],
      "shape": [8, 64],
      "fragment": {"whole": [8, 16], "slices": [{"local": [0, 0], "start": [4, 0], "size": [2, 16]},
                                                {"local": [2, 0], "start": [0, 0], "size": [2, 16]}]}})");
    REQUIRE(mapping.axes);
    REQUIRE(mapping.axes->size() == 3);
    CHECK((*mapping.axes)[0].placement.axis == "dp");
    CHECK((*mapping.axes)[0].placement.placement == Placement::kReplicate);
    CHECK((*mapping.axes)[1].placement.axis == "tp");
    CHECK((*mapping.axes)[1].placement.placement == Placement::kShard);
    CHECK((*mapping.axes)[1].placement.dim == -1);
    CHECK((*mapping.axes)[1].placement.layout == "contiguous");
    CHECK((*mapping.axes)[1].size == 4);
    CHECK((*mapping.axes)[2].placement.placement == Placement::kPartial);
    CHECK(mapping.shape == Shape{8, 64});
    REQUIRE(mapping.fragment);
    CHECK(*mapping.fragment ==
          Fragment{{8, 16}, {{{{0, 0}, {2, 16}}, {{4, 0}, {2, 16}}}, {{{2, 0}, {2, 16}}, {{0, 0}, {2, 16}}}}, {}});
    CHECK(objection_to_mapping(mapping, {4, 16}) == "");
    CHECK(objection_to_mapping(mapping, {5, 16}) == "");  // the slices may cover a part of what was recorded
  }

  TEST_CASE("A flat shard is a range of the elements") {
    const RecordedMapping mapping = parse_mapping(R"({"fragment":{"whole":[8,16],"range":[64,128]}})");
    CHECK_FALSE(mapping.axes);
    CHECK_FALSE(mapping.shape);
    REQUIRE(mapping.fragment);
    CHECK(*mapping.fragment == Fragment{{8, 16}, {}, Fragment::Range{64, 128}});
    CHECK(objection_to_mapping(mapping, {64}) == "");
  }

  TEST_CASE("Mappings at the limits are taken") {
    CHECK(error_of("{}") == "");
    CHECK(error_of(R"({"axes":[]})") == "");
    CHECK(error_of(R"({"shape":[]})", {}) == "");
    CHECK(error_of(R"({"shape":[1099511627776,0]})") == "");
    CHECK(error_of(R"({"axes":[{"axis":"ep_2","size":1000000,"placement":"shard","dim":1}]})") == "");
    CHECK(error_of(R"({"axes":[{"axis":"tp","size":1,"placement":"shard","dim":-2}]})") == "");
    CHECK(fragment_error(R"({"whole":[8,16],"range":[0,128]})", {128}) == "");
    CHECK(fragment_error(R"({"whole":[0],"range":[0,0]})", {0}) == "");
    CHECK(fragment_error(R"({"whole":[],"range":[0,1]})", {1}) == "");
    CHECK(slices_error(R"({"local":[0,0],"start":[8,0],"size":[0,16]})") == "");  // a rank that has nothing
    CHECK(error_of(long_text(65536)) == "");
  }

  TEST_CASE("Text that is no mapping is refused") {
    const std::string malformed = "mapping: does not parse; expected a JSON object";
    for (const std::string_view text : {"x", "[]", "null", "{", "}", "{]}",
                                        R"({"shape":[1]})"
                                        " ",
                                        " {}", "{}{}", R"({"shape":[1],})", "{\"\xff\":1}", R"({"shape":[01]})"}) {
      CHECK_MESSAGE(error_of(text) == malformed, text);
    }
    using namespace std::string_view_literals;
    CHECK(error_of("{}\0}"sv) == malformed);
    CHECK(error_of(fmt::format("{{\"shape\":{}}}", std::string(60'000, '['))) == malformed);
    CHECK(error_of(fmt::format("{{\"shape\":{}{}}}", std::string(30'000, '['), std::string(30'000, ']'))) ==
          "mapping: shape 0: is of type array; expected an integer from 0 to 1099511627776");
    CHECK(error_of(long_text(65537)) == "mapping: has 65537 bytes; expected at most 65536");
    CHECK(error_of(R"({"axis":[]})") == "mapping: unknown key 'axis'; expected axes, shape, fragment");
    CHECK(error_of("{\"a\\u001b\":[]}") == "mapping: unknown key 'a\\x1b'; expected axes, shape, fragment");
    CHECK(error_of(R"({"shape":[4,16],"shape":[4,16]})") == "mapping: 'shape' appears twice; expected it once");
    CHECK(fragment_error(R"({"whole":[4],"range":[0,4],"range":[0,4]})") ==
          "mapping: 'range' appears twice; expected it once");
  }

  TEST_CASE("An axis is refused by name") {
    CHECK(error_of(R"({"axes":{}})") == "mapping: axes: is of type object; expected a list of axes");
    CHECK(axis_error("1") ==
          "mapping: axes 0: is of type number; expected an object with axis, size, placement, dim, "
          "layout, blocks");
    CHECK(axis_error(R"({"axis":"tp","size":2,"placement":"shard","dim":0,"layout":"zigzag"})") ==
          "mapping: axes 0: layout: 'zigzag'; expected contiguous or stacked");
    CHECK(axis_error(R"({"size":2,"placement":"partial"})") == "mapping: axes 0: no axis; expected one");
    CHECK(axis_error(R"({"axis":"tp","placement":"partial"})") == "mapping: axes 0: no size; expected one");
    CHECK(axis_error(R"({"axis":"tp","size":2})") == "mapping: axes 0: no placement; expected one");
    CHECK(axis_error(R"({"axis":"tp","size":2,"placement":"shard"})") == "mapping: axes 0: no dim; expected one");
    CHECK(axis_error(R"({"axis":"tp","size":2,"placement":"partial","dim":0})") ==
          "mapping: axes 0: a dim of a partial axis; expected one of a shard only");
    CHECK(axis_error(R"({"axis":"tp","size":2,"placement":"mean","blocks":[1]})") ==
          "mapping: axes 0: a blocks of a mean axis; expected one of a shard only");
    CHECK(axis_error(R"({"axis":"tp","size":2,"placement":"shard","dim":0,"layout":"stacked"})") ==
          "mapping: axes 0: no blocks; expected one");
    CHECK(axis_error(R"({"axis":"tp","size":2,"placement":"shard","dim":0,"blocks":[1]})") ==
          "mapping: axes 0: blocks of a contiguous shard; expected some of a stacked one only");
    CHECK(axis_error(R"({"axis":"T P","size":2,"placement":"partial"})") ==
          "mapping: axes 0: axis: 'T P'; expected a name as tp or dp_cp");
    CHECK(axis_error(R"({"axis":7,"size":2,"placement":"partial"})") ==
          "mapping: axes 0: axis: is of type number; expected a name");
    CHECK(axis_error(R"({"axis":"tp","size":0,"placement":"partial"})") ==
          "mapping: axes 0: size: is 0; expected an integer from 1 to 1000000");
    CHECK(axis_error(R"({"axis":"tp","size":2.0,"placement":"partial"})") ==
          "mapping: axes 0: size: is of type number; expected an integer from 1 to 1000000");
    CHECK(axis_error(R"({"axis":"tp","size":2,"placement":"sharded","dim":0})") ==
          "mapping: axes 0: placement: 'sharded'; expected shard, replicate, partial or mean");
    CHECK(axis_error(R"({"axis":"tp","size":2,"placement":"shard","dim":18446744073709551615})") ==
          "mapping: axes 0: dim: is 18446744073709551615; expected an integer from -8 to 7");
    CHECK(axis_error(R"({"axis":"tp","size":2,"placement":"shard","dim":2})") ==
          "mapping: axis 'tp': dim is 2; expected one of 2 dimensions");
    CHECK(axis_error(R"({"axis":"tp","size":2,"placement":"shard","dim":-3})") ==
          "mapping: axis 'tp': dim is -3; expected one of 2 dimensions");
    CHECK(axis_error(R"({"axis":"tp","size":2,"placement":"partial"},{"axis":"tp","size":2,"placement":"partial"})") ==
          "mapping: axes 1: axis 'tp' appears twice; expected it once");
  }

  TEST_CASE("A shape is refused by name") {
    CHECK(error_of(R"({"shape":8})") == "mapping: shape: is of type number; expected a list of dimensions");
    CHECK(error_of(R"({"shape":[8]})") == "mapping: shape: has 1 dimensions; expected 2");
    CHECK(error_of(R"({"shape":[8,-1]})") == "mapping: shape 1: is -1; expected an integer from 0 to 1099511627776");
    CHECK(error_of(R"({"shape":[8,1099511627777]})") ==
          "mapping: shape 1: is 1099511627777; expected an integer from 0 to 1099511627776");
    CHECK(error_of(R"({"shape":[8,"x"]})") ==
          "mapping: shape 1: is of type string; expected an integer from 0 to 1099511627776");
    CHECK(error_of(R"({"shape":[1,1,1,1,1,1,1,1,1]})") == "mapping: shape: has 9 dimensions; expected at most 8");
    CHECK(error_of(R"({"shape":[1099511627776,1099511627776,0]})") ==
          "mapping: shape: [1099511627776, 1099511627776, 0] is too large; expected less than 2^63 bytes");
    // The shape is that of the tensor that the fragment is a part of, not of the fragment.
    CHECK(error_of(R"({"shape":[8,16],"fragment":{"whole":[8,16],"range":[0,4]}})", {4}) == "");
    CHECK(error_of(R"({"shape":[8],"fragment":{"whole":[8,16],"range":[0,4]}})", {4}) ==
          "mapping: shape: has 1 dimensions; expected 2");
  }

  TEST_CASE("A range is refused by name") {
    CHECK(fragment_error("[]") == "mapping: fragment: is of type array; expected an object with whole, slices, range");
    CHECK(fragment_error(R"({"range":[0,4]})") == "mapping: fragment: no whole; expected one");
    CHECK(fragment_error(R"({"whole":[8]})") == "mapping: fragment: neither slices nor range; expected one of them");
    CHECK(fragment_error(R"({"whole":[8],"range":[0,4],"slices":[]})") ==
          "mapping: fragment: both slices and range; expected one of them");
    CHECK(fragment_error(R"({"whole":[8],"range":[4]})") ==
          "mapping: fragment: range: has 1 numbers; expected begin and end");
    CHECK(fragment_error(R"({"whole":[8],"range":[0,4,8]})") ==
          "mapping: fragment: range: has 3 numbers; expected at most 2");
    CHECK(fragment_error(R"({"whole":[8],"range":[5,4]})") ==
          "mapping: fragment: range 0: is 5; expected an integer from 0 to 4");
    CHECK(fragment_error(R"({"whole":[8,2],"range":[0,17]})") ==
          "mapping: fragment: range 1: is 17; expected an integer from 0 to 16");
    CHECK(fragment_error(R"({"whole":[8,2],"range":[-1,16]})") ==
          "mapping: fragment: range 0: is -1; expected an integer from 0 to 16");
    CHECK(fragment_error(R"({"whole":[1099511627776,1099511627776],"range":[0,4]})") ==
          "mapping: fragment: whole: [1099511627776, 1099511627776] is too large; expected less than 2^63 bytes");
    CHECK(fragment_error(R"({"whole":[8,16],"range":[0,64]})", {4, 16}) ==
          "mapping: fragment: range of 64 elements for a tensor recorded as [4, 16]; expected it as [64]");
    CHECK(fragment_error(R"({"whole":[8,16],"range":[0,64]})", {63}) ==
          "mapping: fragment: range of 64 elements for a tensor recorded as [63]; expected it as [64]");
  }

  TEST_CASE("A slice is refused by name") {
    CHECK(slices_error("") == "mapping: fragment: slices: is empty; expected a slice");
    CHECK(slices_error(R"({"local":[0,0],"start":[0,0],"length":[1,1]})") ==
          "mapping: fragment: slices 0: unknown key 'length'; expected local, start, size");
    CHECK(slices_error(R"({"local":[0,0],"start":[0,0]})") == "mapping: fragment: slices 0: no size; expected one");
    CHECK(slices_error(R"({"local":[0],"start":[0,0],"size":[1,1]})") ==
          "mapping: fragment: slices 0: local: has 1 dimensions; expected 2");
    CHECK(slices_error(R"({"local":[0,0],"start":[0,0],"size":[1,1,1]})") ==
          "mapping: fragment: slices 0: size: has 3 dimensions; expected 2");
    CHECK(slices_error(R"({"local":[0,0],"start":[7,0],"size":[2,16]})") ==
          "mapping: fragment: slices 0: ends at 9 of dimension 0; expected at most 8, the size of the whole");
    CHECK(slices_error(R"({"local":[3,0],"start":[6,0],"size":[2,16]})") ==
          "mapping: fragment: slices 0: its local part leaves dimension 0; expected it inside [4, 16]");
    CHECK(slices_error(R"({"local":[0,0],"start":[0,0],"size":[2,9]},{"local":[1,8],"start":[4,0],"size":[2,8]})") ==
          "mapping: fragment: slices 1: overlaps slice 0 in what was recorded; expected elements of its own");
    CHECK(slices_error(R"({"local":[0,0],"start":[0,0],"size":[2,8]},{"local":[1,8],"start":[4,0],"size":[2,8]})") ==
          "");
    CHECK(fragment_error(R"({"whole":[8],"slices":[{"local":[0],"start":[0],"size":[4]}]})") ==
          "mapping: fragment: whole: has 1 dimensions; expected 2, as recorded");
    std::string many;
    for (int i = 0; i < 1025; ++i) many += fmt::format("{}0", i == 0 ? "" : ",");
    CHECK(slices_error(many) == "mapping: fragment: slices: has 1025 slices; expected at most 1024");
  }
}
