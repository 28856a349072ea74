#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>

#include "base/error.h"
#include "files/annotation_file.h"
#include "support/temporary_directory.h"

using namespace ttrace;
using test::TemporaryDirectory;

namespace {

namespace fs = std::filesystem;

// Annotation files in a directory of their own, and presets in a directory below it.
class AnnotationFiles {
 public:
  AnnotationFiles() { fs::create_directory(presets()); }

  fs::path presets() const { return directory_.path() / "presets"; }
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }

  Annotations read(const std::string& name, const std::vector<std::string>& settings = {}) const {
    return read_annotations({path(name), settings}, presets());
  }

  // The message, without the directory.
  std::string error(const std::string& name, const std::vector<std::string>& settings = {}) const {
    try {
      read(name, settings);
    } catch (const InputError& error) {
      std::string text = error.what();
      for (std::size_t at; (at = text.find(path(""))) != text.npos;) text.erase(at, path("").size());
      return text;
    }
    return "";
  }

 private:
  TemporaryDirectory directory_;
};

constexpr const char* kGpt =
    "parameters: {heads: 8, cp_layout: zigzag, first: null, blocks: [1, 1]}\n"
    "parallelism:\n"
    "  microbatches: {axis: edp}\n"
    "  pipeline: {layers: layers, first: $first}\n"
    "qkv:\n"
    "  output: {cp: {dim: 0, layout: $cp_layout}, tp: {dim: 1, query_heads: $heads, blocks: $blocks}}\n"
    "mlp.fc1:\n"
    "  output: {tp_dim: 1}\n"
    "  input: {}\n"
    "head:\n"
    "  output: {tp_dim: 1}\n";

// Returns the query heads of the first rule's second axis.
std::int64_t heads_of(const Annotations& annotations) {
  return annotations.rules[0].axes[1].options.at("query_heads").at(0);
}

}  // namespace

TEST_SUITE_BEGIN("files");

TEST_CASE("a parameter has its default, the including file's value, or the command line's") {
  AnnotationFiles files;
  files.write("gpt.yaml", kGpt);
  files.write("mine.yaml", "include: gpt.yaml\nparameters: {heads: 32, cp_layout: striped}\n");
  CHECK(heads_of(files.read("gpt.yaml")) == 8);
  CHECK(files.read("gpt.yaml").rules[0].axes[1].options.at("blocks") == std::vector<std::int64_t>{1, 1});
  CHECK(heads_of(files.read("mine.yaml")) == 32);
  CHECK(files.read("mine.yaml").rules[0].axes[0].layout == "striped");
  CHECK(heads_of(files.read("mine.yaml", {"heads=16", "heads=4"})) == 4);
  CHECK(files.read("mine.yaml", {"blocks=[2, 1]"}).rules[0].axes[1].options.at("blocks")[0] == 2);
}

TEST_CASE("a key whose parameter is null is left out") {
  AnnotationFiles files;
  files.write("gpt.yaml", kGpt);
  CHECK_FALSE(files.read("gpt.yaml").pipeline->first);
  CHECK(files.read("gpt.yaml", {"first=3"}).pipeline->first == 3);
  CHECK(files.read("gpt.yaml", {"cp_layout=null"}).rules[0].axes[0].layout == "contiguous");
}

TEST_CASE("an including file's patterns and keys of parallelism take the place of those it includes") {
  AnnotationFiles files;
  files.write("gpt.yaml", kGpt);
  files.write("mine.yaml",
              "mlp.fc1:\n"
              "  output: {tp_dim: 2}\n"
              "include: [gpt.yaml]\n"
              "head: null\n"
              "parallelism:\n"
              "  pipeline: {layers: blocks}\n"
              "  experts: {layers: experts}\n");
  const Annotations annotations = files.read("mine.yaml");
  CHECK(annotations.path == files.path("mine.yaml"));
  CHECK(annotations.files == std::vector<std::string>{files.path("gpt.yaml"), files.path("mine.yaml")});
  REQUIRE(annotations.rules.size() == 2);
  CHECK(to_string(annotations.rules[0].source) == files.path("gpt.yaml:5"));
  CHECK(annotations.rules[1].pattern == "mlp.fc1");
  CHECK(annotations.rules[1].axes[0].dim == 2);
  CHECK(to_string(annotations.rules[1].source) == files.path("mine.yaml:1"));
  CHECK(annotations.microbatches.axes == std::vector<std::string>{"edp"});
  CHECK(to_string(annotations.microbatches.source) == files.path("gpt.yaml:3"));
  CHECK(annotations.pipeline->layers == "blocks");
  CHECK(to_string(annotations.pipeline->source) == files.path("mine.yaml:6"));
  CHECK(annotations.experts->layers == "experts");
}

