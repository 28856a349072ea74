#include "format/run_attributes.h"

#include <doctest/doctest.h>

#include <string>

using namespace ttrace;

namespace {

RunDescription sound_run() {
  RunDescription run;
  run.run_id = "run-1";
  run.world_size = 2;
  run.rank = 1;
  run.mesh = parse_mesh("tp=2", 2, "test");
  run.coordinates = {{"tp", 1}};
  run.provenance = "{}";
  return run;
}

// Returns what is read where `from` stands as `to` in the text; nothing where it is refused.
std::optional<RunDescription> read_with(const std::string& from, const std::string& to) {
  std::string text = to_json(attributes_of(sound_run()));
  REQUIRE(text.find(from) != text.npos);
  text.replace(text.find(from), from.size(), to);
  const auto attributes = attributes_from_json(text);
  return attributes ? parse_attributes(*attributes) : std::nullopt;
}

}  // namespace

TEST_SUITE_BEGIN("format");

TEST_CASE("a number of the run is the integer that is written, or refused") {
  REQUIRE(read_with("\"world_size\":2", "\"world_size\":3"));
  CHECK(read_with("\"world_size\":2", "\"world_size\":3")->world_size == 3);
  for (const char* other :
       {"4294967298", "2.0", "2.9", "true", "\"2\"", "null", "18446744073709551618", "1e0", "[2]"}) {
    INFO(other);
    CHECK_FALSE(read_with("\"world_size\":2", std::string("\"world_size\":") + other));
    CHECK_FALSE(read_with("\"rank\":1", std::string("\"rank\":") + other));
    CHECK_FALSE(read_with("\"ttrace_version\":1", std::string("\"ttrace_version\":") + other));
  }
  for (const char* other : {"2.0", "true", "18446744073709551618"}) {
    INFO(other);
    CHECK_FALSE(read_with("[\\\"tp\\\",2]", std::string("[\\\"tp\\\",") + other + "]"));
    CHECK_FALSE(read_with("{\\\"tp\\\":1}", std::string("{\\\"tp\\\":") + other + "}"));
  }
}

TEST_CASE("a long provenance takes no longer than its length asks for") {
  RunDescription long_run = sound_run();
  long_run.provenance = "{\"a\":[{}";
  for (int i = 0; i < 300'000; ++i) long_run.provenance += ",{}";
  long_run.provenance += "]}";
  CHECK(objection_to_run(long_run).empty());
}

TEST_CASE("what nests deeply is refused") {
  RunDescription deep = sound_run();
  deep.provenance = "{\"a\":" + std::string(63, '[') + std::string(63, ']') + "}";
  CHECK(objection_to_run(deep).empty());
  deep.provenance = "{\"a\":" + std::string(64, '[') + std::string(64, ']') + "}";
  CHECK(objection_to_run(deep) == "provenance nests too deeply; expected at most 64");
  CHECK_FALSE(attributes_from_json(std::string(100'000, '[')));
}

TEST_CASE("an attribute that is longer than any that is written is refused before it is parsed") {
  RunAttributes attributes = attributes_of(sound_run());
  CHECK(parse_attributes(attributes));
  attributes.aliases = "{" + std::string(1 << 20, ' ') + "}";
  CHECK_FALSE(parse_attributes(attributes));
}

TEST_SUITE_END();
