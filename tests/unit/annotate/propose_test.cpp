#include "annotate/propose.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "align/shard_mapping.h"
#include "base/error.h"
#include "base/layout.h"
#include "files/annotation_file.h"
#include "numeric/generator.h"
#include "support/matrices.h"
#include "support/mesh_trace.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

using Values = std::vector<float>;

// Returns random values, so that no two parts of a tensor are alike.
Values values_of(const std::string& key, const Shape& shape) {
  Values values(static_cast<std::size_t>(element_count(shape)));
  const std::int64_t count = std::ssize(values);
  fill_uniform(1, key, Shape{count}, Shape{0}, Shape{count}, values.data());
  return values;
}

struct RecordedRuns {
  Trace reference = mesh_trace("", 1);
  Trace candidate;
  explicit RecordedRuns(const std::string& mesh, std::int32_t world) : candidate(mesh_trace(mesh, world)) {}

  // Adds a tensor: the reference holds `values`, each rank of the candidate what `part` gives it.
  void add(const TensorId& id, const Shape& whole, const Values& values, const Shape& local,
           const std::function<Values(const Coordinates&)>& part) {
    add_tensor(reference, 0, id, whole, values);
    for (std::size_t rank = 0; rank < candidate.ranks.size(); ++rank) {
      add_tensor(candidate, rank, id, local, part(candidate.ranks[rank].coordinates));
    }
  }

  Draft draft(const Annotations& given = {}) const { return propose_for({this}, given); }

  // Drafts for several candidates, of which each has the reference of the first.
  static Draft propose_for(const std::vector<const RecordedRuns*>& all, const Annotations& given = {}) {
    const Alignment aligned = align(all[0]->reference, given, {});
    std::vector<const Trace*> candidates;
    for (const RecordedRuns* runs : all) candidates.push_back(&runs->candidate);
    return propose(candidates, given, &aligned);
  }

  Draft draft_without_reference() const {
    const Trace* const only = &candidate;
    return propose({&only, 1}, {}, nullptr);
  }
};

const DraftRule* find(const Draft& draft, const std::string& pattern, std::optional<Kind> kind) {
  const auto found = std::find_if(draft.rules.begin(), draft.rules.end(),
                                  [&](const DraftRule& rule) { return rule.pattern == pattern && rule.kind == kind; });
  return found == draft.rules.end() ? nullptr : &*found;
}

// Returns the lines of a rule, `tp_dim: 0 (certain)`; "remark" for a rule without lines.
std::string drafted_rule(const Draft& draft, const std::string& pattern, std::optional<Kind> kind) {
  const DraftRule* rule = find(draft, pattern, kind);
  if (rule == nullptr) return "nothing";
  if (rule->whole) return "{}";
  if (rule->lines.empty()) return "remark";
  std::string text;
  for (const DraftLine& line : rule->lines) {
    const char* standing = line.certain ? " (certain)" : line.counts ? " (guess)" : " (guess that does not count)";
    text += (text.empty() ? "" : ", ") + line.text + standing;
  }
  return text;
}

}  // namespace

TEST_SUITE_BEGIN("annotate");

TEST_CASE("experts that each rank numbers from 0 are drafted beside rules of what else lies along their axis") {
  RecordedRuns runs("tp=2", 2);
  const Shape shape{4, 2};
  for (const int expert : {0, 1, 2, 3}) {
    const std::string number = std::to_string(expert);
    const Values values = values_of(number, shape);
    add_tensor(runs.reference, 0, tensor_id(Kind::kParam, "layers.0.experts." + number + ".weight"), shape, values);
    const std::string own = "layers.0.experts." + std::to_string(expert % 2) + ".weight";
    add_tensor(runs.candidate, static_cast<std::size_t>(expert / 2), tensor_id(Kind::kParam, own), shape, values);
  }
  const Values linear = values_of("linear", shape);
  runs.add(tensor_id(Kind::kParam, "linear.weight"), shape, linear, {2, 2},
           [&](Coordinates at) { return part_of_rows(linear, at["tp"], 2); });
  const Draft draft = runs.draft();
  REQUIRE(draft.parallelism.size() == 1);
  CHECK(draft.parallelism[0].text == "experts: {axis: tp, layers: experts}");
  CHECK(draft.parallelism[0].certain);
  CHECK(drafted_rule(draft, "linear.weight", std::nullopt) == "tp_dim: 0 (certain)");
}

TEST_CASE("the dimension that a parameter is split in is certain when its parts make up the reference's") {
  RecordedRuns runs("tp=2", 2);
  const Shape square = {4, 4};
  const Values fc1 = values_of("fc1", square), fc2 = values_of("fc2", square), norm = values_of("norm", {4});
  runs.add(tensor_id(Kind::kParam, "layers.0.fc1.weight"), square, fc1, {2, 4},
           [&](Coordinates at) { return part_of_rows(fc1, at["tp"], 2); });
  runs.add(tensor_id(Kind::kParam, "layers.0.fc2.weight"), square, fc2, {4, 2},
           [&](Coordinates at) { return part_of_columns(fc2, 4, at["tp"], 2); });
  runs.add(tensor_id(Kind::kParam, "layers.0.norm.weight"), {4}, norm, {4}, [&](const Coordinates&) { return norm; });
  const Draft draft = runs.draft();
  CHECK(drafted_rule(draft, "fc1.weight", std::nullopt) == "tp_dim: 0 (certain)");
  CHECK(drafted_rule(draft, "fc2.weight", std::nullopt) == "tp_dim: 1 (certain)");
  CHECK(drafted_rule(draft, "norm.weight", std::nullopt) == "nothing");
}

