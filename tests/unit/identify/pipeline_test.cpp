// Pipelines: stages, virtual stages, uneven ones.
#include <doctest/doctest.h>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

TensorId layer_id(std::int64_t layer, std::int32_t chunk = 0) {
  TensorId id = tensor_id(Kind::kOutput, "decoder.layers." + std::to_string(layer));
  id.chunk = chunk;
  return id;
}

// One process with all layers; layer i holds the value i.
Trace whole_model(std::int64_t layers) {
  Trace trace = mesh_trace("", 1);
  for (std::int64_t i = 0; i < layers; ++i) add_tensor(trace, 0, layer_id(i), {1}, {static_cast<float>(i + 1)});
  return trace;
}

// A program that gives each virtual stage the layers from `starts` (as its own arithmetic has it) and runs `counts` of
// them, numbered from 0. By chunk, then stage.
Trace staged(std::int32_t stages, const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& counts) {
  Trace trace = mesh_trace("pp=" + std::to_string(stages), stages);
  for (std::size_t part = 0; part < counts.size(); ++part) {
    const std::size_t rank = part % static_cast<std::size_t>(stages);
    const auto chunk = static_cast<std::int32_t>(part / static_cast<std::size_t>(stages));
    for (std::int64_t i = 0; i < counts[part]; ++i) {
      add_tensor(trace, rank, layer_id(i, chunk), {1}, {static_cast<float>(starts[part] + i + 1)});
    }
  }
  return trace;
}

std::string pipeline(const std::string& keys) {
  return "'*': {output: {}}\nparallelism: {pipeline: {layers: decoder.layers" + keys + "}}";
}

using Findings = std::vector<std::string>;

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("stage-local layers become global ones by arithmetic") {
  Trace trace = mesh_trace("pp=2", 2);
  for (const std::size_t stage : {0, 1}) {
    add_tensor(trace, stage, tensor_id(Kind::kOutput, "decoder.layers.0.mlp:1"), {2});
    add_tensor(trace, stage, tensor_id(Kind::kOutput, "decoder.layers.1.mlp:1"), {2});
  }
  const Alignment alignment = align(trace, annotations("parallelism: {pipeline: {layers: decoder.layers}}"), {});
  CHECK(alignment.findings.empty());
  CHECK(names_in(alignment) == std::vector<std::string>{"decoder.layers.0.mlp:1", "decoder.layers.1.mlp:1",
                                                        "decoder.layers.2.mlp:1", "decoder.layers.3.mlp:1"});
  CHECK(alignment.tensors.rbegin()->second.pieces()[0].rank == 1);
  CHECK(layout_of(alignment).layer_counts == std::map<std::string, std::int64_t>{{"decoder.layers", 4}});
}

TEST_CASE("a wrongly divided model shows as missing and duplicated layers") {
  // 3 + 1 layers where the reference says 4 on 2 stages, so 2 each.
  Trace trace = mesh_trace("pp=2", 2);
  for (const std::string layer : {"0", "1", "2"}) {
    add_tensor(trace, 0, tensor_id(Kind::kOutput, "decoder.layers." + layer), {2});
  }
  add_tensor(trace, 1, tensor_id(Kind::kOutput, "decoder.layers.0"), {2});
  const ModelLayout reference{{{"decoder.layers", 4}}};
  const Alignment alignment = align(trace, annotations("parallelism: {pipeline: {layers: decoder.layers}}"), reference);
  CHECK(only_finding(alignment).reason == Reason::kDuplicateTensor);
  CHECK(only_finding(alignment).message ==
        "decoder.layers.2 output, iteration 0: a layer belongs to one pipeline stage, this one is on stage 0 (rank 0) "
        "and stage 1 (rank 1)");
  CHECK(names_in(alignment) == std::vector<std::string>{"decoder.layers.0", "decoder.layers.1"});
}

