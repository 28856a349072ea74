#include "annotate/explain.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "files/annotation_file.h"
#include "support/mesh_trace.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

struct Sides {
  Trace reference = mesh_trace("", 1), candidate;
  Annotations annotations;
  std::string explained(const std::string& pattern) const {
    const AlignedTrace a = align_trace(reference, annotations);
    const AlignedTrace b = align_trace(candidate, annotations, layout_of(a.alignment));
    const ExplainedSide sides[] = {{"reference", a}, {"candidate", b}};
    return explain(annotations, sides, pattern);
  }
};

Sides small(const std::string& yaml) {
  Sides sides;
  sides.candidate = mesh_trace("tp=2,dp=2,sp=tp", 4);
  sides.annotations = parse_annotations(yaml, "a.yaml");
  for (const std::int32_t m : {0, 1}) add_tensor(sides.reference, 0, tensor_id(Kind::kOutput, "mlp.fc", m), {4, 2});
  for (const std::size_t rank : {0, 1, 2, 3}) {
    add_tensor(sides.candidate, rank, tensor_id(Kind::kOutput, "mlp.fc", 0), {2, 2});
  }
  return sides;
}

}  // namespace

TEST_SUITE_BEGIN("annotate");

TEST_CASE("an explanation has the rule, what each axis does, and where each rank's part lies") {
  CHECK(small("fc:\n  output: {sp_dim: 0}\n").explained("fc") == R"(mlp.fc output
  rule a.yaml:1: 'fc': output
  reference: [4, 2], float32; 2 tensors: iteration 0, micro-batches 0, 1
    the pieces of mlp.fc output, iteration 0, micro-batch 0:
    rank  coordinates  local       logical     replica  term
    0     -            [0:4, 0:2]  [0:4, 0:2]  0        0
  candidate: [4, 2], float32; 2 tensors: iteration 0, micro-batches 0, 1
    tp (2): splits dimension 0, contiguous (as sp)
    dp (2): tells micro-batches apart, interleaved
    the pieces of mlp.fc output, iteration 0, micro-batch 0:
    rank  coordinates  local       logical     replica  term
    0     tp=0 dp=0    [0:2, 0:2]  [0:2, 0:2]  0        0
    1     tp=1 dp=0    [0:2, 0:2]  [2:4, 0:2]  0        0
)");
}

TEST_CASE("a tensor on another factoring of the ranks is explained on the axes of that") {
  Sides sides;
  sides.candidate = mesh_trace("tp=2/etp=1,ep=2", 2);
  sides.annotations = parse_annotations("experts.weight:\n  ep_dim: 0\n", "a.yaml");
  const TensorId experts = tensor_id(Kind::kParam, "experts.weight"), norm = tensor_id(Kind::kParam, "norm.weight");
  add_tensor(sides.reference, 0, experts, {4});
  add_tensor(sides.reference, 0, norm, {4});
  for (const std::size_t rank : {0, 1}) {
    add_tensor(sides.candidate, rank, experts, {2});
    add_tensor(sides.candidate, rank, norm, {4});
  }
  CHECK(sides.explained("experts.weight").ends_with(R"(
  candidate: [4], float32; 1 tensor: iteration 0
    etp (1): replicates (not named)
    ep (2): splits dimension 0, contiguous
    rank  coordinates  local  logical  replica  term
    0     etp=0 ep=0   [0:2]  [0:2]    0        0
    1     etp=0 ep=1   [0:2]  [2:4]    0        0
)"));
  CHECK(sides.explained("norm.weight").find("    tp (2): replicates (by its shape)\n    rank") != std::string::npos);
}

TEST_CASE("what was not mapped stands there with its finding") {
  Sides sides = small("fc:\n  output: {tp_dim: 0}\n");
  sides.candidate.ranks[1].entries.clear();
  const std::string text = sides.explained("fc");
  CHECK(text.find("    not mapped: mlp.fc output, iteration 0, micro-batch 0: not there: [2:4, 0:2] of rank 1 "
                  "(tp=1, dp=0)\n") != text.npos);
}

TEST_CASE("of many pieces the first are shown and all are counted") {
  Sides sides;
  sides.candidate = mesh_trace("tp=32", 32);
  sides.annotations = parse_annotations("fc:\n  output: {tp_dim: 0}\n", "a.yaml");
  add_tensor(sides.reference, 0, tensor_id(Kind::kOutput, "fc", 0), {32});
  for (std::size_t rank = 0; rank < 32; ++rank) {
    add_tensor(sides.candidate, rank, tensor_id(Kind::kOutput, "fc", 0), {1});
  }
  const std::string text = sides.explained("fc");
  CHECK(
      text.ends_with("    15    tp=15        [0:1]  [15:16]  0        0\n"
                     "    ... (32 pieces in all: ranks 32, replicas 1, terms 1)\n"));
}

TEST_CASE("a name that is not there is refused with those that look alike") {
  CHECK_THROWS_WITH_AS(small("").explained("mpl.fc"),
                       "pattern 'mpl.fc': no tensor's name matches; expected something like mlp.fc", InputError);
  CHECK_THROWS_WITH_AS(small("").explained("embedding"),
                       "pattern 'embedding': no tensor's name matches; expected a name, what follows one of its "
                       "dots, or a glob",
                       InputError);
}

TEST_SUITE_END();
