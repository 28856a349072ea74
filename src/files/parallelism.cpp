#include "files/parallelism.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/factor.h"
#include "base/layout.h"
#include "base/mesh.h"
#include "files/annotation_yaml.h"

namespace ttrace {
namespace {

using namespace annotation_yaml;

constexpr std::int64_t kMaxLayers = 1'000'000;     // far above any model
constexpr std::size_t kMaxVirtualStages = 65'536;  // far above any pipeline
constexpr std::size_t kMaxTied = 1024;             // far above any model; each is held against each

// Reads an axis, or a list of axes, each once.
std::vector<std::string> read_axes(const YamlNode& node, const Context& context, int line, std::string_view expected) {
  if (!node.is_list()) return {read_word(node, context, line, expected)};
  const std::size_t size = node.items().size();
  if (size > kMaxAxes) fail(context, line, fmt::format("{} axes; expected at most {}", size, kMaxAxes));
  std::vector<std::string> axes;
  for (const YamlNode& item : node.items()) {
    axes.push_back(read_word(item, context, line, expected));
    if (std::count(axes.begin(), axes.end(), axes.back()) > 1) {
      fail(context, line, fmt::format("'{}' appears twice; expected it once", axes.back()));
    }
  }
  if (axes.empty()) fail(context, line, fmt::format("no axis; expected {}", expected));
  return axes;
}

MicrobatchOrder read_order(const YamlNode& node, const Context& context, int line) {
  constexpr std::string_view kExpected = "interleaved, blocked or slices";
  const std::string word = read_word(node, context, line, kExpected);
  if (word == "interleaved") return MicrobatchOrder::kInterleaved;
  if (word == "blocked") return MicrobatchOrder::kBlocked;
  if (word == "slices") return MicrobatchOrder::kSlices;
  fail(context, line, fmt::format("'{}'; expected {}", word, kExpected));
}

void read_microbatches(const YamlNode& node, const Context& context, int line, Annotations& annotations) {
  constexpr std::string_view kExpected = "axis, order and layout";
  MicrobatchRule rule;
  rule.source = {context.file, line};
  for (const auto& [key, at, value] : read_items(node, context, line, kExpected)) {
    const Context inside = context.inside(key);
    if (key == "axis") {
      rule.axes = read_axes(value, inside, at, "an axis, or a list of axes, outermost first");
    } else if (key == "order") {
      rule.order = read_order(value, inside, at);
    } else if (key == "layout") {
      const std::vector<std::string> names = layout_names(&Layout::of_slices);
      const std::string expected = fmt::format("{}", fmt::join(names, " or "));
      rule.layout = read_word(value, inside, at, expected);
      if (std::find(names.begin(), names.end(), rule.layout) == names.end()) {
        fail(inside, at, fmt::format("'{}'; expected {}", rule.layout, expected));
      }
    } else {
      fail(context, at, fmt::format("unknown key '{}'; expected {}", key, kExpected));
    }
  }
  if (!rule.layout.empty() && rule.order != MicrobatchOrder::kSlices) {
    fail(context, line, "a layout without 'order: slices'; expected one of slices only");
  }
  annotations.microbatches = std::move(rule);
}

std::int64_t layer_count(const YamlNode& node, const Context& context, int line) {
  return read_integer(node, context, line, 0, kMaxLayers, "a number of layers");
}

bool read_bool(const YamlNode& node, const Context& context, int line) {
  const std::string word = read_word(node, context, line, "true or false");
  if (word != "true" && word != "false") fail(context, line, fmt::format("'{}'; expected true or false", word));
  return word == "true";
}

std::vector<std::int64_t> read_per_stage(const YamlNode& node, const Context& context, int line) {
  const std::size_t size = node.items().size();
  if (size == 0 || size > kMaxVirtualStages) {
    fail(context, line, "no list of layers; expected one number for each stage (and chunk), as in [3, 5, 4]");
  }
  std::vector<std::int64_t> layers;
  for (const YamlNode& stage : node.items()) layers.push_back(layer_count(stage, context, line));
  return layers;
}

// Reads one of the keys that say how uneven the stages are; returns false for another key.
bool read_unevenness(const Item& item, const Context& context, PipelineRule& rule) {
  const Context inside = context.inside(item.key);
  if (item.key == "first") {
    rule.first = layer_count(item.value, inside, item.line);
  } else if (item.key == "last") {
    rule.last = layer_count(item.value, inside, item.line);
  } else if (item.key == "embedding") {
    rule.embedding = read_bool(item.value, inside, item.line);
  } else if (item.key == "head") {
    rule.head = read_bool(item.value, inside, item.line);
  } else if (item.key == "per_stage") {
    rule.per_stage = read_per_stage(item.value, inside, item.line);
  } else {
    return false;
  }
  return true;
}

void read_pipeline(const YamlNode& node, const Context& context, int line, Annotations& annotations) {
  constexpr std::string_view kExpected =
      "layers (decoder.layers), and axis, first, last, embedding, head or per_stage "
      "where they apply; or names: global, and axis or chunks";
  PipelineRule rule;
  rule.source = {context.file, line};
  for (const Item& item : read_items(node, context, line, kExpected)) {
    if (item.key == "axis") {
      rule.axis = read_word(item.value, context.inside(item.key), item.line, "an axis");
    } else if (item.key == "layers") {
      rule.layers = read_word(item.value, context.inside(item.key), item.line, "what comes before a layer's number");
    } else if (item.key == "names") {
      const std::string word = read_word(item.value, context.inside(item.key), item.line, "global");
      if (word != "global") fail(context.inside(item.key), item.line, fmt::format("'{}'; expected global", word));
      rule.global_names = true;
    } else if (item.key == "chunks") {
      const std::string word = read_word(item.value, context.inside(item.key), item.line, "v");
      if (word != "v") fail(context.inside(item.key), item.line, fmt::format("'{}'; expected v", word));
      rule.v_shaped = true;
    } else if (!read_unevenness(item, context, rule)) {
      fail(context, item.line, fmt::format("unknown key '{}'; expected {}", item.key, kExpected));
    }
  }
  if (rule.layers.empty() != rule.global_names) {
    fail(context, line,
         fmt::format("{}; expected {}", rule.global_names ? "both layers and names" : "no layers", kExpected));
  }
  if (rule.v_shaped && !rule.global_names) fail(context, line, "chunks without 'names: global'; expected it");
  const int ways = (rule.first || rule.last ? 1 : 0) + (rule.embedding || rule.head ? 1 : 0) + !rule.per_stage.empty();
  if (ways > 1) {
    fail(context, line,
         "divides the layers in several ways; expected first and last, or embedding and head, or per_stage");
  }
  if (ways > 0 && rule.global_names) {
    fail(context, line, "divides the layers, whose names are global; expected names, axis and chunks");
  }
  annotations.pipeline = rule;
}

void read_experts(const YamlNode& node, const Context& context, int line, Annotations& annotations) {
  constexpr std::string_view kExpected = "layers (mlp.experts.local_experts) and, if not ep, axis";
  ExpertRule rule;
  rule.source = {context.file, line};
  for (const auto& [key, at, value] : read_items(node, context, line, kExpected)) {
    if (key == "axis") {
      rule.axis = read_word(value, context.inside(key), at, "an axis");
    } else if (key == "layers") {
      rule.layers = read_word(value, context.inside(key), at, "what comes before an expert's number");
    } else {
      fail(context, at, fmt::format("unknown key '{}'; expected {}", key, kExpected));
    }
  }
  if (rule.layers.empty()) fail(context, line, fmt::format("no layers; expected {}", kExpected));
  annotations.experts = rule;
}

// Reads entries like `output_layer.weight: embedding.word_embeddings.weight`. No name may stand on both sides.
void read_tied(const YamlNode& node, const Context& context, int line, Annotations& annotations) {
  constexpr std::string_view kExpected = "a parameter's name on a stage and the reference's name of it";
  annotations.tied.clear();
  for (const auto& [name, at, value] : read_items(node, context, line, kExpected)) {
    const std::string of = read_word(value, context.inside(name), at, "the reference's name of it");
    for (const std::string& text : {name, of}) {
      if (text.find_first_of("*?[:#") != text.npos) {
        fail(context, at, fmt::format("'{}'; expected a name without wildcards", text));
      }
    }
    annotations.tied.push_back({name, of, {context.file, at}});
    if (annotations.tied.size() > kMaxTied) fail(context, at, fmt::format("more than {}; expected fewer", kMaxTied));
  }
  for (const TiedRule& rule : annotations.tied) {
    for (const TiedRule& other : annotations.tied) {
      if (matches(rule.name, other.of)) {
        fail(context, rule.source.line, fmt::format("'{}' is tied and is tied to; expected it on one side", rule.name));
      }
    }
  }
}

// Parses sizes that are multiplied or divided: `dp`, `dp*cp`, `1/dp`, `microbatches*dp`, `dp*4`.
Factor read_factor(const std::string& text, const Context& context, int line) {
  Factor factor;
  factor.source = {context.file, line};
  bool divides = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of("*/", begin), text.size());
    std::string word = text.substr(begin, end - begin);
    word.erase(0, std::min(word.find_first_not_of(' '), word.size()));
    word.erase(word.find_last_not_of(' ') + 1);
    if (!factor_number(word) && !is_axis_name(word)) {
      fail(context, line, fmt::format("'{}'; expected axes multiplied or divided, as in dp, dp*cp or 1/dp", text));
    }
    if (word != "1") (divides ? factor.denominator : factor.numerator).push_back(word);
    divides = end < text.size() && text[end] == '/';
    begin = end + 1;
  }
  return factor;
}