TEST_CASE("a pattern of a number fits no module inside another that has the same") {
  RecordedRuns runs("tp=2", 2);
  const Values layer = values_of("layer", {4, 2}), expert = values_of("expert", {4, 2});
  runs.add(tensor_id(Kind::kInput, "1", 0), {4, 2}, layer, {2, 2},
           [&](Coordinates at) { return part_of_rows(layer, at["tp"], 2); });
  for (const std::string name : {"2.experts.0", "2.experts.1"}) {
    runs.add(tensor_id(Kind::kInput, name, 0), {4, 2}, expert, {4, 2}, [&](const Coordinates&) { return expert; });
  }
  CHECK(drafted_rule(runs.draft(), "[1]", Kind::kInput) == "tp_dim: 0 (certain)");
  // Which part of a rank's own expert is where, nothing tells, and `[1]` would place it.
  runs.add(tensor_id(Kind::kInput, "2.owned.1", 0), {5, 2}, values_of("owned", {5, 2}), {4, 2},
           [&](const Coordinates&) { return values_of("else", {4, 2}); });
  add_tensor(runs.reference, 0, tensor_id(Kind::kInput, "2.owned.1", 1), {4, 2, 1}, expert);
  const Draft draft = runs.draft();
  CHECK(drafted_rule(draft, "owned.*", Kind::kInput) == "remark");
  const DraftRule* rule = find(draft, "[1]", Kind::kInput);
  REQUIRE(rule != nullptr);
  CHECK_FALSE(rule->lines.at(0).counts);
  CHECK(rule->lines[0].why.ends_with("; its pattern fits 2.owned.1, too, which nothing places"));
}

TEST_CASE("parts that overlap are halos by their values, and a split that nothing comes near does not count") {
  RecordedRuns runs("cp=2", 2);
  const Values near = values_of("near", {2, 7}), far = values_of("far", {2, 7}), other = values_of("other", {2, 10});
  const auto halo_of = [](const Values& values, std::int64_t width, std::int64_t from) {
    Values part;
    for (std::int64_t row = 0; row < 2; ++row) {
      for (std::int64_t i = from; i < from + 5; ++i) part.push_back(values[static_cast<std::size_t>(row * width + i)]);
    }
    return part;
  };
  runs.add(tensor_id(Kind::kInput, "near", 0), {2, 7}, near, {2, 5},
           [&](Coordinates at) { return halo_of(near, 7, at["cp"] * 2); });
  runs.add(tensor_id(Kind::kInput, "far", 0), {2, 7}, far, {2, 5},
           [&](Coordinates at) { return halo_of(other, 10, at["cp"] * 5); });
  const Draft draft = runs.draft();
  CHECK(drafted_rule(draft, "near", Kind::kInput) == "cp: {dim: 1, layout: halo, overlap: 3} (certain)");
  CHECK(drafted_rule(draft, "far", Kind::kInput).ends_with("(guess that does not count)"));
}

TEST_CASE("which of two axes of one size splits a tensor is told by its values") {
  RecordedRuns runs("tp=2,cp=2", 4);
  const Shape shape = {4, 2};
  const Values by_tp = values_of("a", shape), by_cp = values_of("b", shape);
  runs.add(tensor_id(Kind::kInput, "a", 0), shape, by_tp, {2, 2},
           [&](Coordinates at) { return part_of_rows(by_tp, at["tp"], 2); });
  runs.add(tensor_id(Kind::kInput, "b", 0), shape, by_cp, {2, 2},
           [&](Coordinates at) { return part_of_rows(by_cp, at["cp"], 2); });
  const Draft draft = runs.draft();
  CHECK(drafted_rule(draft, "a", Kind::kInput) == "tp_dim: 0 (certain)");
  CHECK(drafted_rule(draft, "b", Kind::kInput) == "cp_dim: 0 (certain)");
}

TEST_CASE("of two axes that split one dimension the outer one comes first") {
  for (const bool cp_is_outer : {true, false}) {
    CAPTURE(cp_is_outer);
    RecordedRuns runs("tp=2,cp=2", 4);
    const Values values = values_of("x", {8, 2});
    runs.add(tensor_id(Kind::kInput, "x", 0), {8, 2}, values, {2, 2}, [&](Coordinates at) {
      return part_of_rows(values, cp_is_outer ? at["cp"] * 2 + at["tp"] : at["tp"] * 2 + at["cp"], 4);
    });
    CHECK(drafted_rule(runs.draft(), "x", Kind::kInput) ==
          (cp_is_outer ? "cp_dim: 0 (certain), tp_dim: 0 (certain)" : "tp_dim: 0 (certain), cp_dim: 0 (certain)"));
  }
}

TEST_CASE("where zeros say nothing there is nothing certain, and a gradient helps") {
  const Shape shape = {4};
  const Values zeros(4, 0), gradient = values_of("gradient", shape);
  const auto split = [](const Values& values) {
    return [&values](Coordinates at) { return part_of_rows(values, at["cp"], 2); };
  };
  RecordedRuns alone("tp=2,cp=2", 4);
  alone.add(tensor_id(Kind::kParam, "fc.bias"), shape, zeros, {2}, split(zeros));
  CHECK(drafted_rule(alone.draft(), "fc.bias", std::nullopt) == "tp_dim: 0 (guess)");
  RecordedRuns helped("tp=2,cp=2", 4);
  helped.add(tensor_id(Kind::kParam, "fc.bias"), shape, zeros, {2}, split(zeros));
  helped.add(tensor_id(Kind::kMainGrad, "fc.bias"), shape, gradient, {2}, split(gradient));
  CHECK(drafted_rule(helped.draft(), "fc.bias", std::nullopt) == "cp_dim: 0 (certain)");
}