TEST_CASE("of a module around the layers, the first stage's inputs and the last one's outputs count") {
  Trace trace = mesh_trace("pp=2", 2);
  for (const std::size_t stage : {0, 1}) {
    add_tensor(trace, stage, tensor_id(Kind::kInput, "decoder"), {2});
    add_tensor(trace, stage, tensor_id(Kind::kOutput, "decoder"), {2});
    add_tensor(trace, stage, tensor_id(Kind::kOutput, "decoder.layers.0"), {2});
  }
  add_tensor(trace, 1, tensor_id(Kind::kInput, "(model):2"), {2});
  for (const std::size_t stage : {0, 1}) {
    add_tensor(trace, stage, tensor_id(Kind::kInput, "(model):1"), {2});
    trace.ranks[stage].entries.back().dtype = Dtype::kInt32;
  }
  const Alignment alignment = align(trace, annotations("parallelism: {pipeline: {layers: decoder.layers}}"), {});
  CHECK(alignment.findings.empty());
  CHECK(alignment.tensors.at(tensor_id(Kind::kInput, "decoder")).pieces()[0].rank == 0);
  CHECK(alignment.tensors.at(tensor_id(Kind::kOutput, "decoder")).pieces()[0].rank == 1);
  // The hidden state that the second stage was given is no input of the model; the labels, given to both, are.
  CHECK_FALSE(alignment.tensors.contains(tensor_id(Kind::kInput, "(model):2")));
  CHECK(alignment.tensors.at(tensor_id(Kind::kInput, "(model):1")).pieces().size() == 2);
  REQUIRE(alignment.notes.size() == 2);
  CHECK(alignment.notes[0] ==
        "modules that span the pipeline's stages, inputs taken from the first stage and outputs from the last: "
        "'(model):2' input, 'decoder' input, 'decoder' output");
}

TEST_CASE("a whole model whose layers do not divide into its stages must say how uneven they are") {
  for (const ModelLayout& layout : {ModelLayout{}, ModelLayout{{{"decoder.layers", 5}}}}) {
    CHECK(error_of(staged(2, {0, 3}, {3, 2}), pipeline(""), layout) ==
          "gpt.yaml:2: 'parallelism': pipeline: 5 layers of decoder.layers do not divide into 2 stages; expected a "
          "multiple of 2, or first, last, embedding, head or per_stage");
  }
}

TEST_CASE("layers that a rounded division drops are missing, and no others") {
  struct Rounded {
    std::int64_t layers;
    std::int32_t stages;
    std::vector<std::int64_t> starts, counts;  // by chunk, then stage
    std::vector<std::int64_t> missing;
    std::string note;
  };
  const std::vector<Rounded> programs = {
      {5, 2, {0, 2}, {2, 2}, {4}, "2 stages, which hold 4: taken to be rounded down to 2 on each, which drops 4"},
      {10,
       2,
       {0, 2, 5, 7},
       {2, 2, 2, 2},
       {4, 9},
       "2 stages of 2 chunks, which hold 8: taken to be rounded down to 2 on each, which drops 4, 9"},
      {7,
       2,
       {0, 1, 3, 4},
       {1, 1, 1, 1},
       {2, 5, 6},
       "2 stages of 2 chunks, which hold 4: taken to be rounded down to 1 on each, which drops 2, 5 to 6"},
  };
  for (const Rounded& program : programs) {
    const Trace candidate = staged(program.stages, program.starts, program.counts);
    Findings expected;
    for (const std::int64_t layer : program.missing) {
      expected.push_back("decoder.layers." + std::to_string(layer) + " output: missing-in-candidate");
    }
    CHECK(findings_in(checked(whole_model(program.layers), candidate, pipeline(""))) == expected);
    const ModelLayout layout{{{"decoder.layers", program.layers}}};
    CHECK(align(candidate, annotations(pipeline("")), layout).notes.at(0) ==
          "gpt.yaml:2: 'parallelism': pipeline: " + std::to_string(program.layers) +
              " layers of decoder.layers do not divide into " + program.note +
              "; stages that are uneven need first, last, embedding, head or per_stage");
  }
  // The program's own numbers do not count: here the second chunk goes on where the first one ended.
  CHECK(findings_in(checked(whole_model(10), staged(2, {0, 2, 4, 6}, {2, 2, 2, 2}), pipeline(""))) ==
        Findings{"decoder.layers.4 output: missing-in-candidate", "decoder.layers.5 output: exceeds-tolerance",
                 "decoder.layers.6 output: exceeds-tolerance", "decoder.layers.7 output: exceeds-tolerance",
                 "decoder.layers.8 output: exceeds-tolerance", "decoder.layers.9 output: missing-in-candidate"});
}

TEST_CASE("a virtual chunk without a rule keeps its own names") {
  Trace trace = mesh_trace("", 1);
  TensorId id = tensor_id(Kind::kOutput, "decoder.layers.0");
  id.chunk = 1;
  add_tensor(trace, 0, id, {2});
  const LogicalTensor tensor = only_tensor(align(trace, {}, {}));
  CHECK(tensor.id.name == "model1.decoder.layers.0");
  CHECK(tensor.id.chunk == 0);
}

