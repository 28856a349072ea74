#include "format/journal.h"

#include <doctest/doctest.h>

using namespace ttrace;

namespace {

constexpr std::string_view kMapping = R"({"shape":[8,1,7]})";

RunAttributes example_run() {
  return {1, "run-1", 2, 1, R"([["tp",2]])", R"({"sp":"tp"})", R"({"tp":1})", "bfloat16", R"({"command":"x"})"};
}

Entry example_entry(std::uint64_t order) {
  Entry entry;
  entry.id = {3, 1, 2, Pass::kRecompute, Kind::kGradInput, "layers.0.\xC3\xA9"};
  entry.dtype = Dtype::kBFloat16;
  entry.shape = {4, 1, 7};
  entry.order = order;
  entry.offset = 4096 + order * 64;
  entry.bytes = 56;
  entry.checksum = 0x0123456789abcdef;
  entry.module_class = "torch.nn.Linear";
  return entry;
}

}  // namespace

TEST_SUITE("format") {
  TEST_CASE("A journal gives back the run and the tensors") {
    RunAttributes described = example_run();
    described.provenance = R"({"command":"y"})";
    const std::string bytes = journal_record(example_run()) + journal_record(example_entry(0), kMapping) +
                              journal_record(described) + journal_record(example_entry(1), kMapping);
    const auto journal = parse_journal(bytes);
    REQUIRE(journal);
    CHECK(journal->run.run_id == "run-1");
    CHECK(journal->run.rank == 1);
    CHECK(journal->run.world_size == 2);
    CHECK(journal->run.axes == R"([["tp",2]])");
    CHECK(journal->run.aliases == R"({"sp":"tp"})");
    CHECK(journal->run.coordinates == R"({"tp":1})");
    CHECK(journal->run.compute_dtype == "bfloat16");
    CHECK(journal->run.provenance == R"({"command":"y"})");
    REQUIRE(journal->entries.size() == 2);
    const Entry& entry = journal->entries[1];
    CHECK(entry.id == example_entry(1).id);
    CHECK(entry.dtype == Dtype::kBFloat16);
    CHECK(entry.shape == Shape{4, 1, 7});
    CHECK(entry.order == 1);
    CHECK(entry.offset == 4160);
    CHECK(entry.bytes == 56);
    CHECK(entry.checksum == 0x0123456789abcdef);
    CHECK(entry.module_class.get() == "torch.nn.Linear");
    CHECK(journal->mappings == std::vector{kMapping, kMapping});
  }

  TEST_CASE("A journal that is cut anywhere keeps the records before the cut") {
    const std::string run = journal_record(example_run());
    const std::string one = run + journal_record(example_entry(0), kMapping);
    const std::string two = one + journal_record(example_entry(1), kMapping);
    for (std::size_t length = 0; length <= two.size(); ++length) {
      const auto journal = parse_journal(std::string_view(two).substr(0, length));
      REQUIRE(journal.has_value() == (length >= run.size()));
      if (journal) REQUIRE(journal->entries.size() == (length >= one.size()) + (length == two.size()));
    }
  }

  TEST_CASE("A damaged record ends the journal") {
    const std::string one = journal_record(example_run()) + journal_record(example_entry(0), kMapping);
    const std::string two = one + journal_record(example_entry(1), kMapping);
    for (std::size_t at = one.size(); at < two.size(); ++at) {
      std::string damaged = two;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      const auto journal = parse_journal(damaged);
      REQUIRE(journal);
      REQUIRE(journal->entries.size() == 1);
    }
  }

  TEST_CASE("A journal without a run at its head is none") {
    CHECK_FALSE(parse_journal(""));
    CHECK_FALSE(parse_journal(journal_record(example_entry(0), kMapping)));
    CHECK_FALSE(parse_journal("not a journal at all, but long enough to hold a header"));
  }
}