TEST_CASE("of equally specific patterns the including file's places the tensor") {
  AnnotationFiles files;
  files.write("gpt.yaml", "\n\n\n\n'*.fc1': {tp_dim: 0}\n");
  files.write("mine.yaml", "include: gpt.yaml\n'?.fc1': {tp_dim: 1}\n");
  const Annotations annotations = files.read("mine.yaml");
  CHECK(rule_for(annotations, Kind::kParam, "a.fc1")->pattern == "?.fc1");
}

TEST_CASE("a file is looked for beside the including one, then among the presets; a preset by its name, too") {
  AnnotationFiles files;
  files.write("presets/gpt.yaml", kGpt);
  files.write("presets/llama.yaml", "include: gpt.yaml\nparameters: {heads: 32}\n");
  files.write("mine.yaml", "include: llama\n");
  CHECK(heads_of(files.read("mine.yaml")) == 32);
  CHECK(heads_of(read_annotations({"llama", {}}, files.presets())) == 32);
  CHECK(heads_of(read_annotations({"gpt.yaml", {}}, files.presets())) == 8);
  files.write("llama", "include: gpt.yaml\nparameters: {heads: 2}\n");
  CHECK(heads_of(files.read("mine.yaml")) == 2);
}

TEST_CASE("a file that several include is read once") {
  AnnotationFiles files;
  files.write("gpt.yaml", kGpt);
  files.write("llama.yaml", "include: gpt.yaml\nhead: {output: {tp_dim: 2}}\n");
  files.write("mine.yaml", "include: [llama.yaml, gpt.yaml]\n");
  const Annotations annotations = files.read("mine.yaml");
  CHECK(annotations.files.size() == 3);
  CHECK(rule_for(annotations, Kind::kOutput, "head")->axes[0].dim == 2);
}

TEST_CASE("what is wrong with a parameter is said with what is known") {
  AnnotationFiles files;
  files.write("gpt.yaml", kGpt);
  const std::string known = "expected one of blocks, cp_layout, first, heads";
  CHECK(files.error("gpt.yaml", {"head=4"}) == "parameter head=4: no value is $head; " + known);
  CHECK(files.error("gpt.yaml", {"heads=four"}) ==
        "parameter heads=four: 'four'; expected a number, as the default 8 in gpt.yaml:1");
  CHECK(files.error("gpt.yaml", {"blocks=2"}) ==
        "parameter blocks=2: '2'; expected a list, as the default [1, 1] in gpt.yaml:1");
  CHECK(files.error("gpt.yaml", {"cp_layout=[a, b]"}) ==
        "parameter cp_layout=[a, b]: '[a, b]'; expected a word, as the default zigzag in gpt.yaml:1");
  for (const std::string text : {"heads", "heads=", "=4"}) {
    CHECK(files.error("gpt.yaml", {text}) ==
          "parameter " + text + ": expected its name and its value, as in kv_heads=8");
  }
  const std::string value = "expected a number, a word, a list of them, or null";
  CHECK(files.error("gpt.yaml", {"heads={a: 1}"}) == "parameter heads={a: 1}: no value; " + value);
  CHECK(files.error("gpt.yaml", {"heads=$first"}) == "parameter heads=$first: no value; " + value);
  CHECK(files.error("gpt.yaml", {"heads=[1"}) == "parameter heads=[1: end of sequence flow not found; " + value);

  files.write("a.yaml", "include: gpt.yaml\nparameters:\n  heads: x\n");
  CHECK(files.error("a.yaml") ==
        "a.yaml:3: 'parameters': heads: 'x'; expected a number, as the default 8 in gpt.yaml:1");
  files.write("a.yaml", "include: gpt.yaml\nparameters:\n  head: 4\n");
  CHECK(files.error("a.yaml") == "a.yaml:3: 'parameters': head: no value is $head; " + known);
  files.write("a.yaml", "parameters: [heads]\n");
  CHECK(files.error("a.yaml") == "a.yaml:1: 'parameters': not a mapping; expected names and their values");
  files.write("a.yaml", "x:\n  tp_dim: $dim\n");
  CHECK(files.error("a.yaml") == "a.yaml:2: 'x': tp_dim: there is no parameter 'dim'; expected none");
  files.write("a.yaml", "include: gpt.yaml\nx:\n  tp_dim: $cp_layout\n");
  CHECK(files.error("a.yaml") == "a.yaml:3: 'x': tp_dim: 'zigzag'; expected a dimension from -8 to 7");
}