TEST_CASE("stages whose layers nobody numbers are noted") {
  const Alignment alignment = align(mesh_trace("pp=2", 2), {}, {});
  CHECK(alignment.notes ==
        std::vector<std::string>{"axis 'pp' has 2 stages and no rule numbers their layers; expected, for example, "
                                 "parallelism: {pipeline: {layers: decoder.layers}}"});
}

TEST_CASE("interleaved chunks hold the layers that Megatron gives them") {
  const Trace reference = whole_model(8);
  // Stage 0 runs layers 0, 1 and 4, 5.
  CHECK(checked(reference, staged(2, {0, 2, 4, 6}, {2, 2, 2, 2}), pipeline("")).same());
  // Stage 0 runs layers 0 to 3: blocks, not interleaved.
  CHECK(findings_in(checked(reference, staged(2, {0, 4, 2, 6}, {2, 2, 2, 2}), pipeline(""))) ==
        Findings{"decoder.layers.2 output: exceeds-tolerance", "decoder.layers.3 output: exceeds-tolerance",
                 "decoder.layers.4 output: exceeds-tolerance", "decoder.layers.5 output: exceeds-tolerance"});
}

TEST_CASE("each declared division places the layers of its program") {
  struct Division {
    std::string keys;
    std::int32_t stages;
    std::vector<std::int64_t> counts;  // by chunk, then stage
  };
  const std::vector<Division> divisions = {
      {", first: 1", 3, {1, 3, 3}},
      {", last: 3", 3, {2, 2, 3}},
      {", first: 1, last: 2", 4, {1, 2, 2, 2}},
      {", first: 0", 2, {0, 7}},
      {", first: 3, last: 4", 2, {3, 4}},
      {", embedding: true", 2, {3, 4}},
      {", head: true", 2, {4, 3}},
      {", embedding: true, head: true", 3, {2, 3, 2}},
      {", per_stage: [1, 5, 1]", 3, {1, 5, 1}},
      {", first: 2, last: 4", 3, {1, 1, 2, 1, 1, 2}},  // in two chunks each
      {", embedding: true", 2, {1, 2, 2, 2}},
      {", per_stage: [1, 2, 3, 1]", 2, {1, 2, 3, 1}},
  };
  for (const Division& division : divisions) {
    CAPTURE(division.keys);
    std::vector<std::int64_t> starts;
    std::int64_t total = 0;
    for (const std::int64_t count : division.counts) {
      starts.push_back(total);
      total += count;
    }
    CHECK(
        checked(whole_model(total), staged(division.stages, starts, division.counts), pipeline(division.keys)).same());
  }
}

TEST_CASE("layers that a program dropped by dividing downwards are missing, and it says which") {
  const Trace reference = whole_model(8);
  const std::string text = pipeline(", first: 2");  // the rest is 3 and 3
  // (8 - 2) / 4 = 1, where it meant (8 - 2) / 2.
  CHECK(findings_in(checked(reference, staged(3, {0, 2, 3}, {2, 1, 1}), text)) ==
        Findings{"decoder.layers.3 output: missing-in-candidate", "decoder.layers.4 output: missing-in-candidate",
                 "decoder.layers.5 output: exceeds-tolerance", "decoder.layers.6 output: missing-in-candidate",
                 "decoder.layers.7 output: missing-in-candidate"});
  CHECK(checked(reference, staged(3, {0, 2, 5}, {2, 3, 3}), text).same());
  // Of 8 / 3 layers a chunk, one is lost on either stage.
  CHECK(findings_in(checked(reference, staged(2, {0, 2, 4, 6}, {2, 1, 2, 1}), pipeline(""))) ==
        Findings{"decoder.layers.3 output: missing-in-candidate", "decoder.layers.7 output: missing-in-candidate"});
}

TEST_CASE("a rank that ran fewer model chunks is named, with the layers it lacks") {
  Trace trace = staged(2, {0, 1, 2, 3}, {1, 1, 1, 0});
  const Report report = checked(whole_model(4), trace, pipeline(""));
  REQUIRE(report.findings.size() == 2);
  CHECK(report.findings[0].message == "rank 1 ran fewer than the 2 model chunks of the others");
  CHECK(report.findings[0].ranks == std::vector<std::int32_t>{1});
  CHECK(report.findings[1].id.name == "decoder.layers.3");
  trace.ranks[1].complete = false;  // it crashed before, which is said already
  const Report crashed = checked(whole_model(4), trace, pipeline(""));
  REQUIRE(crashed.findings.size() == 2);
  CHECK(crashed.findings[0].reason == Reason::kIncompleteRank);
}