TEST_CASE("two factorings of the ranks that split a tensor alike leave a doubt which one it is") {
  RecordedRuns runs("tp=2/etp=1,ep=2", 2);
  const Values experts = values_of("w", {4, 2}), norm = values_of("norm", {4});
  runs.add(tensor_id(Kind::kParam, "experts.weight"), {4, 2}, experts, {2, 2},
           [&](Coordinates at) { return part_of_rows(experts, at["ep"], 2); });
  runs.add(tensor_id(Kind::kParam, "norm.weight"), {4}, norm, {4}, [&](const Coordinates&) { return norm; });
  const Draft draft = runs.draft();
  CHECK(drafted_rule(draft, "experts.weight", std::nullopt) == "tp_dim: 0 (guess)");
  CHECK(find(draft, "experts.weight", std::nullopt)->lines[0].why ==
        "on tp=2/ep=2: 1 tensor, rel_err 0; fits as well: ep_dim: 0");
  CHECK(drafted_rule(draft, "norm.weight", std::nullopt) == "nothing");
}

TEST_CASE("an axis of another factoring of the ranks is certain where no other splits the tensor so") {
  RecordedRuns runs("dp=4/ep=2,edp=2", 4);
  const Values weight = values_of("w", {4, 2}), out = values_of("out", {4, 2});
  runs.add(tensor_id(Kind::kParam, "experts.weight"), {4, 2}, weight, {2, 2},
           [&](Coordinates at) { return part_of_rows(weight, at["ep"], 2); });
  // All ranks work on one micro-batch: only on the other factoring does dp not tell micro-batches apart.
  runs.add(tensor_id(Kind::kOutput, "experts", 0), {4, 2}, out, {4, 2}, [&](const Coordinates&) { return out; });
  const Draft draft = runs.draft();
  CHECK(drafted_rule(draft, "experts.weight", std::nullopt) == "ep_dim: 0 (certain)");
  const Annotations annotations = parse_annotations(to_yaml(draft, ""), "draft");
  const Alignment aligned = align(runs.candidate, annotations, {});
  CHECK(aligned.findings.empty());
  CHECK(aligned.tensors.size() == 2);
}

TEST_CASE("a sum is certain when the optimizer's gradient is whole, and a guess otherwise") {
  const Shape shape = {8};
  const Values values = values_of("w", shape), gradient = values_of("g", shape);
  const auto term = [&](const Coordinates& at) {
    Values half = gradient;
    for (std::size_t i = 0; i < half.size(); ++i) half[i] *= at.at("tp") == 0 ? 0.25f : 0.75f;
    return half;
  };
  RecordedRuns right("tp=2", 2);
  right.add(tensor_id(Kind::kParam, "norm.weight"), shape, values, shape, [&](const Coordinates&) { return values; });
  right.add(tensor_id(Kind::kParamGrad, "norm.weight", 0), shape, gradient, shape, term);
  right.add(tensor_id(Kind::kMainGrad, "norm.weight"), shape, gradient, shape,
            [&](const Coordinates&) { return gradient; });
  CHECK(drafted_rule(right.draft(), "norm.weight", Kind::kParamGrad) == "tp: partial (certain)");

  // The bug: each rank keeps its own term. The draft must not make it fit.
  RecordedRuns wrong("tp=2", 2);
  wrong.add(tensor_id(Kind::kParam, "norm.weight"), shape, values, shape, [&](const Coordinates&) { return values; });
  wrong.add(tensor_id(Kind::kParamGrad, "norm.weight", 0), shape, gradient, shape, term);
  wrong.add(tensor_id(Kind::kMainGrad, "norm.weight"), shape, gradient, shape, term);
  const Draft draft = wrong.draft();
  CHECK(drafted_rule(draft, "norm.weight", std::nullopt) == "nothing");
  CHECK(drafted_rule(draft, "norm.weight", Kind::kMainGrad) == "remark");
  CHECK(drafted_rule(draft, "norm.weight", Kind::kParamGrad) == "tp: partial (guess that does not count)");
  CHECK(to_yaml(draft, "").find("main_grad:\n") == std::string::npos);
}

TEST_CASE("an output that its ranks hold terms of is a guess: a forgotten sum looks the same") {
  RecordedRuns runs("tp=2", 2);
  const Values whole = values_of("out", {4, 2});
  runs.add(tensor_id(Kind::kOutput, "proj", 0), {4, 2}, whole, {4, 2}, [&](const Coordinates& at) {
    Values term = whole;
    for (float& value : term) value *= at.at("tp") == 0 ? 0.25f : 0.75f;
    return term;
  });
  const Draft draft = runs.draft();
  CHECK(drafted_rule(draft, "proj", Kind::kOutput) == "tp: partial (guess that does not count)");
  CHECK(find(draft, "proj", Kind::kOutput)->lines[0].why.ends_with("a forgotten sum looks the same"));
}

TEST_CASE("what a module sends back shows a sum only where all ranks hold the same") {
  const Values whole = values_of("gradient", {4, 2});
  const auto times = [&](float factor) {
    Values scaled = whole;
    for (float& value : scaled) value *= factor;
    return scaled;
  };
  for (const bool made : {true, false}) {
    CAPTURE(made);
    RecordedRuns runs("tp=2", 2);
    runs.add(tensor_id(Kind::kGradOutput, "norm", 0), {4, 2}, whole, {4, 2},
             [&](const Coordinates& at) { return times(at.at("tp") == 0 ? 0.45f : 0.65f); });
    runs.add(tensor_id(Kind::kGradInput, "norm", 0), {4, 2}, whole, {4, 2},
             [&](const Coordinates& at) { return times(made || at.at("tp") == 0 ? 1.1f : 0.9f); });
    CHECK(drafted_rule(runs.draft(), "norm", Kind::kGradOutput) ==
          (made ? "tp: partial (certain)" : "tp: partial (guess that does not count)"));
  }
}

