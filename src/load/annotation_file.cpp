#include "ttrace/load/annotation_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "load/annotation_documents.h"
#include "load/annotation_parameters.h"
#include "load/annotation_yaml.h"
#include "load/parallelism.h"
#include "ttrace/align/layout.h"
#include "ttrace/error.h"
#include "ttrace/mesh.h"

namespace ttrace {
namespace {

using namespace annotation_yaml;

constexpr std::string_view kDimSuffix = "_dim";
constexpr std::string_view kMicrobatch = "microbatch";  // the keys of a rule that are no axis and no kind
constexpr std::string_view kRows = "rows";
constexpr std::string_view kOptional = "optional";
constexpr std::string_view kParameters = "parameters";      // at the top level, beside patterns
constexpr std::int64_t kMaxNumber = std::int64_t{1} << 40;  // of elements; far more than of anything else
constexpr std::size_t kMaxNumbers = 1024;

std::int32_t dim_of(const YAML::Node& node, const Place& place, int line) {
  constexpr int kMax = static_cast<int>(kMaxDims);
  const std::string expected = fmt::format("a dimension from {} to {}", -kMax, kMax - 1);
  return static_cast<std::int32_t>(integer_of(node, place, line, -kMax, kMax - 1, expected));
}

std::string kind_names() {
  std::string names;
  for (std::uint8_t kind = kKindFirst; kind <= kKindLast; ++kind) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(static_cast<Kind>(kind)));
  }
  return names;
}

std::int64_t number_of(const YAML::Node& node, const Place& place, int line) {
  return integer_of(node, place, line, 1, kMaxNumber, fmt::format("a number from 1 to {}", kMaxNumber));
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

// `microbatch: partial`, of a parameter (`kind` empty) or under a kind.
bool read_microbatch(const YAML::Node& node, std::optional<Kind> kind, const Place& place, int line) {
  constexpr std::string_view kExpected = "partial";
  const std::string word = word_of(node, place, line, kExpected);
  if (word != kExpected) fail(place, line, fmt::format("'{}'; expected {}", word, kExpected));
  if (kind && !is_parameter_kind(*kind) && *kind != Kind::kScalar) {
    fail(place, line, "an activation belongs to one micro-batch; expected it for a parameter's kind or a scalar");
  }
  return true;
}

// What a rule says of the parameter, or of one kind.
void read_key(const Item& item, const Place& place, AnnotationRule& rule) {
  if (item.key == kMicrobatch) {
    rule.sum_microbatches = read_microbatch(item.value, rule.kind, place.inside(item.key), item.line);
  } else if (item.key == kRows && rule.kind) {
    rule.rows = read_rows(item.value, place.inside(item.key), item.line);
  } else {
    add_axis(rule.axes, read_axis(item.key, item.value, place, item.line), place);
  }
}

void read_keys(const Item& kind, const Place& place, AnnotationRule& rule) {
  for (const Item& item : items_of(kind.value, place, kind.line, "axis keys (tp_dim: 0), rows, or local")) {
    read_key(item, place, rule);
  }
}

// `optional: true` beside what a pattern says of its tensors.
bool read_optional(const Item& item, const Place& place) {
  constexpr std::string_view kExpected = "true";
  const std::string word = word_of(item.value, place.inside(item.key), item.line, kExpected);
  if (word != kExpected) fail(place.inside(item.key), item.line, fmt::format("'{}'; expected {}", word, kExpected));
  return true;
}

void read_rule(const Item& entry, const Place& file, Annotations& annotations) {
  const auto& [pattern, line, node] = entry;
  const Place place{file.file, fmt::format("'{}'", pattern), file.parameters};
  const std::string expected = "axis keys (tp_dim: 0) or kinds (output: {tp_dim: 0})";
  AnnotationRule parameters{pattern, std::nullopt, {}, {file.file, line}};
  const std::vector<Item> items = items_of(node, place, line, expected);
  const std::size_t before = annotations.rules.size();
  bool optional = false;
  for (const Item& item : items) {
    if (item.key == kOptional) {
      optional = read_optional(item, place);
    } else if (const auto kind = kind_from_name(item.key)) {
      AnnotationRule rule{pattern, kind, {}, {file.file, line}};
      const Place inside = place.inside(item.key);
      rule.local = item.value.IsScalar() && item.value.Scalar() == "local";
      if (!rule.local) read_keys(item, inside, rule);
      annotations.rules.push_back(std::move(rule));
    } else {
      read_key(item, place, parameters);
    }
  }
  if (!parameters.axes.empty() || parameters.sum_microbatches) annotations.rules.push_back(std::move(parameters));
  if (annotations.rules.size() == before) fail(place, line, fmt::format("says nothing; expected {}", expected));
  for (std::size_t i = before; i < annotations.rules.size(); ++i) annotations.rules[i].optional = optional;
}

// Reads a rule in place of the one that an included file has for this pattern; null only takes that away.
void replace_rule(const Item& entry, const Place& file, Annotations& annotations) {
  const std::size_t removed =
      std::erase_if(annotations.rules, [&](const AnnotationRule& rule) { return rule.pattern == entry.key; });
  if (removed == 0 || !entry.value.IsNull()) read_rule(entry, file, annotations);
}

Annotations read(const std::vector<Document>& documents, const std::vector<std::string>& settings) {
  Parameters parameters;
  for (const Document& document : documents) {
    for (const Item& item : document.items) {
      if (item.key == kParameters)
        parameters.read(item.value, {document.path, fmt::format("'{}'", kParameters)}, item.line);
    }
  }
  for (const std::string& setting : settings) parameters.set(setting);

  Annotations annotations;
  annotations.path = documents.back().path;
  std::set<std::string> patterns;
  for (const Document& document : documents) {
    annotations.files.push_back(document.path);
    const Place file{document.path, "", &parameters};
    for (const Item& item : document.items) {
      if (item.key == kInclude || item.key == kParameters) continue;
      if (item.key == kParallelism) {
        read_parallelism(item, file, annotations);
      } else if (patterns.insert(item.key).second) {
        read_rule(item, file, annotations);
      } else {
        replace_rule(item, file, annotations);
      }
    }
  }
  parameters.require_used();
  return annotations;
}

}  // namespace

Annotations read_annotations(const AnnotationSource& source, const std::filesystem::path& presets) {
  return read(read_documents(source.file, presets), source.settings);
}

Annotations parse_annotations(const std::string& text, const std::string& where, const std::filesystem::path& presets) {
  return read(parse_documents(text, where, presets), {});
}

std::string including_file(const std::filesystem::path& path, const std::vector<std::string>& settings) {
  YAML::Emitter text;
  text << YAML::BeginMap << YAML::Key << std::string(kInclude) << YAML::Value << path.string();
  text << YAML::Key << std::string(kParameters) << YAML::Value << YAML::BeginMap;
  for (const std::string& setting : settings) {
    const auto [name, value] = split_setting(setting);
    text << YAML::Key << name << YAML::Value << value;
  }
  text << YAML::EndMap << YAML::EndMap;
  return text.c_str();
}

}  // namespace ttrace