// Reads `tp=2,dp=2`. Whether the sizes are those of a trace is left to who applies them.
DeclaredAxes read_mesh(const YamlNode& node, const Context& context, int line) {
  const std::string text = read_word(node, context, line, "axes, as in tp=2,dp=2");
  DeclaredAxes axes{text, fmt::format("{}:{}: {}", context.file, line, context.subject)};
  parse_mesh(axes.text, ranks_of_mesh(axes.text), axes.where);
  return axes;
}

// Reads `[param_grad, main_grad]`.
std::set<Kind> read_narrower(const YamlNode& node, const Context& context, int line) {
  constexpr std::string_view kExpected = "a list of a parameter's kinds, as in [param_grad, main_grad]";
  if (!node.is_list()) fail(context, line, fmt::format("no list; expected {}", kExpected));
  std::set<Kind> kinds;
  for (const YamlNode& item : node.items()) {
    const std::string word = read_word(item, context, line, kExpected);
    const std::optional<Kind> kind = kind_from_name(word);
    if (!kind || !is_parameter_kind(*kind)) fail(context, line, fmt::format("'{}'; expected {}", word, kExpected));
    kinds.insert(*kind);
  }
  return kinds;
}

constexpr std::string_view kExpectedKeys =
    "microbatches, pipeline, tied, experts, loss_scale, axes, known_axes or narrower";