TEST_CASE("what is far from the reference in every way is guessed from its shape") {
  RecordedRuns runs("tp=2", 2);
  const Values whole = values_of("right", {4, 2}), other = values_of("wrong", {4, 2});
  runs.add(tensor_id(Kind::kOutput, "mlp", 0), {4, 2}, whole, {2, 2},
           [&](Coordinates at) { return part_of_rows(other, at["tp"], 2); });
  CHECK(drafted_rule(runs.draft(), "mlp", Kind::kOutput) == "tp_dim: 0 (guess that does not count)");
}

TEST_CASE("shapes that nothing explains leave a remark and no rule") {
  RecordedRuns runs("tp=2", 2);
  const Values whole = values_of("right", {5}), part = values_of("part", {2});
  runs.add(tensor_id(Kind::kOutput, "mlp", 0), {5}, whole, {2}, [&](const Coordinates&) { return part; });
  const Draft draft = runs.draft();
  CHECK(drafted_rule(draft, "mlp", Kind::kOutput) == "remark");
  CHECK(find(draft, "mlp", Kind::kOutput)->remarks[0] ==
        "on tp=2: not determined: no placement of shards of [2] makes up the reference's [5]");
  CHECK(parse_annotations(to_yaml(draft, ""), "draft").rules.empty());
}

TEST_CASE("a layout that is registered is tried, and one that comes to the same as another is no alternative") {
  const auto by_ones = [](const AxisParts& parts) {
    AxisLayout layout = contiguous(parts);
    for (std::vector<Stretch>& part : layout.parts) {
      const Stretch whole = part[0];
      part.clear();
      for (std::int64_t i = 0; i < whole.size; ++i) part.push_back({i, whole.logical + i, 1});
    }
    return layout;
  };
  register_layout("test-by-ones", {by_ones, {}});
  RecordedRuns runs("cp=2", 2);
  const Values values = values_of("x", {8});
  runs.add(tensor_id(Kind::kInput, "striped", 0), {8}, values, {4},
           [&](Coordinates at) { return part_of_columns(values, 2, at["cp"], 2); });
  runs.add(tensor_id(Kind::kInput, "blocks", 0), {8}, values, {4},
           [&](Coordinates at) { return part_of_rows(values, at["cp"], 2); });
  const Draft draft = runs.draft();
  CHECK(drafted_rule(draft, "striped", Kind::kInput) == "cp: {dim: 0, layout: striped} (certain)");
  CHECK(drafted_rule(draft, "blocks", Kind::kInput) == "cp_dim: 0 (certain)");
  CHECK(parse_annotations(to_yaml(draft, ""), "draft").rules[0].axes[0].layout == "striped");
}

TEST_CASE("uneven parts are found out too") {
  RecordedRuns runs("tp=2", 2);
  const Values whole = values_of("w", {5, 2});
  add_tensor(runs.reference, 0, tensor_id(Kind::kParam, "fc.weight"), {5, 2}, whole);
  add_tensor(runs.candidate, 0, tensor_id(Kind::kParam, "fc.weight"), {3, 2}, {whole.begin(), whole.begin() + 6});
  add_tensor(runs.candidate, 1, tensor_id(Kind::kParam, "fc.weight"), {2, 2}, {whole.begin() + 6, whole.end()});
  CHECK(drafted_rule(runs.draft(), "fc.weight", std::nullopt) == "tp_dim: 0 (certain)");
}

TEST_CASE("the order of micro-batches is the one in which the inputs are the reference's") {
  for (const bool blocked : {false, true}) {
    CAPTURE(blocked);
    RecordedRuns runs("dp=2", 2);
    for (std::int32_t global = 0; global < 4; ++global) {
      const Values values = values_of("m" + std::to_string(global), {4}), mask = values_of("mask", {4});
      const std::int32_t local = blocked ? global % 2 : global / 2;
      const auto rank = static_cast<std::size_t>(blocked ? global / 2 : global % 2);
      // What is called first is given the same each time, and tells nothing by itself.
      add_tensor(runs.reference, 0, tensor_id(Kind::kInput, "mask", global), {4}, mask);
      add_tensor(runs.reference, 0, tensor_id(Kind::kInput, "model", global), {4}, values);
      add_tensor(runs.candidate, rank, tensor_id(Kind::kInput, "mask", local), {4}, mask);
      add_tensor(runs.candidate, rank, tensor_id(Kind::kInput, "model", local), {4}, values);
    }
    const Draft draft = runs.draft();
    REQUIRE(draft.parallelism.size() == (blocked ? 1 : 0));  // interleaved needs no word
    if (blocked) {
      CHECK(draft.parallelism[0].text == "microbatches: {axis: dp, order: blocked}");
      CHECK(draft.parallelism[0].certain);
    }
    CHECK(drafted_rule(draft, "model", Kind::kInput) == "nothing");
  }
}

TEST_CASE("layer numbers that stages share are local ones") {
  RecordedRuns runs("pp=2", 2);
  for (std::int32_t layer = 0; layer < 4; ++layer) {
    const Values values = values_of(std::to_string(layer), {4});
    add_tensor(runs.reference, 0, tensor_id(Kind::kParam, "layers." + std::to_string(layer) + ".weight"), {4}, values);
    add_tensor(runs.candidate, static_cast<std::size_t>(layer / 2),
               tensor_id(Kind::kParam, "layers." + std::to_string(layer % 2) + ".weight"), {4}, values);
  }
  const Draft draft = runs.draft();
  REQUIRE(draft.parallelism.size() == 1);
  CHECK(draft.parallelism[0].text == "pipeline: {axis: pp, layers: layers}");
  CHECK(draft.parallelism[0].certain);
  CHECK(drafted_rule(draft, "layers.*.weight", std::nullopt) == "nothing");
  CHECK(parse_annotations(to_yaml(draft, ""), "draft").pipeline->layers == "layers");
}

