#include "load/entry_mappings.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "format/journal.h"
#include "load/trace_reader.h"
#include "support/forged_trace.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

constexpr std::string_view kSplit = R"({"axes":[{"axis":"tp","size":2,"placement":"shard","dim":0}]})";
constexpr std::string_view kFlat = R"({"fragment":{"whole":[8],"range":[4,8]}})";

TensorSpec tensor(const std::string& name, std::string_view mapping) {
  TensorSpec spec;
  spec.id.name = name;
  spec.shape = {4};
  spec.values = [](std::int32_t, std::int64_t i) { return static_cast<double>(i); };
  spec.mapping = mapping;
  return spec;
}

TraceBuilder& record_four(TraceBuilder& builder) {
  return builder.tensor(tensor("a", kSplit))
      .tensor(tensor("b", ""))
      .tensor(tensor("c", kFlat))
      .tensor(tensor("d", kSplit));
}

void check_four(const Trace& trace) {
  const std::vector<Entry>& entries = trace.ranks[0].entries;
  REQUIRE(entries.size() == 4);
  REQUIRE(entries[0].mapping);
  REQUIRE(entries[0].mapping->axes);
  CHECK(entries[0].mapping->axes->at(0).placement.axis == "tp");
  CHECK_FALSE(entries[1].mapping);
  REQUIRE(entries[2].mapping);
  CHECK(entries[2].mapping->fragment->range == Fragment::Range{4, 8});
  CHECK(entries[3].mapping == entries[0].mapping);  // one object for one text
}

// Returns the reader's error about a file whose second tensor has this mapping.
std::string forged_error(std::string_view mapping) {
  ForgedTrace forged;
  forged.add();
  IndexRow& row = forged.add();
  row.mapping = forged.index.text.size();
  row.mapping_length = static_cast<std::uint32_t>(mapping.size());
  forged.index.text += mapping;
  return forged.error();
}

}  // namespace

TEST_SUITE("load") {
  TEST_CASE("A recorded mapping is read back, once for all tensors that share it") {
    TraceBuilder builder;
    const Trace trace = record_four(builder).read();
    CHECK(trace.ranks[0].complete);
    check_four(trace);
  }

  TEST_CASE("A mapping that tensors share is stored once") {
    TraceBuilder builder;
    const std::string file = contents(record_four(builder).write() / "rank-00000.h5");
    const std::size_t first = file.find(kSplit);
    REQUIRE(first != file.npos);
    CHECK(file.find(kSplit, first + 1) == file.npos);
  }

  TEST_CASE("A mapping outlives a crash") {
    TraceBuilder builder;
    const Trace trace = record_four(builder.crashed_rank(0)).read();
    CHECK_FALSE(trace.ranks[0].complete);
    check_four(trace);
  }

  TEST_CASE("A mapping is checked again when it is read, though the seal is whole") {
    const std::string row = "DIR/rank-00000.h5: tensor 1 of the index: ";
    CHECK(forged_error(kFlat) == "");
    CHECK(forged_error("{") == row + "mapping: does not parse; expected a JSON object");
    CHECK(forged_error(R"({"shape":[-8]})") ==
          row + "mapping: shape 0: is -8; expected an integer from 0 to 1099511627776");
    CHECK(forged_error(R"({"fragment":{"whole":[8],"range":[0,8]}})") ==
          row + "mapping: fragment: range of 8 elements for a tensor recorded as [4]; expected it as [8]");
    CHECK(forged_error(R"({"fragment":{"whole":[8],"slices":[{"local":[1],"start":[0],"size":[4]}]}})") ==
          row + "mapping: fragment: slices 0: its local part leaves dimension 0; expected it inside [4]");
    CHECK(forged_error(fmt::format("{{{}}}", std::string(70'000, ' '))) ==
          row + "mapping: has 70002 bytes; expected at most 65536");
  }

  TEST_CASE("A mapping outside the file is refused") {
    const std::string outside =
        "DIR/rank-00000.h5: tensor 0 of the index: its name, shape or mapping lies outside the tables; expected it "
        "inside";
    ForgedTrace far, longer;
    far.add().mapping = ~std::uint64_t{0};
    CHECK(far.error() == outside);
    longer.add().mapping_length = 1000;
    CHECK(longer.error() == outside);
  }

  TEST_CASE("A journal's mappings are checked as those of an index") {
    TraceBuilder builder;
    const auto directory = builder.crashed_rank(0).tensor(tensor("a", kFlat)).write();
    const std::string journal = contents(directory / "rank-00000.journal");
    Entry entry = read_trace(directory).ranks[0].entries[0];
    entry.id.name = "b";
    entry.order = 1;
    entry.shape = {0};
    entry.bytes = 0;
    replace_contents(directory / "rank-00000.journal", journal + journal_record(entry, kFlat));
    CHECK(error_of(directory) ==
          "DIR/rank-00000.h5: tensor 1 of the index: mapping: fragment: range of 4 elements for a tensor recorded as "
          "[0]; expected it as [4]");
  }
}
