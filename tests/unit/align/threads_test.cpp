#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "align/aligned_trace.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

constexpr const char* kRulesOfAll =
    "layers.*.fc: {output: {tp_dim: 0}}\n"
    "layers.*.fc.weight: {tp_dim: 0}\n"
    "log: {output: local}\n"
    "parallelism:\n"
    "  pipeline: {layers: layers}\n";

// Enough entries for several threads: 16 ranks that run 32 micro-batches of 8 layers between them.
Trace trained() {
  Trace trace = mesh_trace("tp=2,dp=4,pp=2", 16);
  for (std::size_t rank = 0; rank < 16; ++rank) {
    for (int layer = 0; layer < 4; ++layer) {
      const std::string name = "layers." + std::to_string(layer) + ".fc";
      for (std::int32_t microbatch = 0; microbatch < 8; ++microbatch) {
        for (int call = 0; call < 40; ++call) {
          const std::string called = call == 0 ? name : name + "#" + std::to_string(call);
          add_tensor(trace, rank, tensor_id(Kind::kOutput, called, microbatch), {1}, {static_cast<float>(rank)});
        }
      }
      add_tensor(trace, rank, tensor_id(Kind::kParam, name + ".weight"), {1});
    }
    add_tensor(trace, rank, tensor_id(Kind::kOutput, "log", 0), {3});
  }
  return trace;
}

// All that an alignment says, with the places of its pieces.
std::vector<std::string> text_of(const Alignment& alignment) {
  std::vector<std::string> lines = alignment.notes;
  for (const Finding& finding : alignment.findings) lines.push_back(finding.message);
  for (const TensorId& id : alignment.local) lines.push_back("local: " + to_string(id));
  for (const auto& [id, tensor] : alignment.tensors) {
    std::string line = to_string(id) + " " + to_string(tensor.shape);
    for (const Piece& piece : tensor.pieces()) {
      line += fmt::format("; {} of rank {} at {}, {}.{}", to_string(piece.entry->id), piece.rank,
                          to_string(piece.logical.start), piece.replica, piece.term);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string error_of(const Trace& trace, const Annotations& given, int threads) {
  try {
    align(trace, given, {}, threads);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("a trace is aligned alike on any number of threads") {
  Trace trace = trained();
  trace.ranks[3].entries.erase(trace.ranks[3].entries.begin() + 5);
  trace.ranks[9].entries[7].shape = {2, 1};
  const std::vector<std::string> on_one = text_of(align(trace, annotations(kRulesOfAll), {}, 1));
  CHECK(on_one.size() > 10'000);
  CHECK(
      std::any_of(on_one.begin(), on_one.end(), [](const auto& line) { return line.find("not there") != line.npos; }));
  for (const int threads : {2, 3, 8}) CHECK(text_of(align(trace, annotations(kRulesOfAll), {}, threads)) == on_one);
}

TEST_CASE("the error of an alignment is the same on any number of threads") {
  Trace trace = trained();
  // Where the rules split what has no dimension, the first such tensor in the order of names is named.
  for (const std::size_t rank : {2, 3, 12, 13, 14, 15}) {
    for (const std::size_t entry : {3, 200, 900}) trace.ranks[rank].entries[entry].shape = Shape{};
  }
  const std::string on_one = error_of(trace, annotations(kRulesOfAll), 1);
  CHECK(on_one.find("no sharding of a scalar") != on_one.npos);
  for (const int threads : {2, 3, 8}) CHECK(error_of(trace, annotations(kRulesOfAll), threads) == on_one);
}

TEST_CASE("of wrong recorded placements the first is named, on any number of threads") {
  Trace trace = trained();
  for (const std::size_t rank : {5, 14}) {
    const auto mapping = std::make_shared<RecordedMapping>();
    mapping->axes.emplace();
    AxisPlacement split;
    split.axis = "tp";
    split.placement = Placement::kShard;
    mapping->axes->push_back({split, 4});  // of which there are two
    trace.ranks[rank].entries[1000].mapping = mapping;
  }
  const std::string on_one = error_of(trace, annotations(kRulesOfAll), 1);
  CHECK(on_one.starts_with("trace/rank-00005.h5"));
  for (const int threads : {2, 3, 8}) CHECK(error_of(trace, annotations(kRulesOfAll), threads) == on_one);
}

TEST_SUITE_END();
