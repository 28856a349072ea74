#include "align/aligned_trace.h"

#include <doctest/doctest.h>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

Trace two_ranks() {
  Trace trace = mesh_trace("tp=2", 2);
  for (const std::size_t rank : {0, 1}) {
    add_tensor(trace, rank, tensor_id(Kind::kParam, "fc.weight"), {1}, {static_cast<float>(rank)});
  }
  return trace;
}

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("the tensors of a trace can be read wherever the two are moved") {
  std::vector<AlignedTrace> traces;
  for (int i = 0; i < 8; ++i) traces.push_back(align_whole(two_ranks(), annotations("fc.weight: {tp_dim: 0}")));
  for (const AlignedTrace& aligned : traces) {
    const std::vector<Piece> pieces = only_tensor(aligned.alignment).pieces();
    REQUIRE(pieces.size() == 2);
    CHECK(pieces[1].entry == &aligned.trace->ranks[1].entries[0]);
    float value = 0;
    std::memcpy(&value, pieces[1].data, sizeof value);
    CHECK(value == 1);
  }
}

TEST_CASE("what others are measured against must be whole") {
  Trace trace = two_ranks();
  trace.ranks[1].complete = false;
  CHECK(align_trace(trace, {}).alignment.findings.size() == 1);
  CHECK_THROWS_WITH_AS(align_whole(trace, {}),
                       "trace: rank 1 did not finish: no completion mark; only what it recorded until then is there; "
                       "expected a whole trace",
                       InputError);
  trace.ranks[1].entries.clear();
  CHECK_THROWS_WITH_AS(align_whole(trace, annotations("fc.weight: {tp_dim: 0}")),
                       "trace: rank 1 did not finish: no completion mark; only what it recorded until then is there "
                       "(and 1 more); expected a whole trace",
                       InputError);
}

TEST_SUITE_END();