TEST_CASE("a mistake in an included file is said with that file and its line") {
  AnnotationFiles files;
  files.write("gpt.yaml", "x:\n  tp_dim: 9\n");
  files.write("a.yaml", "include: gpt.yaml\n");
  CHECK(files.error("a.yaml") == "gpt.yaml:2: 'x': tp_dim: '9'; expected a dimension from -8 to 7");
  files.write("gpt.yaml", "x: {\n");
  CHECK(files.error("a.yaml") == "gpt.yaml:2: end of map flow not found; expected YAML as in annotations/README.md");
}

TEST_CASE("includes that cannot be followed are refused") {
  AnnotationFiles files;
  files.write("presets/gpt.yaml", "");
  files.write("presets/llama.yaml", "");
  files.write("a.yaml", "\ninclude: b.yaml\n");
  CHECK(files.error("a.yaml") ==
        "a.yaml:2: include: 'b.yaml' cannot be read; expected an annotation file or a preset: gpt, llama");
  files.write("a.yaml", "include: ./gpt.yaml\n");
  CHECK(files.error("a.yaml") == "a.yaml:1: include: './gpt.yaml' cannot be read; expected an annotation file");
  files.write("a.yaml", "include: /dev/zero\n");
  CHECK(files.error("a.yaml") ==
        "a.yaml:1: include: '/dev/zero' leads elsewhere; expected a .yaml file, or one beside this or a preset");
  files.write("a.yaml", "include: presets/../presets/secret\n");
  CHECK(files.error("a.yaml") ==
        "a.yaml:1: include: 'presets/../presets/secret' leads elsewhere; expected a .yaml file, or one beside this or "
        "a preset");
  files.write("a.yaml", "include: a.yaml\n");
  CHECK(files.error("a.yaml") == "a.yaml:1: include: 'a.yaml' includes this file; expected no circle");
  files.write("a.yaml", "include: [gpt, b.yaml]\n");
  files.write("b.yaml", "include: a.yaml\n");
  CHECK(files.error("a.yaml") == "b.yaml:1: include: 'a.yaml' includes this file; expected no circle");
  files.write("a.yaml", "include: {b: c}\n");
  CHECK(files.error("a.yaml") ==
        "a.yaml:1: include: no value; expected the name of an annotation file, or a list of them");
  for (int i = 0; i < 70; ++i) {
    files.write(fmt::format("{}.yaml", i), fmt::format("include: {}.yaml\n", i + 1));
  }
  files.write("70.yaml", "");
  CHECK(files.error("0.yaml") == "64.yaml: one file more than 64; expected fewer");
}

TEST_CASE("a file that includes another and sets its parameters says what -a and --set say") {
  AnnotationFiles files;
  files.write("gpt.yaml", kGpt);
  const std::vector<std::string> settings = {"heads=4", "blocks=[2, 3]", "cp_layout=null", "first='2'"};
  files.write("presets/ranks.yaml", including_file(files.path("gpt.yaml"), settings));
  const Annotations annotations = read_annotations_of_job(files.path("presets/ranks.yaml"), files.presets());
  CHECK(heads_of(annotations) == 4);
  CHECK(annotations.rules[0].axes[1].options.at("blocks") == std::vector<std::int64_t>{2, 3});
  CHECK(annotations.rules[0].axes[0].layout == "contiguous");
  CHECK(annotations.pipeline->first == 2);
}

TEST_CASE("every preset is read by its name alone, and uses each parameter that it declares") {
  const fs::path presets = fs::path(TTRACE_SOURCE_DIR) / "annotations";
  for (const std::string name :
       {"megatron_gpt", "megatron_llama", "megatron_mixtral", "megatron_moe", "torch_fsdp2_tp"}) {
    CAPTURE(name);
    CHECK_NOTHROW(read_annotations({name, {}}, presets));
  }
  const Annotations llama = read_annotations({"megatron_llama", {"tied_to=wte.weight", "loss_scale=1"}}, presets);
  REQUIRE(llama.tied.size() == 1);
  CHECK(llama.tied[0].of == "wte.weight");
  CHECK(llama.loss_scale->numerator.empty());
}

TEST_CASE("presets that are cut off or garbled anywhere are refused or read, never a crash") {
  const fs::path presets = fs::path(TTRACE_SOURCE_DIR) / "annotations";
  std::ifstream file(presets / "megatron_llama.yaml");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(text.size() > 1000);
  for (std::size_t at = 0; at < text.size(); at += 11) {
    for (std::string garbled : {text.substr(0, at), text}) {
      if (garbled.size() > at) garbled[at] = "{}[]:*&!\n\"'%$~"[at % 14];
      try {
        parse_annotations(garbled, "llama.yaml", presets);
      } catch (const InputError&) {
      }
    }
  }
}

TEST_SUITE_END();
