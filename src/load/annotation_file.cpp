#include "ttrace/load/annotation_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "ttrace/align/layout.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

constexpr std::string_view kParallelism = "parallelism";  // the one top-level key that is not a pattern
constexpr std::string_view kDimSuffix = "_dim";
constexpr std::int64_t kMaxNumber = std::int64_t{1} << 40;  // of elements; far more than of anything else
constexpr std::size_t kMaxNumbers = 1024;

// What a message is about: `gpt.yaml:14: 'linear_qkv': output`.
struct Place {
  std::string file;
  std::string subject;  // quoted, with what is inside it after colons

  Place inside(std::string_view key) const { return {file, fmt::format("{}: {}", subject, key)}; }
};

[[noreturn]] void fail(const Place& place, int line, const std::string& what) {
  throw InputError(
      fmt::format("{}:{}: {}{}{}", place.file, line, place.subject, place.subject.empty() ? "" : ": ", what));
}

// One entry of a mapping. The line is the key's: a block's own is that of what it holds.
struct Item {
  std::string key;
  int line = 0;
  YAML::Node value;
};

// In the order written. yaml-cpp keeps a key that is written twice, and finds only one of the two.
std::vector<Item> items_of(const YAML::Node& node, const Place& place, int line, std::string_view expected) {
  if (!node.IsMap()) fail(place, line, fmt::format("not a mapping; expected {}", expected));
  std::vector<Item> items;
  std::set<std::string> seen;
  for (const auto& item : node) {
    if (!item.first.IsScalar() || item.first.Scalar().empty()) {
      fail(place, item.first.Mark().line + 1, fmt::format("a key that is no word; expected {}", expected));
    }
    const std::string& key = item.first.Scalar();
    const int at = item.first.Mark().line + 1;
    if (!seen.insert(key).second) fail(place, at, fmt::format("'{}' appears twice; expected it once", key));
    items.push_back({key, at, item.second});
  }
  return items;
}

std::string word_of(const YAML::Node& node, const Place& place, int line, std::string_view expected) {
  if (!node.IsScalar() || node.Scalar().empty()) fail(place, line, fmt::format("no value; expected {}", expected));
  return node.Scalar();
}

std::int32_t dim_of(const YAML::Node& node, const Place& place, int line) {
  constexpr int kMax = static_cast<int>(kMaxDims);
  const std::string expected = fmt::format("a dimension from {} to {}", -kMax, kMax - 1);
  const std::string word = word_of(node, place, line, expected);
  std::int32_t dim = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), dim);
  if (error != std::errc() || end != word.data() + word.size() || dim < -kMax || dim >= kMax) {
    fail(place, line, fmt::format("'{}'; expected {}", word, expected));
  }
  return dim;
}

bool is_axis_name(std::string_view word) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !word.empty() && word[0] >= 'a' && word[0] <= 'z' && std::all_of(word.begin(), word.end(), allowed);
}

std::string kind_names() {
  std::string names;
  for (std::uint8_t kind = kKindFirst; kind <= kKindLast; ++kind) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(static_cast<Kind>(kind)));
  }
  return names;
}

std::int64_t number_of(const YAML::Node& node, const Place& place, int line) {
  const std::string expected = fmt::format("a number from 1 to {}", kMaxNumber);
  const std::string word = word_of(node, place, line, expected);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() || number < 1 || number > kMaxNumber) {
    fail(place, line, fmt::format("'{}'; expected {}", word, expected));
  }
  return number;
}

// A number, or a list of them.
std::vector<std::int64_t> numbers_of(const YAML::Node& node, const Place& place, int line) {
  if (!node.IsSequence()) return {number_of(node, place, line)};
  std::vector<std::int64_t> numbers;
  for (const auto& item : node) numbers.push_back(number_of(item, place, line));
  if (numbers.empty() || numbers.size() > kMaxNumbers) {
    fail(place, line, fmt::format("{} numbers; expected 1 to {}", numbers.size(), kMaxNumbers));
  }
  return numbers;
}

bool is_layout_option(std::string_view name) {
  const std::vector<std::string> layouts = layout_names();
  return std::any_of(layouts.begin(), layouts.end(), [&](const std::string& layout) {
    const std::vector<std::string>& options = find_layout(layout)->options;
    return std::find(options.begin(), options.end(), name) != options.end();
  });
}

