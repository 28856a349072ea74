// What a trace says of its own program, and what a user says of it: axes, and keys of `parallelism`.
#include "identify/program.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "identify/arrangement.h"
#include "load/trace_reader.h"
#include "support/aligned.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

Annotations with_axes(const std::string& axes) { return annotations("parallelism: {axes: \"" + axes + "\"}"); }

// A trace of four ranks that knows these axes, or none.
Trace four_ranks(const std::string& axes) {
  Trace trace = mesh_trace(axes.empty() ? "dp=4" : axes, 4);
  trace.directory = "candidate";
  if (!axes.empty()) return trace;
  trace.mesh = {};
  for (RankTrace& rank : trace.ranks) rank.coordinates.clear();
  return trace;
}

std::string objection(const std::string& recorded, const Annotations& said, AxesOf whose = AxesOf::kThisTrace) {
  Trace trace = four_ranks(recorded);
  try {
    settle_axes(trace, said, whose);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("a trace that does not know its axes takes those that are said") {
  Trace trace = four_ranks("");
  settle_axes(trace, with_axes("tp=2,dp=2,sp=tp"), AxesOf::kThisTrace);
  CHECK(to_string(trace.mesh) == "tp=2,dp=2,sp=tp");
  CHECK(trace.ranks[2].coordinates == Coordinates{{"tp", 0}, {"dp", 1}});
}

TEST_CASE("without axes the message says what to type") {
  CHECK(objection("", {}) ==
        "candidate: nothing says how its 4 ranks are arranged; expected --axes, as in --axes dp=4, or `parallelism: "
        "{axes: dp=4}` in the annotations");
  CHECK(objection("", with_axes("tp=2")) ==
        "candidate: gpt.yaml:1: 'parallelism': axes: the axes 'tp=2' make 2 ranks; the run has 4");
  Trace alone = mesh_trace("", 1);
  settle_axes(alone, {}, AxesOf::kThisTrace);
  settle_axes(alone, with_axes("tp=2"), AxesOf::kThisTrace);
  CHECK(alone.mesh == Mesh{});
}

TEST_CASE("the axes to type are those that the ranks' parameters, losses and inputs speak for") {
  const TensorId given = tensor_id(Kind::kInput, "(model)", 0), loss = tensor_id(Kind::kScalar, "loss", 0);
  const auto proposed = [&](bool has_own_parameters, bool all_have_losses, float of_second) {
    Trace trace = mesh_trace("", 1);
    trace.world_size = 2;
    trace.ranks.push_back(trace.ranks[0]);
    trace.ranks[1].rank = 1;
    for (const std::size_t rank : {0, 1}) {
      const std::string layer = has_own_parameters && rank == 1 ? "1.weight" : "0.weight";
      add_tensor(trace, rank, tensor_id(Kind::kParam, layer), {1}, {1});
      add_tensor(trace, rank, given, {1}, {rank == 0 ? 1 : of_second});
      if (all_have_losses || rank == 1) add_tensor(trace, rank, loss, {}, {1});
    }
    return axes_to_propose(trace);
  };
  CHECK(proposed(false, true, 2) == "dp=2");
  CHECK(proposed(false, true, 1) == "tp=2");
  CHECK(proposed(true, false, 2) == "pp=2");
  CHECK(proposed(true, true, 2) == "dp=2");
  CHECK(proposed(false, false, 2) == "dp=2");
}

TEST_CASE("the axes that are proposed follow from which ranks read the same samples") {
  const auto proposed = [](const std::vector<float>& samples) {
    Trace trace = four_ranks("");
    for (std::size_t rank = 0; rank < samples.size(); ++rank) {
      add_tensor(trace, rank, tensor_id(Kind::kInput, "(model)", 0), {2}, {samples[rank], 1});
    }
    return axes_to_propose(trace);
  };
  CHECK(proposed({5, 5, 6, 6}) == "tp=2,dp=2");
  CHECK(proposed({5, 6, 5, 6}) == "dp=2,tp=2");
  CHECK(proposed({5, 5, 5, 5}) == "tp=4");
  CHECK(proposed({5, 6, 7, 8}) == "dp=4");
  CHECK(proposed({5, 6, 6, 5}) == "dp=4");  // no order of two axes
  CHECK(proposed({5, 5, 6, 7}) == "dp=4");
  CHECK(proposed({5, 5, 5, 6}) == "dp=4");
  CHECK(proposed({}) == "dp=4");
}

TEST_CASE("axes that are said may add to those of the trace, but not contradict them") {
  Trace trace = four_ranks("tp=2,dp=2");
  settle_axes(trace, with_axes("tp=2,dp=2,sp=tp/ep=4"), AxesOf::kThisTrace);
  CHECK(to_string(trace.mesh) == "tp=2,dp=2,sp=tp/ep=4");
  CHECK(trace.ranks[3].coordinates == Coordinates{{"tp", 1}, {"dp", 1}, {"ep", 3}});
  const std::string expected = "; candidate recorded tp=2,dp=2; expected axes that only add to these";
  for (const char* other : {"dp=2,tp=2", "tp=4", "tp=2,cp=2"}) {
    CAPTURE(other);
    CHECK(objection("tp=2,dp=2", with_axes(other)) ==
          "gpt.yaml:1: 'parallelism': axes: " + std::string(other) + expected);
    CHECK(objection("tp=2,dp=2", with_axes(other), AxesOf::kAnother).empty());
  }
}

TEST_CASE("what the program says counts where no file says that key, and notes name it") {
  const Trace trace = TraceBuilder()
                          .axes("dp=2")
                          .provenance(R"({"parallelism": {"loss_scale": "dp", "microbatches": {"order": "blocked"}}})")
                          .read();
  const Annotations words = with_program_words({}, trace);
  REQUIRE(words.loss_scale);
  CHECK(words.loss_scale->numerator == std::vector<std::string>{"dp"});
  CHECK(words.microbatches.order == MicrobatchOrder::kBlocked);
  CHECK(notes_of_program_words({}, trace) ==
        std::vector<std::string>{R"(as the program says: loss_scale: "dp", microbatches: {"order":"blocked"})"});

  const Annotations file = annotations("parallelism: {loss_scale: 1/dp}");
  CHECK(with_program_words(file, trace).loss_scale->denominator == std::vector<std::string>{"dp"});
  CHECK(notes_of_program_words(file, trace) ==
        std::vector<std::string>{R"(as the program says: microbatches: {"order":"blocked"})"});
}

TEST_CASE("a loss scale that nobody knows is none, and noted where no file says it") {
  const Trace trace = TraceBuilder().axes("dp=2").provenance(R"({"parallelism": {"loss_scale": "unknown"}})").read();
  CHECK_FALSE(with_program_words({}, trace).loss_scale);
  const auto notes = notes_of_program_words({}, trace);
  REQUIRE(notes.size() == 1);
  CHECK(has(notes[0], "the program divides the gradients that it adds up by what nobody knows"));
  CHECK(notes_of_program_words(annotations("parallelism: {loss_scale: dp}"), trace).empty());
}

TEST_CASE("what a trace may not say of its program is refused with the file's name") {
  TraceBuilder builder;
  const auto directory = builder.provenance(R"({"parallelism": {"los_scale": "dp"}})").write();
  CHECK_THROWS_WITH_AS(read_trace(directory),
                       doctest::Contains("rank-00000.h5:0: 'parallelism': unknown key 'los_scale'"), InputError);
}

TEST_SUITE_END();