TEST_CASE("what flows between pipeline stages is no output of the model") {
  RecordedRuns runs("pp=2", 2);
  const Values hidden = values_of("hidden", {2, 4}), loss = values_of("loss", {3});
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    add_tensor(runs.reference, 0, tensor_id(Kind::kOutput, name, 0), {2, 4}, hidden);
    add_tensor(runs.candidate, static_cast<std::size_t>(layer), tensor_id(Kind::kOutput, "layers.0", 0), {2, 4},
               hidden);
  }
  add_tensor(runs.reference, 0, tensor_id(Kind::kOutput, "(model)", 0), {3}, loss);
  add_tensor(runs.candidate, 0, tensor_id(Kind::kOutput, "(model)", 0), {2, 4}, hidden);
  add_tensor(runs.candidate, 1, tensor_id(Kind::kOutput, "(model)", 0), {3}, loss);
  CHECK(drafted_rule(runs.draft(), "(model)", Kind::kOutput) == "nothing");
}

TEST_CASE("a factor that all activation gradients share is a loss scale, certain when main gradients lack it") {
  for (const bool averaged : {true, false}) {
    CAPTURE(averaged);
    RecordedRuns runs("dp=2", 2);
    for (const Kind kind : {Kind::kOutput, Kind::kGradOutput}) {
      for (std::int32_t m = 0; m < 2; ++m) {
        Values values = values_of(std::to_string(m) + std::string(name_of(kind)), {4});
        add_tensor(runs.reference, 0, tensor_id(kind, "mlp", m), {4}, values);
        if (kind == Kind::kGradOutput) {
          for (float& value : values) value *= 2;
        }
        add_tensor(runs.candidate, static_cast<std::size_t>(m), tensor_id(kind, "mlp", 0), {4}, values);
      }
    }
    Values gradient = values_of("main", {4});
    add_tensor(runs.reference, 0, tensor_id(Kind::kMainGrad, "mlp.weight"), {4}, gradient);
    if (!averaged) {
      for (float& value : gradient) value *= 2;
    }
    for (const std::size_t rank : {0, 1}) {
      add_tensor(runs.candidate, rank, tensor_id(Kind::kMainGrad, "mlp.weight"), {4}, gradient);
    }
    const Draft draft = runs.draft();
    const DraftLine& line = draft.parallelism.back();
    CHECK(line.text == "loss_scale: dp");
    CHECK(line.certain == averaged);
    // Where main gradients are wrong as well, a gather that adds up twice looks the same.
    CHECK(line.counts == averaged);
    const std::string text = to_yaml(draft, "");
    CHECK(parse_annotations(text, "draft").loss_scale.has_value() == averaged);
    CHECK((text.find("\n  #? loss_scale: dp  # guess on dp=2: ") == text.npos) == averaged);
    CHECK(drafted_rule(draft, "mlp", Kind::kGradOutput) == (averaged ? "nothing" : "remark"));  // it follows
  }
}

TEST_CASE("without a reference, equal bits replicate and what differs is not called certain") {
  RecordedRuns runs("tp=2", 2);
  const Values same = values_of("same", {4, 2}), whole = values_of("w", {8, 2}), bias = values_of("b", {8});
  const auto part_of = [](const Values& values) {
    return [&values](Coordinates at) { return part_of_rows(values, at["tp"], 2); };
  };
  runs.add(tensor_id(Kind::kInput, "fc", 0), {4, 2}, same, {4, 2}, [&](const Coordinates&) { return same; });
  runs.add(tensor_id(Kind::kOutput, "fc", 0), {8, 2}, whole, {4, 2}, part_of(whole));
  runs.add(tensor_id(Kind::kParam, "fc.bias"), {8}, bias, {4}, part_of(bias));
  runs.add(tensor_id(Kind::kParam, "fc.scale"), {8}, Values(8, 1), {4},
           [](const Coordinates&) { return Values(4, 1); });
  const Draft draft = runs.draft_without_reference();
  CHECK(drafted_rule(draft, "fc", Kind::kInput) == "nothing");
  CHECK(drafted_rule(draft, "fc", Kind::kOutput) == "remark");
  CHECK(find(draft, "fc", Kind::kOutput)->remarks[0] ==
        "on tp=2: 1 of 1 pairs of ranks along tp differ: tp_dim: 0, or tp_dim: 1, or tp: partial?");
  CHECK(drafted_rule(draft, "fc.bias", std::nullopt) == "tp_dim: 0 (guess)");
  CHECK(drafted_rule(draft, "fc.scale", std::nullopt) == "nothing");
}

TEST_CASE("a draft keeps the annotations it starts from, and says nothing of what they place") {
  RecordedRuns runs("tp=2", 2);
  const Values a = values_of("a", {4}), b = values_of("b", {4});
  const auto part_of = [](const Values& values) {
    return [&values](Coordinates at) { return part_of_rows(values, at["tp"], 2); };
  };
  runs.add(tensor_id(Kind::kInput, "fc", 0), {4}, a, {2}, part_of(a));
  runs.add(tensor_id(Kind::kOutput, "fc", 0), {4}, b, {2}, part_of(b));
  const std::string text = "parallelism:\n  loss_scale: dp\nfc:\n  input: {tp_dim: 0}";
  const Draft draft = runs.draft(parse_annotations(text, "a.yaml"));
  CHECK(draft.rules.size() == 1);
  CHECK(drafted_rule(draft, "[f]c", Kind::kOutput) == "tp_dim: 0 (certain)");  // `fc` is taken
  const Annotations both = parse_annotations(to_yaml(draft, text), "draft");
  CHECK(rule_for(both, Kind::kInput, "fc")->pattern == "fc");
  CHECK(rule_for(both, Kind::kOutput, "fc")->axes[0].axis == "tp");
}

