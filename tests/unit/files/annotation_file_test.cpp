#include "files/annotation_file.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

using namespace ttrace;

namespace {

const std::filesystem::path kAnnotations = std::filesystem::path(TTRACE_SOURCE_DIR) / "annotations";

std::string error_of(const std::string& text) {
  try {
    parse_annotations(text, "gpt.yaml", kAnnotations);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("files");

TEST_CASE("the paper's figure 3 parses") {
  const Annotations annotations = parse_annotations(
      "word_embeddings.weight:\n"
      "  tp_dim: 0\n"
      "linear_qkv:\n"
      "  input:\n"
      "    sp_dim: 0\n"
      "    cp_dim: 0\n"
      "\n"
      "  output:\n"
      "    tp_dim: -1\n"
      "    cp_dim: 0\n",
      "gpt.yaml");
  REQUIRE(annotations.rules.size() == 3);
  const AnnotationRule& weight = annotations.rules[0];
  CHECK(weight.pattern == "word_embeddings.weight");
  CHECK_FALSE(weight.kind);
  CHECK(weight.source.line == 1);
  REQUIRE(weight.axes.size() == 1);
  CHECK(weight.axes[0].axis == "tp");
  CHECK(weight.axes[0].placement == Placement::kShard);
  CHECK(weight.axes[0].layout == "contiguous");
  const AnnotationRule& output = annotations.rules[2];
  CHECK(output.kind == Kind::kOutput);
  CHECK(output.source.line == 3);
  REQUIRE(output.axes.size() == 2);
  CHECK(output.axes[0].dim == -1);
  CHECK(output.axes[0].line == 9);
  CHECK(output.axes[1].axis == "cp");  // the order written
}

TEST_CASE("a rule may speak of a parameter and of kinds") {
  const Annotations annotations = parse_annotations(
      "bias: {tp: replicate, param_grad: {sp: partial, cp: {dim: 1, layout: zigzag}}, output: {}}", "gpt.yaml");
  REQUIRE(annotations.rules.size() == 3);
  CHECK(annotations.rules[0].kind == Kind::kParamGrad);
  CHECK(annotations.rules[0].axes[0].placement == Placement::kPartial);
  CHECK(annotations.rules[0].axes[1].placement == Placement::kShard);
  CHECK(annotations.rules[0].axes[1].dim == 1);
  CHECK(annotations.rules[0].axes[1].layout == "zigzag");
  CHECK(annotations.rules[1].kind == Kind::kOutput);
  CHECK(annotations.rules[1].axes.empty());
  CHECK_FALSE(annotations.rules[2].kind);
  CHECK(annotations.rules[2].axes[0].placement == Placement::kReplicate);
}

TEST_CASE("what is not about one tensor stands under parallelism") {
  const Annotations annotations = parse_annotations(
      "parallelism:\n"
      "  microbatches: {axis: edp, order: blocked}\n"
      "  pipeline:\n"
      "    layers: model.blocks\n"
      "  loss_scale: dp * cp / tp\n",
      "gpt.yaml");
  CHECK(annotations.rules.empty());
  CHECK(annotations.microbatches.axes == std::vector<std::string>{"edp"});
  CHECK(annotations.microbatches.order == MicrobatchOrder::kBlocked);
  CHECK(annotations.microbatches.source.line == 2);
  REQUIRE(annotations.pipeline);
  CHECK(annotations.pipeline->axis == "pp");
  CHECK(annotations.pipeline->layers == "model.blocks");
  CHECK(annotations.pipeline->source.line == 3);
  REQUIRE(annotations.loss_scale);
  CHECK(annotations.loss_scale->numerator == std::vector<std::string>{"dp", "cp"});
  CHECK(annotations.loss_scale->denominator == std::vector<std::string>{"tp"});
  CHECK(annotations.loss_scale->source.line == 5);
  CHECK(parse_annotations("parallelism: {loss_scale: 1/dp}", "x").loss_scale->numerator.empty());
  CHECK(parse_annotations("parallelism: {loss_scale: microbatches*dp}", "x").loss_scale->numerator ==
        std::vector<std::string>{"microbatches", "dp"});
  CHECK(parse_annotations("parallelism: {loss_scale: 4}", "x").loss_scale->numerator == std::vector<std::string>{"4"});
}

TEST_CASE("micro-batches may go along several axes, and be shared in slices") {
  const MicrobatchRule rule =
      parse_annotations("parallelism: {microbatches: {axis: [dp_replicate, dp_shard], order: slices, layout: striped}}",
                        "x")
          .microbatches;
  CHECK(rule.axes == std::vector<std::string>{"dp_replicate", "dp_shard"});
  CHECK(rule.order == MicrobatchOrder::kSlices);
  CHECK(rule.layout == "striped");
  CHECK_FALSE(parse_annotations("parallelism: {microbatches: {axis: dp}}", "x").microbatches.order);
}

TEST_CASE("uneven pipelines, tied parameters and experts are read") {
  const Annotations annotations = parse_annotations(
      "x: {param_grad: {microbatch: partial}}\n"
      "parallelism:\n"
      "  pipeline: {layers: layers, first: 0, last: 3}\n"
      "  experts: {layers: experts, axis: moe}\n"
      "  tied:\n"
      "    head.weight: embedding.weight\n",
      "gpt.yaml");
  REQUIRE(annotations.rules.size() == 1);
  CHECK(annotations.rules[0].sum_microbatches);
  CHECK(annotations.pipeline->first == 0);
  CHECK(annotations.pipeline->last == 3);
  CHECK(annotations.experts->axis == "moe");
  CHECK(annotations.experts->layers == "experts");
  CHECK(annotations.experts->source.line == 4);
  REQUIRE(annotations.tied.size() == 1);
  CHECK(annotations.tied[0].name == "head.weight");
  CHECK(annotations.tied[0].of == "embedding.weight");
  CHECK(annotations.tied[0].source.line == 6);
  const auto pipeline = [](const std::string& keys) {
    return *parse_annotations("parallelism: {pipeline: {layers: l, " + keys + "}}", "x").pipeline;
  };
  CHECK(pipeline("per_stage: [3, 5, 4]").per_stage == std::vector<std::int64_t>{3, 5, 4});
  CHECK(pipeline("embedding: true, head: false").embedding);
  CHECK_FALSE(pipeline("embedding: true, head: false").head);
}

TEST_CASE("a file that says nothing says nothing") {
  CHECK(parse_annotations("", "gpt.yaml").rules.empty());
  CHECK(parse_annotations("# nothing\n", "gpt.yaml").path == "gpt.yaml");
}

TEST_CASE("what is wrong with a file is said with its line") {
  const std::string kinds =
      "input, output, grad_output, grad_input, param, param_grad, main_grad, param_delta, param_after, scalar, "
      "master, exp_avg, exp_avg_sq, max_exp_avg_sq, momentum_buffer, step_grad, buffer, buffer_after";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a: {tp_dim: 0\nb: 1", "gpt.yaml:2: end of map flow not found; expected YAML as in annotations/README.md"},
      {"\n\t- x", "gpt.yaml:2: illegal block entry; expected YAML as in annotations/README.md"},
      {"- a\n- b", "gpt.yaml:1: not a mapping; expected patterns and their rules"},
      {"a: {tp_dim: 0}\n---\nb: {tp_dim: 0}",
       "gpt.yaml:2: a second YAML document; expected YAML as in annotations/README.md"},
      {"a: {tp_dim: 0}\na: {tp_dim: 1}", "gpt.yaml:2: 'a' appears twice; expected it once"},
      {"a:\n  tp_dim: 0\n  tp_dim: 1", "gpt.yaml:3: 'a': 'tp_dim' appears twice; expected it once"},
      {"a:\n  tp_dim: 0\n  tp: partial", "gpt.yaml:3: 'a': axis 'tp' appears twice; expected it once"},
      {"a: 0", "gpt.yaml:1: 'a': not a mapping; expected axis keys (tp_dim: 0) or kinds (output: {tp_dim: 0})"},
      {"a:", "gpt.yaml:1: 'a': not a mapping; expected axis keys (tp_dim: 0) or kinds (output: {tp_dim: 0})"},
      {"a: {}", "gpt.yaml:1: 'a': says nothing; expected axis keys (tp_dim: 0) or kinds (output: {tp_dim: 0})"},
      {"a:\n  output: 0", "gpt.yaml:2: 'a': output: not a mapping; expected axis keys (tp_dim: 0), rows, or local"},
      {"a:\n  output:\n    tp_dim: x", "gpt.yaml:3: 'a': output: tp_dim: 'x'; expected a dimension from -8 to 7"},
      {"a:\n  tp_dim: 8", "gpt.yaml:2: 'a': tp_dim: '8'; expected a dimension from -8 to 7"},
      {"a:\n  tp_dim: 1.0", "gpt.yaml:2: 'a': tp_dim: '1.0'; expected a dimension from -8 to 7"},
      {"a:\n  tp_dim: [0]", "gpt.yaml:2: 'a': tp_dim: no value; expected a dimension from -8 to 7"},
      {"a:\n  tp: shard", "gpt.yaml:2: 'a': tp: 'shard'; expected replicate, partial, mean, {dim: d}, or tp_dim: d"},
      {"a:\n  tp: {dims: 0}", "gpt.yaml:2: 'a': tp: unknown key 'dims'; expected dim and, if not contiguous, layout"},
      {"a:\n  tp: {layout: zigzag}", "gpt.yaml:2: 'a': tp: no dim; expected dim and, if not contiguous, layout"},
      {"a:\n  Tp_dim: 0", "gpt.yaml:2: 'a': unknown key 'Tp_dim'; expected <axis>_dim, <axis>, or one of " + kinds},
      {"a:\n  _dim: 0", "gpt.yaml:2: 'a': unknown key '_dim'; expected <axis>_dim, <axis>, or one of " + kinds},
      {"? [x]\n: {tp_dim: 0}", "gpt.yaml:1: a key that is no word; expected patterns and their rules"},
      {"parallelism: {pipelines: {}}",
       "gpt.yaml:1: 'parallelism': unknown key 'pipelines'; expected microbatches, pipeline, tied, experts, "
       "loss_scale, axes, known_axes or narrower"},
      {"parallelism:\n  pipeline: {axis: pp}",
       "gpt.yaml:2: 'parallelism': pipeline: no layers; expected layers (decoder.layers), and axis, first, "
       "last, embedding, head or per_stage where they apply; or names: global, and axis or chunks"},
      {"parallelism:\n  pipeline: {stages: 2}",
       "gpt.yaml:2: 'parallelism': pipeline: unknown key 'stages'; expected layers (decoder.layers), and axis, "
       "first, last, embedding, head or per_stage where they apply; or names: global, and axis or chunks"},
      {"parallelism:\n  pipeline: {layers: l, first: -1}",
       "gpt.yaml:2: 'parallelism': pipeline: first: '-1'; expected a number of layers"},
      {"parallelism:\n  pipeline: {layers: l, head: 1}",
       "gpt.yaml:2: 'parallelism': pipeline: head: '1'; expected true or false"},
      {"parallelism:\n  pipeline: {layers: l, per_stage: 3}",
       "gpt.yaml:2: 'parallelism': pipeline: per_stage: no list of layers; expected one number for each stage (and "
       "chunk), as in [3, 5, 4]"},
      {"parallelism:\n  pipeline: {layers: l, per_stage: [1, x]}",
       "gpt.yaml:2: 'parallelism': pipeline: per_stage: 'x'; expected a number of layers"},
      {"parallelism:\n  pipeline: {layers: l, last: 2, head: true}",
       "gpt.yaml:2: 'parallelism': pipeline: divides the layers in several ways; expected first and last, or embedding "
       "and head, or per_stage"},
      {"parallelism:\n  experts: {axis: ep}",
       "gpt.yaml:2: 'parallelism': experts: no layers; expected layers (mlp.experts.local_experts) and, if not ep, "
       "axis"},
      {"parallelism:\n  experts: {first: 2}",
       "gpt.yaml:2: 'parallelism': experts: unknown key 'first'; expected layers (mlp.experts.local_experts) and, if "
       "not ep, axis"},
      {"parallelism:\n  tied: {head.*: embedding.weight}",
       "gpt.yaml:2: 'parallelism': tied: 'head.*'; expected a name without wildcards"},
      {"parallelism:\n  tied:\n    a.weight: b.weight\n    b.weight: c.weight",
       "gpt.yaml:4: 'parallelism': tied: 'b.weight' is tied and is tied to; expected it on one side"},
      {"a:\n  microbatch: 0", "gpt.yaml:2: 'a': microbatch: '0'; expected partial"},
      {"a:\n  output: {microbatch: partial}",
       "gpt.yaml:2: 'a': output: microbatch: an activation belongs to one micro-batch; expected it for a parameter's "
       "kind or a scalar"},
      {"parallelism:\n  microbatches: {order: random}",
       "gpt.yaml:2: 'parallelism': microbatches: order: 'random'; expected interleaved, blocked or slices"},
      {"parallelism:\n  microbatches: {axes: dp}",
       "gpt.yaml:2: 'parallelism': microbatches: unknown key 'axes'; expected axis, order and layout"},
      {"parallelism:\n  microbatches: {axis: [dp, dp]}",
       "gpt.yaml:2: 'parallelism': microbatches: axis: 'dp' appears twice; expected it once"},
      {"parallelism:\n  microbatches: {layout: striped}",
       "gpt.yaml:2: 'parallelism': microbatches: a layout without 'order: slices'; expected one of slices only"},
      {"parallelism:\n  axes: tp=2,tp=2",
       "gpt.yaml:2: 'parallelism': axes: axis 'tp' appears twice; expected each axis once"},
      {"parallelism:\n  pipeline: {names: local}",
       "gpt.yaml:2: 'parallelism': pipeline: names: 'local'; expected global"},
      {"parallelism:\n  pipeline: {names: global, layers: layers}",
       "gpt.yaml:2: 'parallelism': pipeline: both layers and names; expected layers (decoder.layers), and axis, first, "
       "last, embedding, head or per_stage where they apply; or names: global, and axis or chunks"},
      {"parallelism:\n  pipeline: {names: global, first: 1}",
       "gpt.yaml:2: 'parallelism': pipeline: divides the layers, whose names are global; expected names, axis and "
       "chunks"},
      {"parallelism:\n  pipeline: {layers: layers, chunks: v}",
       "gpt.yaml:2: 'parallelism': pipeline: chunks without 'names: global'; expected it"},
      {"parallelism:\n  loss_scale: dp*",
       "gpt.yaml:2: 'parallelism': loss_scale: 'dp*'; expected axes multiplied or divided, as in dp, dp*cp or 1/dp"},
      {"parallelism:\n  loss_scale: 0",
       "gpt.yaml:2: 'parallelism': loss_scale: '0'; expected axes multiplied or divided, as in dp, dp*cp or 1/dp"},
  };
  for (const auto& [text, message] : cases) CHECK(error_of(text) == message);
}

TEST_CASE("YAML cut off or garbled anywhere is refused or read, never a crash") {
  std::ifstream file(kAnnotations / "megatron_gpt.yaml");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(text.size() > 1000);
  for (std::size_t size = 0; size < text.size(); size += 7) {
    error_of(text.substr(0, size));
    std::string garbled = text;
    garbled[size] = "{}[]:*&!\n\"'%"[size % 12];
    error_of(garbled);
  }
  CHECK(error_of(std::string(100000, '[')).starts_with("gpt.yaml:"));
}

TEST_CASE("every example of the schema's page parses") {
  std::ifstream file(kAnnotations / "README.md");
  std::string line, block;
  int examples = 0;
  bool inside = false;
  while (std::getline(file, line)) {
    if (inside && line == "```") {
      CHECK(error_of(block) == "");
      CHECK_FALSE(parse_annotations(block, "README.md", kAnnotations).rules.empty());
      ++examples;
      inside = false;
    } else if (inside) {
      block += line + "\n";
    } else if (line == "```yaml") {
      inside = true;
      block.clear();
    }
  }
  CHECK(examples >= 2);
}

TEST_CASE("what is held against each other is bounded") {
  std::string axes, tied;
  for (int i = 0; i < 65; ++i) axes += "  a" + std::to_string(i) + ": replicate\n";
  CHECK_THROWS_WITH_AS(parse_annotations("w:\n" + axes, "a.yaml"), "a.yaml:66: 'w': more than 64 axes; expected fewer",
                       InputError);
  for (int i = 0; i < 1025; ++i) tied += "    a" + std::to_string(i) + ": w\n";
  CHECK_THROWS_WITH_AS(parse_annotations("parallelism:\n  tied:\n" + tied, "a.yaml"),
                       "a.yaml:1027: 'parallelism': tied: more than 1024; expected fewer", InputError);
}

TEST_CASE("a file that cannot be read is named") {
  const auto refusal_of = [](const std::filesystem::path& path, const std::string& what) {
    CHECK_THROWS_WITH_AS(read_annotations({path.string()}, {}),
                         (path.string() + ": " + what + "; expected an annotation file").c_str(), InputError);
  };
  refusal_of(kAnnotations, "not a regular file");
  refusal_of(kAnnotations / "none.yaml", "No such file or directory");
}

TEST_SUITE_END();

TEST_CASE("a pattern may speak of tensors that not every program has") {
  const Annotations annotations =
      parse_annotations("softmax: {optional: true, input: {tp_dim: 1}, output: {}}", "a.yaml");
  REQUIRE(annotations.rules.size() == 2);
  CHECK(annotations.rules[0].optional);
  CHECK(annotations.rules[1].optional);
  CHECK_THROWS_WITH_AS(parse_annotations("softmax: {optional: maybe, input: {}}", "a.yaml"),
                       "a.yaml:1: 'softmax': optional: 'maybe'; expected true", InputError);
  CHECK_THROWS_AS(parse_annotations("softmax: {optional: true}", "a.yaml"), InputError);
}

TEST_CASE("the guesses of a draft are comments, found by their lines, and count where that is asked for") {
  const std::string text =
      "parallelism:\n"
      "  known_axes: [tp, dp]\n"
      "  #? loss_scale: tp  # guess on tp=2: 40 gradients\n"
      "fc:\n"
      "  input: {tp_dim: 0}\n"
      "  #? output:\n"
      "    #? tp: partial  # guess on tp=2: 4 tensors\n"
      "#? proj:\n"
      "  #? output:\n"
      "    #? tp: partial\n"
      "# ? no guess\n";
  const Annotations annotations = parse_annotations(text, "draft.yaml");
  CHECK(annotations.known_axes == std::vector<std::string>{"tp", "dp"});
  CHECK_FALSE(annotations.loss_scale);
  REQUIRE(annotations.rules.size() == 1);
  std::vector<std::string> guesses;
  for (const Guess& guess : annotations.guesses) guesses.push_back(to_string(guess.source) + " " + guess.text);
  CHECK(guesses == std::vector<std::string>{"draft.yaml:3 loss_scale: tp",
                                            "draft.yaml:6 output:", "draft.yaml:7 tp: partial",
                                            "draft.yaml:8 proj:", "draft.yaml:9 output:", "draft.yaml:10 tp: partial"});

  const auto file = std::filesystem::temp_directory_path() / "ttrace-draft-with-guesses.yaml";
  std::ofstream(file) << text;
  AnnotationSource source;
  source.file = file.string();
  source.with_guesses = true;
  const Annotations counting = read_annotations(source, {});
  std::filesystem::remove(file);
  CHECK(counting.loss_scale->numerator == std::vector<std::string>{"tp"});
  CHECK(counting.loss_scale->source.line == 3);
  REQUIRE(counting.rules.size() == 3);
  CHECK(counting.rules[1].axes[0].line == 7);
  CHECK(counting.rules[2].pattern == "proj");
}