// `{dim: d}`, and beside it the layout with its options, padding, packed sequences.
AxisPlacement read_shard(const YAML::Node& value, const Place& place, int line) {
  constexpr std::string_view kExpected = "dim and, if not contiguous, layout";
  AxisPlacement axis;
  axis.placement = Placement::kShard;
  bool has_dim = false;
  for (const auto& [name, at, node] : items_of(value, place, line, kExpected)) {
    const Place inside = place.inside(name);
    if (name == "dim") {
      axis.dim = dim_of(node, inside, at);
      has_dim = true;
    } else if (name == "layout") {
      axis.layout = word_of(node, inside, at, "the name of a layout");
    } else if (name == "unpadded") {
      const bool reference = node.IsScalar() && node.Scalar() == "reference";
      axis.unpadded = reference ? kReferenceExtent : number_of(node, inside, at);
    } else if (name == "cu_seqlens") {
      axis.cu_seqlens = word_of(node, inside, at, "the name of the recorded tensor");
    } else if (name == "cu_seqlens_padded") {
      axis.cu_seqlens_padded = word_of(node, inside, at, "the name of the recorded tensor");
    } else if (is_layout_option(name)) {
      axis.options[name] = numbers_of(node, inside, at);
    } else {
      fail(place, at, fmt::format("unknown key '{}'; expected {}", name, kExpected));
    }
  }
  if (!has_dim) fail(place, line, fmt::format("no dim; expected {}", kExpected));
  if (axis.cu_seqlens.empty() && !axis.cu_seqlens_padded.empty()) {
    fail(place, line, "cu_seqlens_padded without cu_seqlens; expected both");
  }
  return axis;
}

// `<axis>_dim: d`, `<axis>: replicate`, `<axis>: partial`, `<axis>: {dim: d, layout: l}`.
AxisPlacement read_axis(const std::string& key, const YAML::Node& value, const Place& place, int line) {
  AxisPlacement axis;
  axis.axis = key;
  if (key.ends_with(kDimSuffix)) {
    axis.axis = key.substr(0, key.size() - kDimSuffix.size());
    axis.placement = Placement::kShard;
    axis.dim = dim_of(value, place.inside(key), line);
  } else if (value.IsMap()) {
    axis = read_shard(value, place.inside(key), line);
    axis.axis = key;
  } else {
    const std::string expected = fmt::format("replicate, partial, {{dim: d}}, or {}_dim: d", key);
    const std::string word = word_of(value, place.inside(key), line, expected);
    if (word != "replicate" && word != "partial")
      fail(place.inside(key), line, fmt::format("'{}'; expected {}", word, expected));
    axis.placement = word == "partial" ? Placement::kPartial : Placement::kReplicate;
  }
  axis.line = line;
  if (!is_axis_name(axis.axis)) {
    fail(place, line, fmt::format("unknown key '{}'; expected <axis>_dim, <axis>, or one of {}", key, kind_names()));
  }
  return axis;
}

void add_axis(std::vector<AxisPlacement>& axes, AxisPlacement axis, const Place& place) {
  for (const AxisPlacement& other : axes) {
    if (other.axis == axis.axis) {
      fail(place, axis.line, fmt::format("axis '{}' appears twice; expected it once", axis.axis));
    }
  }
  axes.push_back(std::move(axis));
}

RowRule read_rows(const YAML::Node& node, const Place& place, int line) {
  constexpr std::string_view kExpected = "ids, of and logits";
  RowRule rows;
  for (const auto& [key, at, value] : items_of(node, place, line, kExpected)) {
    std::string* name = key == "ids" ? &rows.ids : key == "of" ? &rows.of : key == "logits" ? &rows.logits : nullptr;
    if (name == nullptr) fail(place, at, fmt::format("unknown key '{}'; expected {}", key, kExpected));
    *name = word_of(value, place.inside(key), at, "the name of a recorded tensor");
  }
  if (rows.ids.empty() || rows.of.empty() || rows.logits.empty()) {
    fail(place, line, fmt::format("something is missing; expected {}", kExpected));
  }
  return rows;
}

void read_axes(const YAML::Node& node, const Place& place, int line, AnnotationRule& rule) {
  for (const auto& [axis, at, placement] : items_of(node, place, line, "axis keys (tp_dim: 0), rows, or local")) {
    if (axis == "rows") {
      rule.rows = read_rows(placement, place.inside(axis), at);
    } else {
      add_axis(rule.axes, read_axis(axis, placement, place, at), place);
    }
  }
}