TEST_CASE("a pattern is the shortest that fits nothing else") {
  RecordedRuns runs("tp=2", 2);
  const Values a = values_of("a", {4});
  for (const std::string name :
       {"layers.0.attn.proj", "layers.1.attn.proj", "layers.0.mlp.proj", "mlp", "layers.0.mlp"}) {
    runs.add(tensor_id(Kind::kInput, name, 0), {4}, a, {2},
             [&](Coordinates at) { return part_of_rows(a, at["tp"], 2); });
  }
  const Draft draft = runs.draft();
  std::vector<std::string> patterns;
  for (const DraftRule& rule : draft.rules) patterns.push_back(rule.pattern);
  CHECK(patterns == std::vector<std::string>{"attn.proj", "mlp.proj", "[m]lp", "layers.*.mlp"});
  const Annotations annotations = parse_annotations(to_yaml(draft, ""), "draft");
  CHECK(rule_for(annotations, Kind::kInput, "mlp")->pattern == "[m]lp");
  CHECK(rule_for(annotations, Kind::kInput, "layers.0.mlp")->pattern == "layers.*.mlp");
}

TEST_CASE("members of a module share a pattern where they lie alike") {
  RecordedRuns runs("tp=2", 2);
  const Values a = values_of("a", {4}), b = values_of("b", {4});
  const auto part = [&](Coordinates at) { return part_of_rows(a, at["tp"], 2); };
  runs.add(tensor_id(Kind::kInput, "attn", 0), {4}, a, {2}, part);
  runs.add(tensor_id(Kind::kInput, "attn:1", 0), {4}, a, {2}, part);
  runs.add(tensor_id(Kind::kInput, "attn:2", 0), {4}, b, {4}, [&](const Coordinates&) { return b; });
  const Draft draft = runs.draft();
  CHECK(drafted_rule(draft, "attn", Kind::kInput) == "tp_dim: 0 (certain)");
  CHECK(drafted_rule(draft, "attn:1", Kind::kInput) == "nothing");
  CHECK(drafted_rule(draft, "attn:2", Kind::kInput) == "{}");
}

TEST_CASE("a member's name is not cut at its dots") {
  RecordedRuns runs("tp=2", 2);
  const Values a = values_of("a", {4}), b = values_of("b", {4});
  const auto part = [&](Coordinates at) { return part_of_rows(a, at["tp"], 2); };
  for (const std::string module : {"loss", "model"}) {
    runs.add(tensor_id(Kind::kInput, module + ":a.1", 0), {4}, a, {2}, part);
    runs.add(tensor_id(Kind::kInput, module + ":b.1", 0), {4}, b, {4}, [&](const Coordinates&) { return b; });
  }
  const Draft draft = runs.draft();
  CHECK(drafted_rule(draft, "loss:a.1", Kind::kInput) == "tp_dim: 0 (certain)");
  CHECK(drafted_rule(draft, "loss:b.1", Kind::kInput) == "nothing");
  CHECK(drafted_rule(draft, "model:b.1", Kind::kInput) == "nothing");
  CHECK_NOTHROW(parse_annotations(to_yaml(draft, ""), "draft"));
}

TEST_CASE("a draft names no axis that the trace lacks") {
  RecordedRuns runs("dp=2", 2);
  const Values w = values_of("w", {4});
  runs.add(tensor_id(Kind::kParam, "fc.weight"), {4}, w, {4}, [&](const Coordinates&) { return w; });
  CHECK(drafted_rule(runs.draft(), "fc.weight", std::nullopt) == "nothing");
}

TEST_CASE("a trace that lacks a rank is not drafted from") {
  RecordedRuns runs("tp=2", 2);
  runs.candidate.ranks.pop_back();
  CHECK_THROWS_WITH_AS(runs.draft_without_reference(),
                       "trace: rank 1 of 2 left no file in trace; expected a whole trace", InputError);
}

TEST_CASE("without a reference, ranks are held against each other on the factoring that tells them apart") {
  const Values whole = values_of("b", {4});
  for (const std::string mesh : {"tp=2/etp=1,ep=2", "dp=4/ep=2,edp=2"}) {
    CAPTURE(mesh);
    RecordedRuns runs(mesh, mesh[0] == 't' ? 2 : 4);
    runs.add(tensor_id(Kind::kParam, "experts.bias"), {4}, whole, {2},
             [&](Coordinates at) { return part_of_rows(whole, at["ep"], 2); });
    runs.add(tensor_id(Kind::kParam, "norm.weight"), {4}, whole, {4}, [&](const Coordinates&) { return whole; });
    const Draft draft = runs.draft_without_reference();
    CHECK(drafted_rule(draft, "experts.bias", std::nullopt) ==
          (mesh[0] == 't' ? "tp_dim: 0 (guess)" : "ep_dim: 0 (guess)"));
    CHECK(drafted_rule(draft, "norm.weight", std::nullopt) == (mesh[0] == 't' ? "nothing" : "nothing"));
  }
}