TEST_CASE("a layer that two chunks of one rank hold is a finding that names both") {
  Trace trace = staged(1, {0, 1}, {2, 1});
  CHECK(only_finding(align(trace, annotations(pipeline("")), {{{"decoder.layers", 2}}})).message ==
        "decoder.layers.1 output, iteration 0: a layer belongs to one pipeline stage, this one is on stage 0, chunk 0 "
        "(rank 0) and stage 0, chunk 1 (rank 0)");
}

TEST_CASE("of a module around interleaved layers, the first chunk's inputs and the last one's outputs count") {
  Trace trace = mesh_trace("pp=2", 2);
  for (const std::int32_t chunk : {0, 1}) {
    for (const std::size_t stage : {0, 1}) {
      const auto part = static_cast<float>(chunk * 2 + static_cast<std::int32_t>(stage));
      for (const Kind kind : {Kind::kInput, Kind::kOutput, Kind::kGradInput, Kind::kGradOutput}) {
        TensorId id = tensor_id(kind, "decoder", 0);
        id.chunk = chunk;
        add_tensor(trace, stage, id, {1}, {part});
      }
      TensorId tokens = tensor_id(Kind::kInput, "(model)", 0);
      tokens.chunk = chunk;
      add_tensor(trace, stage, tokens, {2});
      trace.ranks[stage].entries.back().dtype = Dtype::kInt32;
      add_tensor(trace, stage, layer_id(0, chunk), {1});
    }
  }
  const Alignment alignment = align(trace, annotations(pipeline("")), {});
  CHECK(alignment.findings.empty());
  const auto only_value = [&](Kind kind) {
    const LogicalTensor& tensor = alignment.tensors.at(tensor_id(kind, "decoder", 0));
    REQUIRE(tensor.pieces().size() == 1);
    float value = -1;
    std::memcpy(&value, tensor.pieces()[0].data, sizeof value);
    return value;
  };
  CHECK(only_value(Kind::kInput) == 0);
  CHECK(only_value(Kind::kGradInput) == 0);
  CHECK(only_value(Kind::kOutput) == 3);
  CHECK(only_value(Kind::kGradOutput) == 3);
  // Each chunk was given the tokens: four copies that must agree.
  CHECK(alignment.tensors.at(tensor_id(Kind::kInput, "(model)", 0)).pieces().back().replica == 3);
}

TEST_CASE("a division that does not fit the reference is refused, with the line") {
  const auto refused = [](const std::string& keys, std::int32_t stages, std::int64_t layers) {
    const std::vector<std::int64_t> one(static_cast<std::size_t>(stages), 1);
    return error_of(staged(stages, one, one), pipeline(keys), {{{"decoder.layers", layers}}});
  };
  const std::string at = "gpt.yaml:2: 'parallelism': pipeline: ";
  CHECK(refused(", per_stage: [1, 2]", 3, 3) == at + "per_stage has 2 numbers; expected 3 for 3 stages");
  CHECK(refused(", per_stage: [1, 2]", 2, 4) == at + "per_stage makes 3 layers; expected the 4 of decoder.layers");
  CHECK(refused(", first: 1", 3, 4) ==
        at + "first and last leave 3 of the 4 layers of decoder.layers to 2 of 3 stages; expected equal shares");
  CHECK(refused(", first: 5", 3, 4) ==
        at + "first and last leave -1 of the 4 layers of decoder.layers to 2 of 3 stages; expected equal shares");
  CHECK(refused(", first: 1, last: 2", 2, 4) ==
        at + "first and last leave 1 of the 4 layers of decoder.layers to 0 of 2 stages; expected equal shares");
  CHECK(refused(", embedding: true", 2, 4) ==
        at + "4 layers of decoder.layers and the embedding do not divide into 2 stages; expected a multiple of 2, or "
             "first, last, embedding, head or per_stage");
  CHECK(error_of(staged(2, {0, 1, 2, 3}, {1, 1, 1, 1}), pipeline(", first: 3"), {{{"decoder.layers", 5}}}) ==
        at + "a stage's 3 layers of decoder.layers do not divide into its 2 chunks; expected a multiple of 2");
}

TEST_CASE("a trace that claims too many model chunks is refused") {
  Trace trace = mesh_trace("pp=2", 2);
  add_tensor(trace, 1, layer_id(0, 2147483647), {1});
  CHECK(error_of(trace, pipeline("")) ==
        "trace/rank-00001.h5: 2147483648 model chunks on 2 pipeline stages; expected at most 1048576 in all");
}

