#include "ttrace/annotate/lint.h"

#include <doctest/doctest.h>

#include "support/mesh_trace.h"
#include "ttrace/load/annotation_file.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// Two ranks along tp: a module `fc`, its weight in uneven parts.
Trace two_ranks() {
  Trace trace = mesh_trace("tp=2", 2);
  for (const std::size_t rank : {0, 1}) {
    add_tensor(trace, rank, tensor_id(Kind::kOutput, "layers.0.fc", 0), {4, 2});
    add_tensor(trace, rank, tensor_id(Kind::kParam, "layers.0.fc.weight"), {rank == 0 ? 3 : 2, 4});
  }
  return trace;
}

std::vector<std::string> lint_text(const std::string& yaml, const Trace& trace = two_ranks()) {
  const Annotations annotations = parse_annotations(yaml, "a.yaml");
  std::vector<std::string> texts;
  for (const LintMessage& message : lint(align_trace(trace, annotations), annotations)) {
    texts.push_back(std::string(name_of(message.check)) + (is_mistake(message.check) ? ": " : " (note): ") +
                    message.text);
  }
  return texts;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_SUITE_BEGIN("annotate");

TEST_CASE("uneven parts are said to be so, and are no mistake") {
  CHECK(lint_text("fc:\n  output: {tp_dim: 1}\nfc.weight:\n  tp_dim: 0\n") ==
        Texts{"uneven-split (note): a.yaml:4: 'fc.weight': axis 'tp' splits dimension 0 of layers.0.fc.weight param, "
              "[5, 4], unevenly: parts of 2 to 3"});
}

TEST_CASE("a rule that places nothing is a mistake, even beside one of the same pattern that does") {
  CHECK(lint_text("fc:\n  output: {tp_dim: 1}\n  input: {tp_dim: 1}\nfc.weight:\n  tp_dim: -2\nfd:\n  output: {}\n") ==
        Texts{"unused-rule: a.yaml:1: 'fc': input: places no tensor of the trace",
              "uneven-split (note): a.yaml:5: 'fc.weight': axis 'tp' splits dimension 0 of layers.0.fc.weight param, "
              "[5, 4], unevenly: parts of 2 to 3",
              "unused-rule: a.yaml:6: 'fd': output: places no tensor of the trace"});
}

TEST_CASE("tensors that no rule places, and shards that do not fit, are mistakes") {
  CHECK(lint_text("fc.weight:\n  tp: replicate\n") ==
        Texts{"unplaced: no rule places layers.0.fc output: taken as replicated on every axis",
              "misfit: a.yaml:1: 'fc.weight': layers.0.fc.weight param, iteration 0: shards do not fit together in "
              "dimension 0: [2, 4] on rank 1; [3, 4] on rank 0"});
}

TEST_CASE("two patterns, equally specific, are ambiguous; one that is longer is not") {
  const std::string weight = "fc.weight:\n  tp: {dim: 0}\n";
  const Texts texts = lint_text(weight + "layers.?.fc:\n  output: {tp_dim: 1}\nlayers.*.fc:\n  output: {tp_dim: 0}\n");
  REQUIRE(texts.size() == 3);
  CHECK(texts[1] == "unused-rule: a.yaml:3: 'layers.?.fc': output: places no tensor of the trace");
  CHECK(texts[2] ==
        "ambiguous: a.yaml:5: 'layers.*.fc': output: no more specific than 'layers.?.fc' in line 3, and places "
        "layers.0.fc output only because it comes later");
  CHECK(lint_text(weight + "layers.0.fc:\n  output: {tp_dim: 1}\nlayers.*.fc:\n  output: {tp_dim: 0}\n").back() ==
        "unused-rule: a.yaml:5: 'layers.*.fc': output: places no tensor of the trace");
}

TEST_CASE("an axis that the trace lacks is named, once for all its uses") {
  const Texts texts = lint_text("fc:\n  output: {cp_dim: 0, tp_dim: 1}\nfc.weight:\n  tp_dim: 0\n  cp: replicate\n");
  REQUIRE(texts.size() == 2);
  CHECK(texts[0] ==
        "absent-axis (note): a.yaml:2: 'fc': output: axis 'cp' is not in the trace [tp=2], so it has size 1 (and 1 "
        "more)");
}

TEST_CASE("an axis of another factoring of the ranks is in the trace") {
  Trace trace = mesh_trace("tp=2/etp=1,ep=2", 2);
  for (const std::size_t rank : {0, 1}) add_tensor(trace, rank, tensor_id(Kind::kParam, "experts.weight"), {2, 4});
  CHECK(lint_text("experts.weight:\n  ep_dim: 0\n", trace) == Texts{});
  CHECK(lint_text("experts.weight:\n  ep_dim: 0\n  cp: replicate\n", trace) ==
        Texts{"absent-axis (note): a.yaml:3: 'experts.weight': axis 'cp' is not in the trace [tp=2/etp=1,ep=2], so it "
              "has size 1"});
}

TEST_SUITE_END();