TEST_CASE("a draft holds on a mesh with a further axis, which lies as the shapes say") {
  const Values out = values_of("out", {4, 8}), weight = values_of("w", {8, 8}), hidden = values_of("h", {4, 8});
  const auto add_all = [&](RecordedRuns& runs) {
    const auto along = [](Coordinates at, const char* axis) { return at.contains(axis) ? at[axis] : 0; };
    const std::int64_t cp = runs.candidate.world_size / 2;
    runs.add(tensor_id(Kind::kOutput, "fc", 0), {4, 8}, out, {4 / cp, 4}, [&](const Coordinates& at) {
      return part_of_columns(part_of_rows(out, along(at, "cp"), cp), 8, at.at("tp"), 2);
    });
    runs.add(tensor_id(Kind::kInput, "fc", 0), {4, 8}, hidden, {4 / cp, 8},
             [&](const Coordinates& at) { return part_of_rows(hidden, along(at, "cp"), cp); });
    runs.add(tensor_id(Kind::kParam, "fc.weight"), {8, 8}, weight, {4, 8},
             [&](const Coordinates& at) { return part_of_rows(weight, at.at("tp"), 2); });
  };
  RecordedRuns tp("tp=2", 2), both("tp=2,cp=2", 4);
  add_all(tp);
  add_all(both);
  const Draft draft = tp.draft();
  CHECK(drafted_rule(draft, "fc", Kind::kOutput) == "tp_dim: 1 (certain)");
  CHECK(drafted_rule(draft, "fc", Kind::kInput) == "nothing");
  const Annotations annotations = parse_annotations(to_yaml(draft, ""), "draft");
  CHECK(annotations.known_axes == std::vector<std::string>{"tp"});
  const Alignment reference = align(both.reference, annotations, {});
  const Alignment aligned = align(both.candidate, annotations, layout_of(reference));
  CHECK(aligned.findings.empty());
  for (const auto& [id, tensor] : aligned.tensors) CHECK(tensor.shape == reference.tensors.at(id).shape);
  // A user who writes a rule for all axes means it: one that is not named replicates.
  Annotations of_all = annotations;
  of_all.known_axes.clear();
  CHECK(align(both.candidate, of_all, layout_of(reference)).tensors.at(tensor_id(Kind::kOutput, "fc", 0)).shape ==
        Shape{2, 8});
}

TEST_CASE("a draft of several candidates says what each of them shows, and what it was seen on") {
  const Values weight = values_of("w", {8, 8});
  RecordedRuns tp("tp=2", 2), dp("fsdp=2", 2);
  tp.add(tensor_id(Kind::kParam, "fc.weight"), {8, 8}, weight, {8, 4},
         [&](const Coordinates& at) { return part_of_columns(weight, 8, at.at("tp"), 2); });
  dp.add(tensor_id(Kind::kParam, "fc.weight"), {8, 8}, weight, {4, 8},
         [&](const Coordinates& at) { return part_of_rows(weight, at.at("fsdp"), 2); });
  const Draft draft = RecordedRuns::propose_for({&tp, &dp});
  CHECK(drafted_rule(draft, "fc.weight", std::nullopt) == "tp_dim: 1 (certain), fsdp_dim: 0 (certain)");
  CHECK(
      find(draft, "fc.weight", std::nullopt)->lines[0].why.starts_with("on A (tp=2): 1 tensor, rel_err 0; otherwise "));
  CHECK(draft.candidates == std::vector<std::string>{"A: trace (tp=2)", "B: trace (fsdp=2)"});
  CHECK(draft.known_axes == std::vector<std::string>{"tp", "fsdp"});
}

TEST_CASE("candidates that contradict each other are named, and no rule says either") {
  const Values weight = values_of("w", {8, 8});
  RecordedRuns one("tp=2", 2), other("tp=2", 2);
  one.add(tensor_id(Kind::kParam, "fc.weight"), {8, 8}, weight, {8, 4},
          [&](const Coordinates& at) { return part_of_columns(weight, 8, at.at("tp"), 2); });
  other.add(tensor_id(Kind::kParam, "fc.weight"), {8, 8}, weight, {4, 8},
            [&](const Coordinates& at) { return part_of_rows(weight, at.at("tp"), 2); });
  const Draft draft = RecordedRuns::propose_for({&one, &other});
  CHECK(drafted_rule(draft, "fc.weight", std::nullopt) == "remark");
  const std::string remark = find(draft, "fc.weight", std::nullopt)->remarks[0];
  CHECK(remark.starts_with("candidates contradict each other: tp_dim: 1 on A (tp=2): "));
  CHECK(remark.find("; tp_dim: 0 on B (tp=2): ") != remark.npos);
  CHECK(parse_annotations(to_yaml(draft, ""), "draft").rules.empty());
}

TEST_CASE("what sequence parallelism splits is called sp, so that the rule holds without it") {
  const Values hidden = values_of("h", {6, 8}), gradient = values_of("g", {8}), weight = values_of("w", {8});
  const auto add_all = [&](RecordedRuns& runs, bool sp, const std::string& tokens) {
    const std::int64_t parts = sp ? 2 : 1;
    const auto rank_of = [sp](const Coordinates& at) { return sp ? at.at("tp") : 0; };
    if (!tokens.empty()) {
      const auto ids = values_of(tokens, {2, 6});
      runs.add(tensor_id(Kind::kInput, "(model)", 0), {2, 6}, ids, {2, 6}, [&](const Coordinates&) { return ids; });
      for (Trace* trace : {&runs.reference, &runs.candidate}) {
        for (RankTrace& rank : trace->ranks) rank.entries.back().dtype = Dtype::kInt32;
      }
    }
    runs.add(tensor_id(Kind::kInput, "norm", 0), {6, 8}, hidden, {6 / parts, 8},
             [&](const Coordinates& at) { return part_of_rows(hidden, rank_of(at), parts); });
    runs.add(tensor_id(Kind::kParam, "norm.weight"), {8}, weight, {8}, [&](const Coordinates&) { return weight; });
    runs.add(tensor_id(Kind::kParamGrad, "norm.weight", 0), {8}, gradient, {8}, [&](const Coordinates& at) {
      Values term = gradient;
      for (float& value : term) value *= sp ? (at.at("tp") == 0 ? 0.25f : 0.75f) : 1;
      return term;
    });
    runs.add(tensor_id(Kind::kMainGrad, "norm.weight"), {8}, gradient, {8},
             [&](const Coordinates&) { return gradient; });
  };
  SUBCASE("by the tokens: a sequence has six") {
    RecordedRuns runs("tp=2,sp=tp", 2);
    add_all(runs, true, "ids");
    const Draft draft = runs.draft();
    CHECK(drafted_rule(draft, "norm", Kind::kInput) == "sp_dim: 0 (certain)");
    CHECK(drafted_rule(draft, "norm.weight", Kind::kParamGrad) == "sp: partial (certain)");
  }
  SUBCASE("by a candidate without it") {
    RecordedRuns with("tp=2,sp=tp", 2), without("tp=2", 2);
    add_all(with, true, "");
    add_all(without, false, "");
    CHECK(drafted_rule(with.draft(), "norm", Kind::kInput) == "tp_dim: 0 (certain)");
    const Draft draft = RecordedRuns::propose_for({&with, &without});
    CHECK(drafted_rule(draft, "norm", Kind::kInput) == "sp_dim: 0 (certain)");
    CHECK(drafted_rule(draft, "norm.weight", Kind::kParamGrad) == "sp: partial (certain)");
    const Annotations annotations = parse_annotations(to_yaml(draft, ""), "draft");
    for (const RecordedRuns* runs : {&with, &without}) {
      const Alignment reference = align(runs->reference, annotations, {});
      CHECK(align(runs->candidate, annotations, layout_of(reference)).findings.empty());
    }
  }
}