Context section_of(const Context& file) { return {file.file, fmt::format("'{}'", kParallelism), file.parameters}; }

}  // namespace

void read_parallelism_key(const Item& item, const Context& file, Annotations& annotations) {
  const auto& [key, at, value] = item;
  const Context context = section_of(file), inside = context.inside(key);
  if (key == "microbatches") {
    read_microbatches(value, inside, at, annotations);
  } else if (key == "pipeline") {
    read_pipeline(value, inside, at, annotations);
  } else if (key == "tied") {
    read_tied(value, inside, at, annotations);
  } else if (key == "experts") {
    read_experts(value, inside, at, annotations);
  } else if (key == "loss_scale") {
    annotations.loss_scale = read_factor(read_word(value, inside, at, "a factor, as in dp or 1/dp"), inside, at);
  } else if (key == "axes") {
    annotations.axes = read_mesh(value, inside, at);
  } else if (key == "narrower") {
    annotations.narrower = read_narrower(value, inside, at);
  } else if (key == "known_axes") {
    annotations.known_axes = read_axes(value, inside, at, "an axis, or a list of axes");
  } else {
    fail(context, at, fmt::format("unknown key '{}'; expected {}", key, kExpectedKeys));
  }
}

void read_parallelism(const Item& section, const Context& file, Annotations& annotations) {
  for (const Item& item : read_items(section.value, section_of(file), section.line, kExpectedKeys)) {
    read_parallelism_key(item, file, annotations);
  }
}

}  // namespace ttrace
