#include "annotate/lint.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "align/shard_mapping.h"
#include "files/annotation_file.h"
#include "support/mesh_trace.h"

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

std::vector<std::string> lint_text(const std::string& yaml, const Trace& trace = two_ranks(),
                                   const Trace* trusted = nullptr) {
  const Annotations annotations = parse_annotations(yaml, "a.yaml");
  std::optional<Alignment> reference;
  if (trusted != nullptr) reference = align(*trusted, annotations, {});
  const ModelLayout layout = reference ? layout_of(*reference) : ModelLayout{};
  std::vector<std::string> texts;
  for (const LintMessage& message :
       lint(align_trace(trace, annotations, layout), annotations, reference ? &*reference : nullptr)) {
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

namespace {

constexpr const char* kSequenceRules = "attn:\n  input: {sp_dim: 0}\n  output: {sp_dim: 0}\n";

// A module `attn` on two ranks, with hidden states [4, 2] and a mask [1, 4, 4], which every rank has whole.
Trace with_mask(const std::string& mesh, bool splits_sequence) {
  Trace trace = mesh_trace(mesh, mesh.empty() ? 1 : 2);
  for (RankTrace& rank : trace.ranks) {
    const auto index = static_cast<std::size_t>(rank.rank);
    const std::int64_t rows = splits_sequence ? 2 : 4;
    std::vector<float> hidden;
    for (std::int64_t i = 0; i < rows * 2; ++i) {
      hidden.push_back(static_cast<float>(i) + (splits_sequence ? static_cast<float>(index) : 0));
    }
    add_tensor(trace, index, tensor_id(Kind::kInput, "attn:0", 0), {rows, 2}, hidden);
    add_tensor(trace, index, tensor_id(Kind::kInput, "attn:mask", 0), {1, 4, 4}, {0, 1, 1, 1, 0, 0, 1, 1});
    add_tensor(trace, index, tensor_id(Kind::kOutput, "attn", 0), {rows, 2}, hidden);
  }
  return trace;
}

}  // namespace

TEST_CASE("a rule for hidden states that splits the mask below it is misplaced, and the text says what to write") {
  const Trace reference = with_mask("", false);
  CHECK(lint_text(kSequenceRules, with_mask("tp=2,sp=tp", true), &reference) ==
        Texts{"misplaced: a.yaml:1: 'attn': input: splits attn:mask input, of which every rank holds all of the "
              "reference's [1, 4, 4]; expected `attn:mask: {input: {}}`"});
  CHECK(lint_text(kSequenceRules, with_mask("tp=2,sp=tp", true)) ==
        Texts{"misplaced: a.yaml:1: 'attn': input: splits attn:mask input, of which all ranks hold the same [1, 4, 4]; "
              "expected `attn:mask: {input: {}}`"});
  const std::string mended = std::string(kSequenceRules) + "attn:mask:\n  input: {}\n";
  CHECK(lint_text(mended, with_mask("tp=2,sp=tp", true), &reference) == Texts{});
  CHECK(lint_text(mended, with_mask("tp=2,sp=tp", true)) == Texts{});
}

TEST_CASE("a rule that splits another dimension than the shapes do is misplaced") {
  const Trace reference = with_mask("", false);
  const Texts texts =
      lint_text("attn:0:\n  input: {tp_dim: 1}\nattn:mask:\n  input: {}\nattn:\n  output: {tp_dim: 0}\n",
                with_mask("tp=2", true), &reference);
  CHECK(texts ==
        Texts{"misplaced: a.yaml:1: 'attn:0': input: makes [2, 4] of attn:0 input's parts of [2, 2], where the "
              "reference has [4, 2]; expected `attn:0: {input: {tp_dim: 0}}`"});
}

TEST_CASE("axes that claim sequence parallelism where nothing is split so are named") {
  const Trace reference = with_mask("", false);
  const std::string mended = std::string(kSequenceRules) + "attn:mask:\n  input: {}\n";
  const std::string message =
      "no-sequence-parallelism: sp=tp: all 2 tensors that rules split over sp are whole on every rank of tp: the "
      "program runs without sequence parallelism; expected axes without sp=tp";
  CHECK(lint_text(mended, with_mask("tp=2,sp=tp", false), &reference) == Texts{message});
  CHECK(lint_text(mended, with_mask("tp=2,sp=tp", false)) == Texts{message});
  CHECK(
      lint_text(mended, with_mask("tp=2", false), &reference) ==
      Texts{"absent-axis (note): a.yaml:2: 'attn': input: axis 'sp' is not in the trace [tp=2], so it has size 1 (and "
            "1 more)"});
}

TEST_CASE("two parameters that stay equal to the bit are tied, or a message says how to tie them") {
  Trace trace = mesh_trace("pp=2", 2), reference = mesh_trace("", 1);
  for (const auto& [kind, value] : {std::pair(Kind::kParam, 1.0f), std::pair(Kind::kParamAfter, 2.0f)}) {
    const std::vector<float> values = {value, 3};
    add_tensor(reference, 0, tensor_id(kind, "embedding.weight"), {2}, values);
    add_tensor(trace, 0, tensor_id(kind, "embedding.weight"), {2}, values);
    add_tensor(trace, 1, tensor_id(kind, "head.weight"), {2}, values);
    // Copies of one layer that no step has changed yet are no ties.
    add_tensor(trace, 0, tensor_id(kind, "frozen.weight"), {2}, {5, 6});
    add_tensor(trace, 1, tensor_id(kind, "copy.weight"), {2}, {5, 6});
  }
  const std::string message =
      "untied: head.weight has the bits of embedding.weight before and after every step, and no rule "
      "ties them; expected `parallelism: {tied: {head.weight: embedding.weight}}`";
  const std::string tied = "parallelism:\n  tied: {head.weight: embedding.weight}\n";
  for (const Trace* trusted : {static_cast<const Trace*>(nullptr), static_cast<const Trace*>(&reference)}) {
    const Texts untied = lint_text("", trace, trusted), mended = lint_text(tied, trace, trusted);
    CHECK(std::count(untied.begin(), untied.end(), message) == 1);
    CHECK(std::none_of(mended.begin(), mended.end(), [](const auto& text) { return text.starts_with("untied"); }));
  }
}

TEST_SUITE_END();
