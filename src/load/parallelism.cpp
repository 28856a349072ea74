#include "load/parallelism.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "load/annotation_yaml.h"
#include "ttrace/mesh.h"

namespace ttrace {
namespace {

using namespace annotation_yaml;

constexpr std::int64_t kMaxLayers = 1'000'000;     // far above any model
constexpr std::size_t kMaxVirtualStages = 65'536;  // far above any pipeline

void read_microbatches(const YAML::Node& node, const Place& place, int line, Annotations& annotations) {
  constexpr std::string_view kExpected = "axis and order";
  annotations.microbatch_source = {place.file, line};
  annotations.microbatch_axis = Annotations().microbatch_axis;
  annotations.microbatch_order = Annotations().microbatch_order;
  for (const auto& [key, at, value] : items_of(node, place, line, kExpected)) {
    if (key == "axis") {
      annotations.microbatch_axis = word_of(value, place.inside(key), at, "an axis");
    } else if (key == "order") {
      const std::string word = word_of(value, place.inside(key), at, "interleaved or blocked");
      if (word != "interleaved" && word != "blocked") {
        fail(place.inside(key), at, fmt::format("'{}'; expected interleaved or blocked", word));
      }
      annotations.microbatch_order = word == "blocked" ? MicrobatchOrder::kBlocked : MicrobatchOrder::kInterleaved;
    } else {
      fail(place, at, fmt::format("unknown key '{}'; expected {}", key, kExpected));
    }
  }
}

std::int64_t layer_count(const YAML::Node& node, const Place& place, int line) {
  return integer_of(node, place, line, 0, kMaxLayers, "a number of layers");
}

bool truth_of(const YAML::Node& node, const Place& place, int line) {
  const std::string word = word_of(node, place, line, "true or false");
  if (word != "true" && word != "false") fail(place, line, fmt::format("'{}'; expected true or false", word));
  return word == "true";
}

std::vector<std::int64_t> read_per_stage(const YAML::Node& node, const Place& place, int line) {
  if (!node.IsSequence() || node.size() == 0 || node.size() > kMaxVirtualStages) {
    fail(place, line, "no list of layers; expected one number for each stage (and chunk), as in [3, 5, 4]");
  }
  std::vector<std::int64_t> layers;
  for (const YAML::Node& stage : node) layers.push_back(layer_count(stage, place, line));
  return layers;
}

// False when `key` is none of those that say how uneven the stages are.
bool read_unevenness(const Item& item, const Place& place, PipelineRule& rule) {
  const Place inside = place.inside(item.key);
  if (item.key == "first") {
    rule.first = layer_count(item.value, inside, item.line);
  } else if (item.key == "last") {
    rule.last = layer_count(item.value, inside, item.line);
  } else if (item.key == "embedding") {
    rule.embedding = truth_of(item.value, inside, item.line);
  } else if (item.key == "head") {
    rule.head = truth_of(item.value, inside, item.line);
  } else if (item.key == "per_stage") {
    rule.per_stage = read_per_stage(item.value, inside, item.line);
  } else {
    return false;
  }
  return true;
}

void read_pipeline(const YAML::Node& node, const Place& place, int line, Annotations& annotations) {
  constexpr std::string_view kExpected =
      "layers (decoder.layers), and axis, first, last, embedding, head or per_stage where they apply";
  PipelineRule rule;
  rule.source = {place.file, line};
  for (const Item& item : items_of(node, place, line, kExpected)) {
    if (item.key == "axis") {
      rule.axis = word_of(item.value, place.inside(item.key), item.line, "an axis");
    } else if (item.key == "layers") {
      rule.layers = word_of(item.value, place.inside(item.key), item.line, "what comes before a layer's number");
    } else if (!read_unevenness(item, place, rule)) {
      fail(place, item.line, fmt::format("unknown key '{}'; expected {}", item.key, kExpected));
    }
  }
  if (rule.layers.empty()) fail(place, line, fmt::format("no layers; expected {}", kExpected));
  const int ways = (rule.first || rule.last ? 1 : 0) + (rule.embedding || rule.head ? 1 : 0) + !rule.per_stage.empty();
  if (ways > 1) {
    fail(place, line,
         "divides the layers in several ways; expected first and last, or embedding and head, or per_stage");
  }
  annotations.pipeline = rule;
}

void read_experts(const YAML::Node& node, const Place& place, int line, Annotations& annotations) {
  constexpr std::string_view kExpected = "layers (mlp.experts.local_experts) and, if not ep, axis";
  ExpertRule rule;
  rule.source = {place.file, line};
  for (const auto& [key, at, value] : items_of(node, place, line, kExpected)) {
    if (key == "axis") {
      rule.axis = word_of(value, place.inside(key), at, "an axis");
    } else if (key == "layers") {
      rule.layers = word_of(value, place.inside(key), at, "what comes before an expert's number");
    } else {
      fail(place, at, fmt::format("unknown key '{}'; expected {}", key, kExpected));
    }
  }
  if (rule.layers.empty()) fail(place, line, fmt::format("no layers; expected {}", kExpected));
  annotations.experts = rule;
}

// `output_layer.weight: embedding.word_embeddings.weight`. No name stands on both sides.
void read_tied(const YAML::Node& node, const Place& place, int line, Annotations& annotations) {
  constexpr std::string_view kExpected = "a parameter's name on a stage and the reference's name of it";
  annotations.tied.clear();
  for (const auto& [name, at, value] : items_of(node, place, line, kExpected)) {
    const std::string of = word_of(value, place.inside(name), at, "the reference's name of it");
    for (const std::string& text : {name, of}) {
      if (text.find_first_of("*?[:#") != text.npos) {
        fail(place, at, fmt::format("'{}'; expected a name without wildcards", text));
      }
    }
    annotations.tied.push_back({name, of, {place.file, at}});
  }
  for (const TiedRule& rule : annotations.tied) {
    for (const TiedRule& other : annotations.tied) {
      if (matches(rule.name, other.of)) {
        fail(place, rule.source.line, fmt::format("'{}' is tied and is tied to; expected it on one side", rule.name));
      }
    }
  }
}

// `dp`, `dp*cp`, `1/dp`, `cp/dp`: factors, each after a `*` or a `/`.
Factor read_factor(const std::string& text, const Place& place, int line) {
  Factor factor;
  factor.source = {place.file, line};
  bool divides = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of("*/", begin), text.size());
    std::string word = text.substr(begin, end - begin);
    word.erase(0, std::min(word.find_first_not_of(' '), word.size()));
    word.erase(word.find_last_not_of(' ') + 1);
    if (word != "1" && !is_axis_name(word)) {
      fail(place, line, fmt::format("'{}'; expected axes multiplied or divided, as in dp, dp*cp or 1/dp", text));
    }
    if (word != "1") (divides ? factor.denominator : factor.numerator).push_back(word);
    divides = end < text.size() && text[end] == '/';
    begin = end + 1;
  }
  return factor;
}

}  // namespace

void read_parallelism(const Item& section, const Place& file, Annotations& annotations) {
  constexpr std::string_view kExpected = "microbatches, pipeline, tied, experts or loss_scale";
  const Place place{file.file, fmt::format("'{}'", kParallelism), file.parameters};
  for (const auto& [key, at, value] : items_of(section.value, place, section.line, kExpected)) {
    const Place inside = place.inside(key);
    if (key == "microbatches") {
      read_microbatches(value, inside, at, annotations);
    } else if (key == "pipeline") {
      read_pipeline(value, inside, at, annotations);
    } else if (key == "tied") {
      read_tied(value, inside, at, annotations);
    } else if (key == "experts") {
      read_experts(value, inside, at, annotations);
    } else if (key == "loss_scale") {
      annotations.loss_scale = read_factor(word_of(value, inside, at, "a factor, as in dp or 1/dp"), inside, at);
    } else {
      fail(place, at, fmt::format("unknown key '{}'; expected {}", key, kExpected));
    }
  }
}

}  // namespace ttrace