TEST_CASE("with global names, layers are those that the stages call so, whichever chunk runs them") {
  // Two stages with two chunks of a layer each; in a V the last layer is on the first stage.
  for (const bool v : {false, true}) {
    CAPTURE(v);
    Trace trace = mesh_trace("pp=2", 2);
    for (std::int32_t layer = 0; layer < 4; ++layer) {
      const auto rank = static_cast<std::size_t>(v && layer >= 2 ? 3 - layer : layer % 2);
      TensorId model = tensor_id(Kind::kOutput, "(model)");
      model.chunk = layer / 2;
      add_tensor(trace, rank, layer_id(layer, layer / 2), {1}, {static_cast<float>(layer + 1)});
      add_tensor(trace, rank, model, {1}, {static_cast<float>(10 * layer)});
    }
    const std::string rule = std::string("parallelism: {pipeline: {names: global") + (v ? ", chunks: v}}" : "}}");
    const Alignment alignment = align(trace, annotations(rule), {});
    CHECK(alignment.findings.empty());
    CHECK(names_in(alignment) == std::vector<std::string>{"(model)", "decoder.layers.0", "decoder.layers.1",
                                                          "decoder.layers.2", "decoder.layers.3"});
    CHECK(alignment.tensors.begin()->second.pieces()[0].rank == (v ? 0 : 1));  // the end of the model
  }
}

TEST_CASE("with global names, a layer that two stages hold is a duplicate") {
  Trace trace = mesh_trace("pp=2", 2);
  for (const std::int64_t layer : {0, 1}) add_tensor(trace, 0, layer_id(layer), {1});
  for (const std::int64_t layer : {1, 2}) add_tensor(trace, 1, layer_id(layer), {1});
  const Alignment alignment = align(trace, annotations("parallelism: {pipeline: {names: global}}"), {});
  REQUIRE(alignment.findings.size() == 1);
  CHECK(alignment.findings[0].id.name == "decoder.layers.1");
}

TEST_CASE("a module that the last stage calls again is called twice in the whole model") {
  // As the embedding, where the last stage predicts further tokens.
  const auto called = [](Trace& trace, std::size_t rank, const char* name, float value) {
    add_tensor(trace, rank, tensor_id(Kind::kInput, name), {1}, {value});
    add_tensor(trace, rank, tensor_id(Kind::kOutput, name), {1}, {value});
  };
  const Annotations rules =
      annotations("embedding: {output: local}\nparallelism: {pipeline: {layers: decoder.layers}}");
  Trace whole = mesh_trace("", 1), staged = mesh_trace("pp=2", 2);
  for (const char* name : {"embedding", "embedding.drop"}) {
    called(whole, 0, name, 1);
    called(whole, 0, (std::string(name) + "#1").c_str(), 2);
    called(staged, 0, name, 1);
    called(staged, 1, name, 2);
  }
  called(whole, 0, "angles", 3);  // both stages call this one
  called(staged, 0, "angles", 3);
  called(staged, 1, "angles", 3);
  const Alignment reference = align(whole, rules, {});
  const Alignment candidate = align(staged, rules, layout_of(reference));
  CHECK(names_in(candidate) == names_in(reference));
  const auto rank_of = [&](const char* name) {
    const std::vector<Piece> pieces = candidate.tensors.at(tensor_id(Kind::kOutput, name)).pieces();
    std::vector<std::int32_t> ranks;
    for (const Piece& piece : pieces) ranks.push_back(piece.rank);
    return ranks;
  };
  CHECK(rank_of("embedding.drop") == std::vector<std::int32_t>{0});
  CHECK(rank_of("embedding.drop#1") == std::vector<std::int32_t>{1});
  CHECK(rank_of("angles") == std::vector<std::int32_t>{0, 1});
  // What each stage's backward gives a parameter is a term.
  for (const std::size_t stage : {0, 1}) {
    add_tensor(staged, stage, tensor_id(Kind::kParamGrad, "embedding.weight", 0), {1}, {1});
    add_tensor(staged, stage, tensor_id(Kind::kMainGrad, "embedding.weight"), {1}, {2});
  }
  const Alignment with_gradients = align(staged, rules, layout_of(reference));
  const auto pieces_of = [&](const TensorId& id) { return with_gradients.tensors.at(id).pieces(); };
  CHECK(pieces_of(tensor_id(Kind::kParamGrad, "embedding.weight", 0))[1].term == 1);
  CHECK(pieces_of(tensor_id(Kind::kMainGrad, "embedding.weight"))[1].replica == 1);
}

TEST_SUITE_END();