TEST_CASE("a factor that fits several axes is the one that fits all candidates") {
  const auto add_all = [](RecordedRuns& runs) {
    for (const Kind kind : {Kind::kOutput, Kind::kGradOutput}) {
      for (std::int32_t m = 0; m < 2; ++m) {
        Values values = values_of(std::to_string(m) + std::string(name_of(kind)), {4});
        add_tensor(runs.reference, 0, tensor_id(kind, "mlp", m), {4}, values);
        for (std::size_t rank = 0; rank < runs.candidate.ranks.size(); ++rank) {
          const Coordinates at = runs.candidate.ranks[rank].coordinates;
          if (at.at("dp") != m) continue;
          Values recorded = values;
          for (float& value : recorded) value *= kind == Kind::kGradOutput ? 2 : 1;
          add_tensor(runs.candidate, rank, tensor_id(kind, "mlp", 0), {4}, recorded);
        }
      }
    }
    const Values gradient = values_of("main", {4});
    runs.add(tensor_id(Kind::kMainGrad, "mlp.weight"), {4}, gradient, {4},
             [&](const Coordinates&) { return gradient; });
  };
  RecordedRuns both("tp=2,dp=2", 4), dp("dp=2", 2);
  add_all(both);
  add_all(dp);
  const DraftLine alone = both.draft().parallelism.back();
  CHECK(alone.text == "loss_scale: dp");
  CHECK_FALSE(alone.certain);
  CHECK(alone.counts);  // by what it multiplies is certain, only not after which axis it is called
  CHECK(alone.why.ends_with("; tp is as much"));
  const DraftLine together = RecordedRuns::propose_for({&both, &dp}).parallelism.back();
  CHECK(together.text == "loss_scale: dp");
  CHECK(together.certain);
}

TEST_CASE("a sum counts where the module around it shows that it is made") {
  for (const bool is_made : {true, false}) {
    CAPTURE(is_made);
    RecordedRuns runs("tp=2", 2);
    const Values out = values_of("out", {4, 2}), around = values_of("around", {4, 2});
    const auto term = [](const Values& values) {
      return [&values](const Coordinates& at) {
        Values part = values;
        for (float& value : part) value *= at.at("tp") == 0 ? 0.25f : 0.75f;
        return part;
      };
    };
    runs.add(tensor_id(Kind::kOutput, "mlp.proj", 0), {4, 2}, out, {4, 2}, term(out));
    const auto whole = [&](const Coordinates&) { return around; };
    runs.add(tensor_id(Kind::kOutput, "mlp", 0), {4, 2}, around, {4, 2},
             is_made ? std::function<Values(const Coordinates&)>(whole) : term(around));
    const Draft draft = runs.draft();
    CHECK(drafted_rule(draft, "proj", Kind::kOutput) ==
          (is_made ? "tp: partial (certain)" : "tp: partial (guess that does not count)"));
    CHECK(parse_annotations(to_yaml(draft, ""), "draft").rules.size() == (is_made ? 1 : 0));
  }
}

TEST_CASE("a sum counts where the next module gets the same tensor whole") {
  for (const bool is_made : {true, false}) {
    CAPTURE(is_made);
    RecordedRuns runs("tp=2", 2);
    const Values gradient = values_of("gradient", {4, 2});
    const auto term = [&](const Coordinates& at) {
      Values part = gradient;
      for (float& value : part) value *= at.at("tp") == 0 ? 0.25f : 0.75f;
      return part;
    };
    const auto whole = [&](const Coordinates&) { return gradient; };
    runs.add(tensor_id(Kind::kGradInput, "head", 0), {4, 2}, gradient, {4, 2}, term);
    runs.add(tensor_id(Kind::kGradOutput, "norm", 0), {4, 2}, gradient, {4, 2},
             is_made ? std::function<Values(const Coordinates&)>(whole) : term);
    CHECK(drafted_rule(runs.draft(), "head", Kind::kGradInput) ==
          (is_made ? "tp: partial (certain)" : "tp: partial (guess that does not count)"));
  }
}

TEST_CASE("a parameter that two stages share is drafted as tied") {
  RecordedRuns runs("pp=2", 2);
  const Values before = values_of("before", {4}), after = values_of("after", {4});
  for (const auto& [kind, values] : {std::pair(Kind::kParam, before), std::pair(Kind::kParamAfter, after)}) {
    add_tensor(runs.reference, 0, tensor_id(kind, "embedding.weight"), {4}, values);
    add_tensor(runs.candidate, 0, tensor_id(kind, "embedding.weight"), {4}, values);
    add_tensor(runs.candidate, 1, tensor_id(kind, "head.weight"), {4}, values);
  }
  const Draft draft = runs.draft();
  REQUIRE(draft.parallelism.size() == 1);
  CHECK(draft.parallelism[0].text == "tied: {head.weight: embedding.weight}");
  CHECK(draft.rules.empty());
}

TEST_SUITE_END();
