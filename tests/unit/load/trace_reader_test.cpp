#include "load/trace_reader.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "format/format.h"
#include "format/journal.h"
#include "load/problems.h"
#include "support/forged_trace.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;
namespace fs = std::filesystem;

namespace {

double index_value(std::int32_t rank, std::int64_t i) { return 100 * rank + static_cast<double>(i); }

std::string index_error(const std::function<void(ForgedTrace&, IndexRow&)>& change) {
  ForgedTrace forged;
  forged.add();
  forged.add();
  change(forged, forged.index.rows[1]);
  return forged.error();
}

std::string run_error(const std::function<void(RunAttributes&)>& change) {
  ForgedTrace forged;
  forged.add();
  change(forged.run);
  return forged.error();
}

// Changes the file in place: ext4 would write a file that is truncated and filled again to the disk at once.
void put_byte(const fs::path& path, std::size_t at, char byte) {
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(static_cast<std::streamoff>(at)).put(byte);
}

}  // namespace

TEST_SUITE("load") {
  TEST_CASE("A trace of several ranks is read with axes, coordinates, values") {
    TraceBuilder builder;
    const Trace trace = builder.axes("tp=2,dp=2,sp=tp")
                            .compute_dtype("bfloat16")
                            .provenance(R"({"command":"train"})")
                            .tensor("layers.0.mlp", Kind::kOutput, {2, 3}, index_value)
                            .tensor("layers.0.mlp.weight", Kind::kParam, {5}, index_value, Dtype::kBFloat16)
                            .read();
    CHECK(trace.run_id == "run-1");
    CHECK(trace.world_size == 4);
    CHECK(trace.mesh.axes == Axes{{"tp", 2}, {"dp", 2}});
    CHECK(trace.mesh.aliases == Aliases{{"sp", "tp"}});
    CHECK(trace.compute_dtype == "bfloat16");
    CHECK(trace.provenance.text == R"({"command":"train"})");
    REQUIRE(trace.ranks.size() == 4);
    const RankTrace& rank = trace.ranks[3];
    CHECK(rank.rank == 3);
    CHECK(rank.complete);
    CHECK(rank.coordinates == Coordinates{{"tp", 1}, {"dp", 1}});
    REQUIRE(rank.entries.size() == 2);
    CHECK(rank.entries[0].id == TensorId{0, 0, 0, Pass::kForward, Kind::kOutput, "layers.0.mlp"});
    CHECK(rank.entries[1].id.microbatch == kNoMicrobatch);
    CHECK(rank.entries[0].shape == Shape{2, 3});
    float last = 0;
    std::memcpy(&last, rank.bytes_of(rank.entries[0]) + 5 * sizeof last, sizeof last);
    CHECK(last == 305.0f);
  }

  TEST_CASE("A missing rank, a crashed rank and a rank that is there twice are read as they are") {
    TraceBuilder builder;
    const fs::path directory =
        builder.axes("dp=4").without_rank(1).crashed_rank(2).tensor("a", Kind::kOutput, {3}, index_value).write();
    fs::copy_file(directory / "rank-00003.h5", directory / "rank-00003-copy.h5");
    const Trace trace = read_trace(directory);
    std::vector<std::int32_t> ranks;
    for (const RankTrace& rank : trace.ranks) ranks.push_back(rank.rank);
    CHECK(ranks == std::vector<std::int32_t>{0, 2, 3, 3});
    CHECK(trace.ranks[0].complete);
    CHECK_FALSE(trace.ranks[1].complete);
    CHECK(trace.ranks[1].entries.size() == 1);
    CHECK(verify_checksum(trace.ranks[1], trace.ranks[1].entries[0]));
  }

  TEST_CASE("what its recorder called not whole is read to be looked at alone") {
    TraceBuilder builder;
    const fs::path directory = builder.tensor("a", Kind::kOutput, {3}, index_value).write();
    const auto say = [](const fs::path& where, const std::string& text) { std::ofstream(where) << text; };
    say(directory / "rank-00000.warning", "rank 0: not traceable: 'b' is a sparse tensor\n");
    CHECK(read_trace(directory).ranks.size() == 1);
    say(directory / "rank-00000.problem", "rank 0: one\nrank 0: t\x1bwo\n");
    const std::string refusal =
        ": its recorder called it not whole: rank 0: one (and 1 more); "
        "expected a trace that `ttrace collect` ends with 0 for";
    CHECK_THROWS_WITH_AS(read_trace(directory), (directory.string() + refusal).c_str(), InputError);
    CHECK(read_trace_as_it_is(directory).ranks.size() == 1);
    CHECK(problems_in(directory) == std::vector<std::string>{"rank 0: one", "rank 0: t\\x1bwo"});
  }

  TEST_CASE("each rank's steps of an optimizer are read from its provenance, and a rank that says nothing has none") {
    TraceBuilder builder;
    builder.provenance(R"({"optimizer_steps": {"parameters": [["w"]], "steps": [{"iteration": 0, "chunk": 0,
        "parameters": 0, "optimizer": "torch.optim.sgd.SGD", "calls": 1, "options": {"lr": 0.5}}]}})");
    const Trace trace = builder.axes("dp=2").tensor("w", Kind::kParam, {2}, index_value).read();
    REQUIRE(trace.ranks.size() == 2);
    for (const RankTrace& rank : trace.ranks) {
      REQUIRE(rank.optimizer_steps.size() == 1);
      CHECK(rank.optimizer_steps[0].options.at("lr") == 0.5);
    }
    CHECK(TraceBuilder().tensor("w", Kind::kParam, {2}, index_value).read().ranks[0].optimizer_steps.empty());
    CHECK(run_error([](RunAttributes& run) {
            run.provenance = R"({"optimizer_steps": 1})";
          }).ends_with("its provenance has 'optimizer_steps' that are none; expected what `ttrace collect` writes"));
  }

  TEST_CASE("A directory that is no trace is named as such") {
    const TemporaryDirectory directory;
    CHECK(error_of(directory.path()) ==
          "DIR: no rank's file in it; expected a trace: rank-00000.h5, rank-00001.h5, ...");
    CHECK(error_of(directory.path() / "none") ==
          "DIR: No such file or directory; expected a trace: a directory with rank-00000.h5, rank-00001.h5, ...");
    replace_contents(directory.path() / "file", "");
    CHECK(error_of(directory.path() / "file") ==
          "DIR: Not a directory; expected a trace: a directory with rank-00000.h5, rank-00001.h5, ...");
  }

  TEST_CASE("A file that is not a trace's is named as such") {
    const TemporaryDirectory directory;
    const fs::path path = directory.path() / "rank-00000.h5";
    replace_contents(path, "");
    CHECK(error_of(directory.path()) == "DIR/rank-00000.h5: not an HDF5 file; expected one written by ttrace");
    replace_contents(path, std::string(10000, 'x'));
    CHECK(error_of(directory.path()) == "DIR/rank-00000.h5: not an HDF5 file; expected one written by ttrace");
    replace_contents(path, "\x89HDF\r\n\x1a\n" + std::string(10000, '\0'));
    CHECK(error_of(directory.path()) ==
          "DIR/rank-00000.h5: an HDF5 file, but not a trace; expected one written by ttrace");
    fs::remove(path);
    fs::create_directory(path);
    CHECK(error_of(directory.path()) == "DIR/rank-00000.h5: not a regular file; expected a readable file");
    fs::remove(path);
    ::mkfifo(path.c_str(), 0600);
    CHECK(error_of(directory.path()) == "DIR/rank-00000.h5: not a regular file; expected a readable file");
  }

  TEST_CASE("Files of two runs do not mix") {
    TraceBuilder first, second;
    const fs::path directory = first.axes("dp=2").tensor("a", Kind::kOutput, {3}, index_value).write();
    const fs::path other = second.axes("dp=2").run_id("run-2").tensor("a", Kind::kOutput, {3}, index_value).write();
    fs::copy_file(other / "rank-00001.h5", directory / "rank-00001.h5", fs::copy_options::overwrite_existing);
    CHECK(error_of(directory) ==
          "DIR/rank-00001.h5: run id run-2, but rank-00000.h5 has run-1; expected the files of one run");
  }

  TEST_CASE("Further factorings of the ranks are read, and the coordinates on them") {
    TraceBuilder builder;
    const Trace trace = builder.axes("tp=2,pp=2,sp=tp/ep=2,pp=2").tensor("a", Kind::kOutput, {3}, index_value).read();
    CHECK(trace.mesh.axes == Axes{{"tp", 2}, {"pp", 2}});
    CHECK(trace.mesh.further_factorings == std::vector<Axes>{{{"ep", 2}, {"pp", 2}}});
    CHECK(trace.mesh.aliases == Aliases{{"sp", "tp"}});
    REQUIRE(trace.ranks.size() == 4);
    CHECK(trace.ranks[3].coordinates == Coordinates{{"tp", 1}, {"pp", 1}, {"ep", 1}});
  }

  TEST_CASE("Ranks must agree on the world's size and axes") {
    TraceBuilder first, larger, other;
    const fs::path directory = first.axes("dp=2").tensor("a", Kind::kOutput, {3}, index_value).write();
    const auto replace_rank_1 = [&](const fs::path& from) {
      fs::copy_file(from / "rank-00001.h5", directory / "rank-00001.h5", fs::copy_options::overwrite_existing);
    };
    replace_rank_1(larger.axes("dp=4").tensor("a", Kind::kOutput, {3}, index_value).write());
    CHECK(error_of(directory) ==
          "DIR/rank-00001.h5: world size 4, but rank-00000.h5 has 2; expected the files of one run");
    replace_rank_1(other.axes("tp=2").tensor("a", Kind::kOutput, {3}, index_value).write());
    CHECK(error_of(directory) ==
          "DIR/rank-00001.h5: axes tp=2, but rank-00000.h5 has dp=2; expected the files of one run");
  }

  TEST_CASE("A trace of a later version is refused with both versions") {
    TraceBuilder builder;
    const fs::path directory = builder.tensor("a", Kind::kOutput, {3}, index_value).write();
    std::string bytes = contents(directory / "rank-00000.h5");
    bytes[kSealOffset + offsetof(Seal, version)] = 2;
    replace_contents(directory / "rank-00000.h5", bytes);
    CHECK(error_of(directory) == "DIR/rank-00000.h5: trace format version 2; this ttrace reads version 1");
    CHECK(run_error([](RunAttributes& run) { run.version = 7; }) ==
          "DIR/rank-00000.h5: trace format version 7; this ttrace reads version 1");
  }

  TEST_CASE("A complete file that is cut at any byte is refused, never shorter") {
    TraceBuilder builder;
    const fs::path directory = builder.tensor("a", Kind::kOutput, {3}, index_value)
                                   .tensor("b.weight", Kind::kParam, {2, 2}, index_value)
                                   .write();
    const fs::path path = directory / "rank-00000.h5";
    for (std::uintmax_t size = fs::file_size(path); size-- > 0;) {
      fs::resize_file(path, size);
      REQUIRE_FALSE(error_of(directory).empty());
    }
  }

  TEST_CASE("Of several damaged files the first is named, on any number of threads") {
    TraceBuilder builder;
    const fs::path directory = builder.axes("dp=16").tensor("layers.0.mlp", Kind::kOutput, {2, 3}, index_value).write();
    for (const char* name : {"rank-00003.h5", "rank-00004.h5", "rank-00015.h5"}) put_byte(directory / name, 0, 'x');
    for (const int threads : {1, 2, 8}) {
      CHECK_THROWS_WITH_AS(
          read_trace(directory, threads),
          ((directory / "rank-00003.h5").string() + ": not an HDF5 file; expected one written by ttrace").c_str(),
          InputError);
    }
  }

  TEST_CASE("A trace is read alike on any number of threads") {
    TraceBuilder builder;
    const fs::path directory = builder.axes("dp=16").tensor("layers.0.mlp", Kind::kOutput, {2, 3}, index_value).write();
    for (const int threads : {1, 2, 8}) {
      const Trace trace = read_trace(directory, threads);
      REQUIRE(trace.ranks.size() == 16);
      for (std::int32_t rank = 0; rank < 16; ++rank) {
        const RankTrace& one = trace.ranks[static_cast<std::size_t>(rank)];
        CHECK(one.rank == rank);
        CHECK(verify_checksum(one, one.entries.at(0)));
      }
      CHECK(digest_of(trace) == digest_of(read_trace(directory, 1)));
    }
  }

  TEST_CASE("Ranks share the names and shapes that they record alike, and keep what only one of them records") {
    TraceBuilder builder;
    builder.axes("dp=4").tensor("layers.0.mlp", Kind::kOutput, {2, 3}, index_value);
    builder.tensor({.id = {.name = "layers.1"}, .shape = {3}, .values = index_value, .ranks = {2}});
    const Trace trace = read_trace(builder.write(), 1);
    REQUIRE(trace.ranks.size() == 4);
    const Entry& first = trace.ranks[0].entries.at(0);
    for (const RankTrace& rank : trace.ranks) {
      CHECK(rank.entries.size() == (rank.rank == 2 ? 2 : 1));
      CHECK(rank.entries[0].id == first.id);
      CHECK(rank.entries[0].id.name.data() == first.id.name.data());
      CHECK(rank.entries[0].shape.data() == first.shape.data());
      for (const Entry& entry : rank.entries) CHECK(verify_checksum(rank, entry));
    }
    CHECK(trace.ranks[2].entries[1].id.name == "layers.1");
  }

  TEST_CASE("A rank's checksums are checked, though another rank has the same index but for them") {
    const auto fill = [](ForgedTrace& forged, std::uint64_t checksum) {
      forged.run.world_size = 2;
      forged.add();
      forged.add().offset = forged.index.rows[0].offset;  // they share their bytes
      forged.index.rows[1].checksum = checksum;
    };
    ForgedTrace sound, other;
    fill(sound, 0);
    fill(other, 1);
    other.run.rank = 1;
    CHECK(sound.error() == "");
    CHECK(other.error() != "");
    fs::copy_file(other.directory.path() / "rank-00000.h5", sound.directory.path() / "rank-00001.h5");
    CHECK(error_of(sound.directory.path()) ==
          "DIR/rank-00001.h5: tensor 1 of the index: its checksum is not that of tensor 0, which has the same bytes; "
          "expected one checksum");
  }

  // A file with the tables of `file`, and no HDF5 objects beside them.
  std::string tables_of(const std::string& file) {
    Seal seal = read_seal(file);
    std::string header = file.substr(0, kHeaderBytes), metadata;
    for (Extent* table : {&seal.run, &seal.index, &seal.text, &seal.shapes}) {
      metadata += file.substr(table->offset, table->bytes);
      table->offset = seal.metadata.offset + metadata.size() - table->bytes;
    }
    seal.metadata.bytes = metadata.size();
    put_seal(header, seal, metadata);
    return header + file.substr(kHeaderBytes, seal.metadata.offset - kHeaderBytes) + metadata;
  }

  TEST_CASE("A file that is too small for its tables is refused, though a larger one has the same") {
    const auto fill = [](ForgedTrace& forged) {
      forged.run.world_size = 2;
      const std::uint64_t name = forged.index.text.size();
      forged.index.text += std::string(kMaxNameBytes, 'c');
      for (int i = 0; i < 2000; ++i) {
        IndexRow& row = forged.add();
        row.module = name;
        row.module_length = kMaxNameBytes;
      }
      forged.data_end = kHeaderBytes + 64 * forged.index.rows.size();
    };
    ForgedTrace large, small;
    fill(large);
    fill(small);
    small.run.rank = 1;
    CHECK(large.error() == "");
    CHECK(small.error() == "");
    const std::string sound = contents(small.directory.path() / "rank-00000.h5");
    replace_contents(large.directory.path() / "rank-00001.h5", tables_of(sound));
    for (const int threads : {1, 2}) {
      CHECK_THROWS_WITH_AS(read_trace(large.directory.path(), threads), doctest::Contains("names of classes"),
                           InputError);
    }
  }

  TEST_CASE("A truncated file is called truncated") {
    TraceBuilder builder;
    const fs::path directory = builder.tensor("a", Kind::kOutput, {3}, index_value).write();
    const fs::path path = directory / "rank-00000.h5";
    const std::uintmax_t size = fs::file_size(path);
    fs::resize_file(path, size - 1);
    CHECK(error_of(directory) ==
          fmt::format("DIR/rank-00000.h5: truncated: has {} bytes; expected {}", size - 1, size));
    fs::resize_file(path, 1000);
    CHECK(error_of(directory) == "DIR/rank-00000.h5: truncated to 1000 bytes; expected the file as it was recorded");
  }

  TEST_CASE("A changed byte anywhere in the file is noticed, or lies in padding") {
    TraceBuilder builder;
    const fs::path directory = builder.tensor("a", Kind::kOutput, {3}, index_value)
                                   .tensor("b.weight", Kind::kParam, {2, 2}, index_value)
                                   .write();
    const fs::path path = directory / "rank-00000.h5";
    const std::string sound = contents(path);
    int refused = 0, mismatched = 0, unnoticed = 0;
    for (std::size_t at = 0; at < sound.size(); ++at) {
      if (at > 0) put_byte(path, at - 1, sound[at - 1]);
      put_byte(path, at, static_cast<char>(sound[at] ^ (1 << at % 8)));
      if (!error_of(directory).empty()) {
        ++refused;
        continue;
      }
      const RankTrace rank = std::move(read_trace(directory).ranks[0]);
      REQUIRE(rank.entries.size() == 2);
      const bool verified = verify_checksum(rank, rank.entries[0]) && verify_checksum(rank, rank.entries[1]);
      ++(verified ? unnoticed : mismatched);
    }
    CHECK(mismatched == 3 * 4 + 4 * 4);      // every byte of the two tensors
    CHECK(unnoticed == 2 * 64 - (12 + 16));  // what is left of their 64-byte lines
    CHECK(refused + mismatched + unnoticed == static_cast<int>(sound.size()));
  }

  TEST_CASE("The attributes of a run are checked, though the seal is whole") {
    const std::string file = "DIR/rank-00000.h5: ";
    CHECK(run_error([](RunAttributes&) {}) == "");
    CHECK(run_error([](RunAttributes& run) { run.rank = 1; }) == file + "rank is 1; expected 0 to 0");
    CHECK(run_error([](RunAttributes& run) { run.rank = -1; }) == file + "rank is -1; expected 0 to 0");
    CHECK(run_error([](RunAttributes& run) { run.world_size = 1'000'001; }) ==
          file + "world size is 1000001; expected 1 to 1000000");
    CHECK(run_error([](RunAttributes& run) { run.run_id.clear(); }) == file + "run id is empty; expected one per run");
    CHECK(run_error([](RunAttributes& run) { run.axes = std::string("[[\"tp\",2]]"); }) ==
          file + "axes: axis 'tp' has size 2; expected 1 to 1, the number of ranks");
    CHECK(run_error([](RunAttributes& run) { run.axes = std::string("[[\"tp\"]]"); }) ==
          file + "axes, views, aliases or coordinates do not parse; expected JSON");
    CHECK(run_error([](RunAttributes& run) { run.axes = std::string("[["); }) ==
          file + "axes, views, aliases or coordinates do not parse; expected JSON");
    CHECK(run_error([](RunAttributes& run) { run.views = std::string("[[[\"ep\",2]]]"); }) ==
          file + "axes: axis 'ep' has size 2; expected 1 to 1, the number of ranks");
    CHECK(run_error([](RunAttributes& run) { run.views = std::string("[[\"ep\",1]]"); }) ==
          file + "axes, views, aliases or coordinates do not parse; expected JSON");
    CHECK(run_error([](RunAttributes& run) { run.views = std::string("[[[\"ep\",1]]]"); }) ==
          file + "coordinate of axis 'ep' is missing; expected one per axis");
    CHECK(run_error([](RunAttributes& run) { run.aliases = std::string("{\"sp\":\"tp\"}"); }) ==
          file + "axes: 'sp=tp': 'tp' is neither a size nor an axis named before it");
    CHECK(run_error([](RunAttributes& run) { run.coordinates = std::string("{\"tp\":0}"); }) ==
          file + "1 coordinates; expected one for each of the axes ''");
    CHECK(run_error([](RunAttributes& run) { run.provenance = std::string("{"); }) ==
          file + "provenance does not parse; expected a JSON object");
    CHECK(run_error([](RunAttributes& run) {
            run.provenance = fmt::format("{{\"a\":{}1{}}}", std::string(100'000, '['), std::string(100'000, ']'));
          }) == file + "provenance nests too deeply; expected at most 64");
    CHECK(run_error([](RunAttributes& run) { run.provenance = std::string((1 << 20) + 1, ' '); }) ==
          file + "provenance has 1048577 bytes; expected at most 1 MiB");
  }

  TEST_CASE("Every number of the index is checked, though the seal is whole") {
    const std::string row = "DIR/rank-00000.h5: tensor 1 of the index: ";
    constexpr auto kHuge = ~std::uint64_t{0};
    CHECK(index_error([](auto&, auto&) {}) == "");
    CHECK(index_error([](auto&, auto& r) { r.pass = 3; }) == row + "pass is out of range; expected 1 or 2");
    CHECK(index_error([](auto&, auto& r) { r.kind = 0; }) == row + "kind is out of range; expected 1 to 18");
    CHECK(index_error([](auto&, auto& r) { r.kind = 19; }) == row + "kind is out of range; expected 1 to 18");
    CHECK(index_error([](auto&, auto& r) { r.dtype = 13; }) == row + "dtype is out of range; expected 1 to 12");
    CHECK(index_error([](auto&, auto& r) { r.iteration = -1; }) == row + "iteration is negative; expected 0 or more");
    CHECK(index_error([](auto&, auto& r) { r.microbatch = -2; }) ==
          row + "micro-batch is negative; expected -1 or more");
    CHECK(index_error([](auto&, auto& r) { r.chunk = -1; }) == row + "chunk is negative; expected 0 or more");
    CHECK(index_error([](auto&, auto& r) { r.order = 0; }) ==
          row + "its order is not after its predecessor's; expected an increasing order");
    CHECK(index_error([](auto&, auto& r) { r.bytes = 15; }) == row + "15 bytes for shape [4] of float32; expected 16");
    CHECK(index_error([](auto&, auto& r) { r.offset = 4160 + 8; }) ==
          row + "its data is at 4168; expected a multiple of 64");
    CHECK(index_error([](auto&, auto& r) { r.offset = 0; }) ==
          row + "16 bytes at 0 lie outside the tensor data; expected them between 4096 and 4352");
    CHECK(index_error([](auto&, auto& r) { r.offset = 4352; }) ==
          row + "16 bytes at 4352 lie outside the tensor data; expected them between 4096 and 4352");
    CHECK(index_error([](auto&, auto& r) { r.offset = kHuge; }) ==
          row + fmt::format("16 bytes at {} lie outside the tensor data; expected them between 4096 and 4352", kHuge));
    const auto to_first = [](auto& forged, auto& r) { r.offset = forged.index.rows[0].offset; };
    CHECK(index_error(to_first) == "");  // tensors with the same bytes share them
    CHECK(index_error([&](auto& forged, auto& r) {
            to_first(forged, r);
            r.checksum = 1;
          }) == row + "its checksum is not that of tensor 0, which has the same bytes; expected one checksum");
    CHECK(index_error([&](auto& forged, auto& r) {
            to_first(forged, r);
            r.bytes = 12;
            forged.index.shapes[r.shape] = 3;
          }) == row + "its data overlaps that of tensor 0; expected bytes of its own, or all of them in common");
    CHECK(index_error([](auto& forged, auto& r) {
            forged.index.rows[0].bytes = 80;
            forged.index.shapes[forged.index.rows[0].shape] = 20;
            r.offset = 4096 + 64;
          }) == row + "its data overlaps that of tensor 0; expected bytes of its own, or all of them in common");
    CHECK(index_error([](auto&, auto& r) { r.name = 0; }) ==
          row + "t0 input, iteration 0, micro-batch 0 is there twice; expected each identity once");
    CHECK(index_error([](auto&, auto& r) { r.name_length = 0; }) == row + "the name is empty; expected a module path");
  }

  // The header and 65,536 bytes, which `tensors` have in common.
  std::string error_of_sharing(std::size_t tensors) {
    ForgedTrace forged;
    forged.data_end = kHeaderBytes + 65'536;
    for (std::size_t i = 0; i < tensors; ++i) {
      IndexRow& row = forged.add();
      row.offset = kHeaderBytes;
      row.bytes = 65'536;
      forged.index.shapes[row.shape] = 16'384;
    }
    return forged.error();
  }

  TEST_CASE("Tensors that share their bytes have 64 times those of the file at most") {
    CHECK(error_of_sharing(64) == "");
    CHECK(error_of_sharing(68) == "");  // 64 * (4096 + 65,536) bytes
    CHECK(error_of_sharing(69) ==
          "DIR/rank-00000.h5: tensor 68 of the index: with it the tensors have 4521984 bytes, in 69632 of the file; "
          "expected at most 64 times as many");
    CHECK(error_of_sharing(10'000).find("tensor 68 of the index: with it") != std::string::npos);
  }

  TEST_CASE("A journal's tensors share their bytes as those of an index do") {
    TraceBuilder builder;
    const fs::path directory = builder.crashed_rank(0).tensor("a", Kind::kOutput, {20'000}, index_value).write();
    const Entry first = read_trace(directory).ranks[0].entries[0];
    for (std::uint64_t i = 1; i < 100; ++i) {
      Entry entry = first;
      entry.id.name = fmt::format("b{}", i);
      entry.order = i;
      std::ofstream(directory / "rank-00000.journal", std::ios::binary | std::ios::app) << journal_record(entry, {});
    }
    CHECK(error_of(directory) ==
          "DIR/rank-00000.h5: tensor 67 of the index: with it the tensors have 5440000 bytes, in 84096 of the file; "
          "expected at most 64 times as many");
  }

  TEST_CASE("Names and shapes are checked, though the seal is whole") {
    const std::string row = "DIR/rank-00000.h5: tensor 1 of the index: ";
    const std::string outside = row + "its name, shape or mapping lies outside the tables; expected it inside";
    constexpr auto kHuge = ~std::uint64_t{0};
    CHECK(index_error([](auto&, auto& r) { r.name_length = 1000; }) == outside);
    CHECK(index_error([](auto&, auto& r) { r.name = kHuge; }) == outside);
    CHECK(index_error([](auto&, auto& r) { r.module = kHuge; }) == outside);
    CHECK(index_error([](auto&, auto& r) { r.module_length = 1000; }) == outside);
    CHECK(index_error([](auto&, auto& r) { r.shape = kHuge; }) == outside);
    CHECK(index_error([](auto&, auto& r) { r.ndim = 255; }) == outside);
    CHECK(index_error([](auto& forged, auto& r) {
            forged.index.shapes.insert(forged.index.shapes.end(), 9, 1);
            r.ndim = 9;
          }) == row + "9 dimensions; expected 0 to 8");
    CHECK(index_error([](auto& forged, auto&) { forged.index.shapes[1] = -4; }) ==
          row + "a dimension is -4; expected 0 or more");
    CHECK(index_error([](auto& forged, auto& r) {
            forged.index.shapes = {4, 1ll << 32, 1ll << 32, 0};
            r.ndim = 3;
          }) == row + "shape [4294967296, 4294967296, 0] is too large; expected less than 2^63");
    CHECK(index_error([](auto& forged, auto&) { forged.index.text[3] = '\xff'; }) ==
          row + "the name is not UTF-8; expected a module path");
    CHECK(index_error([](auto& forged, auto& r) {
            r.module = forged.index.text.size();
            r.module_length = 1;
            forged.index.text += '\xc0';
          }) == row + "the module class is malformed; expected UTF-8 of at most 4096 bytes");
  }

  // Returns what the reader says of 100 tensors, whose rows `change` makes read more of the tables.
  std::string error_of_hundred(const std::function<void(IndexRow&)>& change) {
    ForgedTrace forged;
    for (int i = 0; i < 100; ++i) forged.add();
    forged.data_end = kHeaderBytes + 64 * 100;
    forged.index.text += std::string(20'000, 'x');
    forged.index.shapes.insert(forged.index.shapes.end(), 500, 1);
    for (IndexRow& row : forged.index.rows) change(row);
    return forged.error();
  }

  TEST_CASE("A class's name may be as long as a recorder takes it, and that of every tensor") {
    TraceBuilder builder;
    for (int i = 0; i < 300; ++i) {
      TensorSpec spec;
      spec.id = {0, 0, 0, Pass::kForward, Kind::kOutput, std::to_string(i)};
      spec.shape = {0};
      spec.module_class = std::string(kMaxNameBytes, 'c');
      builder.tensor(std::move(spec));
    }
    CHECK(error_of(builder.write()) == "");
  }

  TEST_CASE("Rows do not read the same names and shapes again and again") {
    const auto is_refused = [](std::string_view what, const std::function<void(IndexRow&)>& change) {
      return error_of_hundred(change).find(fmt::format(" of the index: with it the {} have ", what)) !=
             std::string::npos;
    };
    CHECK(error_of_hundred([](auto&) {}) == "");
    CHECK(is_refused("names", [](auto& row) {
      row.name = 0;
      row.name_length = 20'000;
    }));
    CHECK(is_refused("shapes", [](auto& row) {
      row.shape = 0;
      row.ndim = 255;
    }));
    CHECK(is_refused("names of classes", [](auto& row) {
      row.module = 0;
      row.module_length = 20'000;
    }));
  }

  TEST_CASE("A seal that leads outside the metadata is refused, though its checksum is right") {
    TraceBuilder builder;
    const fs::path path = builder.tensor("a", Kind::kOutput, {3}, index_value).write() / "rank-00000.h5";
    const std::string sound = contents(path);
    const Seal sound_seal = read_seal(sound);
    const auto error_with = [&](const std::function<void(Seal&)>& change) {
      std::string header = sound.substr(0, kHeaderBytes);
      Seal seal = sound_seal;
      change(seal);
      put_seal(header, seal, std::string_view(sound).substr(sound_seal.metadata.offset));
      replace_contents(path, header + sound.substr(kHeaderBytes));
      return error_of(path.parent_path());
    };
    const std::string range = fmt::format("expected it between {} and {}", sound_seal.metadata.offset, sound.size());
    CHECK(error_with([](Seal&) {}) == "");
    CHECK(error_with([](Seal& seal) { seal.index.offset = kHeaderBytes; }) ==
          "DIR/rank-00000.h5: /ttrace/index with 96 bytes at 4096 does not fit; " + range);
    CHECK(error_with([](Seal& seal) { seal.index.bytes = 97; }) ==
          fmt::format("DIR/rank-00000.h5: /ttrace/index with 97 bytes at {} does not fit; {}", sound_seal.index.offset,
                      range));
    CHECK(error_with([](Seal& seal) { seal.text.bytes = ~std::uint64_t{0}; }) ==
          fmt::format("DIR/rank-00000.h5: /ttrace/text with {} bytes at {} does not fit; {}", ~std::uint64_t{0},
                      sound_seal.text.offset, range));
    CHECK(
        error_with([](Seal& seal) { seal.shapes.offset = ~std::uint64_t{0}; }) ==
        fmt::format("DIR/rank-00000.h5: /ttrace/shapes with 8 bytes at {} does not fit; {}", ~std::uint64_t{0}, range));
    CHECK(error_with([](Seal& seal) { --seal.run.bytes; }) ==
          "DIR/rank-00000.h5: /ttrace/run does not parse; expected the run's attributes as JSON");
    CHECK(error_with([](Seal& seal) { seal.metadata.offset = 64; }) ==
          fmt::format("DIR/rank-00000.h5: has {} bytes; expected {}", sound.size(), 64 + sound_seal.metadata.bytes));
  }

  TEST_CASE("A journal's numbers are checked as those of an index") {
    TraceBuilder builder;
    const fs::path directory = builder.crashed_rank(0).tensor("a", Kind::kOutput, {3}, index_value).write();
    CHECK(error_of(directory) == "");
    Entry entry = read_trace(directory).ranks[0].entries[0];
    entry.id.name = "b";
    entry.order = 1;
    entry.offset += 64;
    std::ofstream(directory / "rank-00000.journal", std::ios::binary | std::ios::app) << journal_record(entry, {});
    CHECK(error_of(directory) ==
          "DIR/rank-00000.h5: tensor 1 of the index: 12 bytes at 4160 lie outside the tensor data; "
          "expected them between 4096 and 4108");
  }

  TEST_CASE("A crashed rank without a journal can't be read") {
    TraceBuilder builder;
    const fs::path directory = builder.crashed_rank(0).tensor("a", Kind::kOutput, {3}, index_value).write();
    fs::remove(directory / "rank-00000.journal");
    CHECK(error_of(directory) == "DIR/rank-00000.h5: not an HDF5 file; expected one written by ttrace");
  }
}