void read_rule(const std::string& pattern, const YAML::Node& node, int line, Annotations& annotations) {
  const Place place{annotations.path, fmt::format("'{}'", pattern)};
  const std::string expected = "axis keys (tp_dim: 0) or kinds (output: {tp_dim: 0})";
  AnnotationRule parameters{pattern, std::nullopt, {}, line};
  const std::vector<Item> items = items_of(node, place, line, expected);
  if (items.empty()) fail(place, line, fmt::format("says nothing; expected {}", expected));
  for (const auto& [key, at, value] : items) {
    if (const auto kind = kind_from_name(key)) {
      AnnotationRule rule{pattern, kind, {}, line, value.IsScalar() && value.Scalar() == "local"};
      const Place inside = place.inside(key);
      if (!rule.local) read_axes(value, inside, at, rule);
      annotations.rules.push_back(std::move(rule));
    } else {
      add_axis(parameters.axes, read_axis(key, value, place, at), place);
    }
  }
  if (!parameters.axes.empty()) annotations.rules.push_back(std::move(parameters));
}

void read_microbatches(const YAML::Node& node, const Place& place, int line, Annotations& annotations) {
  constexpr std::string_view kExpected = "axis and order";
  annotations.microbatch_line = line;
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

void read_pipeline(const YAML::Node& node, const Place& place, int line, Annotations& annotations) {
  constexpr std::string_view kExpected = "layers (decoder.layers) and, if not pp, axis";
  PipelineRule rule;
  rule.line = line;
  for (const auto& [key, at, value] : items_of(node, place, line, kExpected)) {
    if (key == "axis") {
      rule.axis = word_of(value, place.inside(key), at, "an axis");
    } else if (key == "layers") {
      rule.layers = word_of(value, place.inside(key), at, "what comes before a layer's number");
    } else {
      fail(place, at, fmt::format("unknown key '{}'; expected {}", key, kExpected));
    }
  }
  if (rule.layers.empty()) fail(place, line, fmt::format("no layers; expected {}", kExpected));
  annotations.pipeline = rule;
}

// `dp`, `dp*cp`, `1/dp`, `cp/dp`: factors, each after a `*` or a `/`.
Factor read_factor(const std::string& text, const Place& place, int line) {
  Factor factor;
  factor.line = line;
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

void read_parallelism(const YAML::Node& node, int line, Annotations& annotations) {
  constexpr std::string_view kExpected = "microbatches, pipeline or loss_scale";
  const Place place{annotations.path, fmt::format("'{}'", kParallelism)};
  for (const auto& [key, at, value] : items_of(node, place, line, kExpected)) {
    const Place inside = place.inside(key);
    if (key == "microbatches") {
      read_microbatches(value, inside, at, annotations);
    } else if (key == "pipeline") {
      read_pipeline(value, inside, at, annotations);
    } else if (key == "loss_scale") {
      annotations.loss_scale = read_factor(word_of(value, inside, at, "a factor, as in dp or 1/dp"), inside, at);
    } else {
      fail(place, at, fmt::format("unknown key '{}'; expected {}", key, kExpected));
    }
  }
}

}  // namespace

Annotations parse_annotations(const std::string& text, const std::string& where) {
  Annotations annotations;
  annotations.path = where;
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    const Place file{where, ""};
    if (documents.size() > 1) fail(file, documents[1].Mark().line + 1, "a second YAML document; expected one");
    if (documents.empty() || documents[0].IsNull()) return annotations;
    for (const auto& [key, at, value] : items_of(documents[0], file, 1, "patterns and their rules")) {
      if (key == kParallelism) {
        read_parallelism(value, at, annotations);
      } else {
        read_rule(key, value, at, annotations);
      }
    }
  } catch (const YAML::Exception& error) {
    const std::string line = error.mark.is_null() ? "" : fmt::format(":{}", error.mark.line + 1);
    throw InputError(fmt::format("{}{}: {}; expected YAML as in annotations/README.md", where, line, error.msg));
  }
  return annotations;
}

Annotations read_annotations(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored)) {
    throw InputError(fmt::format("{}: cannot be read; expected an annotation file", path.string()));
  }
  return parse_annotations(std::string(std::istreambuf_iterator<char>(file), {}), path.string());
}

}  // namespace ttrace
