#include "files/annotation_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/layout.h"
#include "base/mesh.h"
#include "files/annotation_documents.h"
#include "files/annotation_parameters.h"
#include "files/annotation_yaml.h"
#include "files/parallelism.h"
#include "text/yaml.h"

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

std::int32_t read_dim(const YamlNode& node, const Context& context, int line) {
  constexpr int kMax = static_cast<int>(kMaxDims);
  const std::string expected = fmt::format("a dimension from {} to {}", -kMax, kMax - 1);
  return static_cast<std::int32_t>(read_integer(node, context, line, -kMax, kMax - 1, expected));
}

std::string kind_names() {
  std::string names;
  for (std::uint8_t kind = kKindFirst; kind <= kKindLast; ++kind) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(static_cast<Kind>(kind)));
  }
  return names;
}

std::int64_t read_number(const YamlNode& node, const Context& context, int line) {
  return read_integer(node, context, line, 1, kMaxNumber, fmt::format("a number from 1 to {}", kMaxNumber));
}

// Reads a number, or a list of numbers.
std::vector<std::int64_t> read_numbers(const YamlNode& node, const Context& context, int line) {
  if (!node.is_list()) return {read_number(node, context, line)};
  std::vector<std::int64_t> numbers;
  for (const YamlNode& item : node.items()) numbers.push_back(read_number(item, context, line));
  if (numbers.empty() || numbers.size() > kMaxNumbers) {
    fail(context, line, fmt::format("{} numbers; expected 1 to {}", numbers.size(), kMaxNumbers));
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

// Reads `{dim: d}` with what may stand beside it: a layout and its options, padding, packed sequences.
AxisPlacement read_shard(const YamlNode& value, const Context& context, int line) {
  constexpr std::string_view kExpected = "dim and, if not contiguous, layout";
  AxisPlacement axis;
  axis.placement = Placement::kShard;
  bool has_dim = false;
  for (const auto& [name, at, node] : read_items(value, context, line, kExpected)) {
    const Context inside = context.inside(name);
    if (name == "dim") {
      axis.dim = read_dim(node, inside, at);
      has_dim = true;
    } else if (name == "layout") {
      axis.layout = read_word(node, inside, at, "the name of a layout");
    } else if (name == "unpadded") {
      const bool reference = node.word() == "reference";
      axis.unpadded = reference ? kReferenceExtent : read_number(node, inside, at);
    } else if (name == "cu_seqlens") {
      axis.cu_seqlens = read_word(node, inside, at, "the name of the recorded tensor");
    } else if (name == "cu_seqlens_padded") {
      axis.cu_seqlens_padded = read_word(node, inside, at, "the name of the recorded tensor");
    } else if (is_layout_option(name)) {
      axis.options[name] = read_numbers(node, inside, at);
    } else {
      fail(context, at, fmt::format("unknown key '{}'; expected {}", name, kExpected));
    }
  }
  if (!has_dim) fail(context, line, fmt::format("no dim; expected {}", kExpected));
  if (axis.cu_seqlens.empty() && !axis.cu_seqlens_padded.empty()) {
    fail(context, line, "cu_seqlens_padded without cu_seqlens; expected both");
  }
  return axis;
}

// Reads `<axis>_dim: d`, `<axis>: replicate`, `<axis>: partial`, `<axis>: mean` or `<axis>: {dim: d, layout: l}`.
AxisPlacement read_axis(const std::string& key, const YamlNode& value, const Context& context, int line) {
  AxisPlacement axis;
  axis.axis = key;
  if (key.ends_with(kDimSuffix)) {
    axis.axis = key.substr(0, key.size() - kDimSuffix.size());
    axis.placement = Placement::kShard;
    axis.dim = read_dim(value, context.inside(key), line);
  } else if (value.is_map()) {
    axis = read_shard(value, context.inside(key), line);
    axis.axis = key;
  } else {
    const std::string expected = fmt::format("replicate, partial, mean, {{dim: d}}, or {}_dim: d", key);
    const std::string word = read_word(value, context.inside(key), line, expected);
    if (word != "replicate" && word != "partial" && word != "mean")
      fail(context.inside(key), line, fmt::format("'{}'; expected {}", word, expected));
    axis.placement = word == "replicate" ? Placement::kReplicate : Placement::kPartial;
    axis.mean = word == "mean";
  }
  axis.line = line;
  if (!is_axis_name(axis.axis)) {
    fail(context, line, fmt::format("unknown key '{}'; expected <axis>_dim, <axis>, or one of {}", key, kind_names()));
  }
  return axis;
}

void add_axis(std::vector<AxisPlacement>& axes, AxisPlacement axis, const Context& context) {
  if (axes.size() == kMaxAxes) fail(context, axis.line, fmt::format("more than {} axes; expected fewer", kMaxAxes));
  for (const AxisPlacement& other : axes) {
    if (other.axis == axis.axis) {
      fail(context, axis.line, fmt::format("axis '{}' appears twice; expected it once", axis.axis));
    }
  }
  axes.push_back(std::move(axis));
}

RowRule read_rows(const YamlNode& node, const Context& context, int line) {
  constexpr std::string_view kExpected = "of, logits, and ids or routing, with or without sources, scores, groups";
  RowRule rows;
  const std::map<std::string_view, std::string*> names{{"ids", &rows.ids},
                                                       {"routing", &rows.routing},
                                                       {"sources", &rows.sources},
                                                       {"of", &rows.of},
                                                       {"logits", &rows.router.logits},
                                                       {"scores", &rows.router.scores},
                                                       {"groups", &rows.router.groups}};
  for (const auto& [key, at, value] : read_items(node, context, line, kExpected)) {
    const auto name = names.find(key);
    if (name == names.end()) fail(context, at, fmt::format("unknown key '{}'; expected {}", key, kExpected));
    *name->second = read_word(value, context.inside(key), at, "the name of a recorded tensor");
  }
  const bool tells_rows = !rows.routing.empty() || (!rows.ids.empty() && rows.sources.empty());
  if (!tells_rows || rows.of.empty() || rows.router.logits.empty()) {
    fail(context, line, fmt::format("something is missing; expected {}", kExpected));
  }
  return rows;
}

// Reads `microbatch: partial`, of a parameter (`kind` empty) or under a kind.
bool read_microbatch(const YamlNode& node, std::optional<Kind> kind, const Context& context, int line) {
  constexpr std::string_view kExpected = "partial";
  const std::string word = read_word(node, context, line, kExpected);
  if (word != kExpected) fail(context, line, fmt::format("'{}'; expected {}", word, kExpected));
  if (kind && !is_parameter_kind(*kind) && *kind != Kind::kScalar) {
    fail(context, line, "an activation belongs to one micro-batch; expected it for a parameter's kind or a scalar");
  }
  return true;
}

// Reads one key that a rule has for the parameter, or under a kind.
void read_key(const Item& item, const Context& context, AnnotationRule& rule) {
  if (item.key == kMicrobatch) {
    rule.sum_microbatches = read_microbatch(item.value, rule.kind, context.inside(item.key), item.line);
  } else if (item.key == kRows && rule.kind) {
    rule.rows = read_rows(item.value, context.inside(item.key), item.line);
  } else {
    add_axis(rule.axes, read_axis(item.key, item.value, context, item.line), context);
  }
}

void read_keys(const Item& kind, const Context& context, AnnotationRule& rule) {
  for (const Item& item : read_items(kind.value, context, kind.line, "axis keys (tp_dim: 0), rows, or local")) {
    read_key(item, context, rule);
  }
}

// Reads `optional: true`, which a pattern may have beside its placements.
bool read_optional(const Item& item, const Context& context) {
  constexpr std::string_view kExpected = "true";
  const std::string word = read_word(item.value, context.inside(item.key), item.line, kExpected);
  if (word != kExpected) fail(context.inside(item.key), item.line, fmt::format("'{}'; expected {}", word, kExpected));
  return true;
}

void read_rule(const Item& entry, const Context& file, Annotations& annotations) {
  const auto& [pattern, line, node] = entry;
  const Context context{file.file, fmt::format("'{}'", pattern), file.parameters};
  const std::string expected = "axis keys (tp_dim: 0) or kinds (output: {tp_dim: 0})";
  AnnotationRule parameters{pattern, std::nullopt, {}, {file.file, line}};
  const std::vector<Item> items = read_items(node, context, line, expected);
  const std::size_t before = annotations.rules.size();
  bool optional = false;
  for (const Item& item : items) {
    if (item.key == kOptional) {
      optional = read_optional(item, context);
    } else if (const auto kind = kind_from_name(item.key)) {
      AnnotationRule rule{pattern, kind, {}, {file.file, line}};
      const Context inside = context.inside(item.key);
      rule.local = item.value.word() == "local";
      if (!rule.local) read_keys(item, inside, rule);
      annotations.rules.push_back(std::move(rule));
    } else {
      read_key(item, context, parameters);
    }
  }
  if (!parameters.axes.empty() || parameters.sum_microbatches) annotations.rules.push_back(std::move(parameters));
  if (annotations.rules.size() == before) fail(context, line, fmt::format("says nothing; expected {}", expected));
  for (std::size_t i = before; i < annotations.rules.size(); ++i) annotations.rules[i].optional = optional;
}

// Reads rules, each of which replaces what an included file says of the same pattern. One that is null only removes it.
class RuleReader {
 public:
  explicit RuleReader(Annotations& annotations) : annotations_(annotations) {}

  void read(const Item& entry, const Context& file) {
    Range& range = of_pattern_[entry.key];
    const bool replaces = range.begin < range.end;
    for (; range.begin < range.end; ++range.begin) replaced_.insert(range.begin);
    if (replaces && entry.value.is_null()) return;
    range.begin = annotations_.rules.size();
    read_rule(entry, file, annotations_);
    range.end = annotations_.rules.size();
  }

  // Takes those away that were replaced.
  void finish() {
    std::vector<AnnotationRule> kept;
    for (std::size_t i = 0; i < annotations_.rules.size(); ++i) {
      if (!replaced_.contains(i)) kept.push_back(std::move(annotations_.rules[i]));
    }
    annotations_.rules = std::move(kept);
  }

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  Annotations& annotations_;
  std::map<std::string, Range> of_pattern_;  // the places of its rules
  std::set<std::size_t> replaced_;
};

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
  RuleReader rules(annotations);
  for (const Document& document : documents) {
    annotations.files.push_back(document.path);
    annotations.guesses.insert(annotations.guesses.end(), document.guesses.begin(), document.guesses.end());
    const Context file{document.path, "", &parameters};
    for (const Item& item : document.items) {
      if (item.key == kInclude || item.key == kParameters) continue;
      if (item.key == kParallelism) {
        read_parallelism(item, file, annotations);
      } else {
        rules.read(item, file);
      }
    }
  }
  rules.finish();
  parameters.require_used();
  return annotations;
}

// A parameter's value as it is written.
std::string yaml_value(const YamlNode& value) {
  if (value.is_null()) return "null";
  if (value.is_word()) return yaml_word(value.word());
  std::vector<std::string> words;
  for (const YamlNode& item : value.items()) words.push_back(yaml_word(item.word()));
  return fmt::format("[{}]", fmt::join(words, ", "));
}

}  // namespace

Annotations read_annotations(const AnnotationSource& source, const std::filesystem::path& presets) {
  return read(read_documents(source.file, presets, source.with_guesses), source.settings);
}

Annotations read_annotations_of_job(const std::string& file, const std::filesystem::path& presets) {
  return read(read_documents(file, presets, false, Includes::kAnywhere), {});
}

Annotations parse_annotations(const std::string& text, const std::string& where, const std::filesystem::path& presets) {
  return read(parse_documents(text, where, presets), {});
}

std::string including_file(const std::filesystem::path& path, const std::vector<std::string>& settings) {
  std::string text = fmt::format("{}: {}\n", kInclude, yaml_word(path.string()));
  for (const std::string& setting : settings) {
    if (&setting == settings.data()) text += fmt::format("{}:\n", kParameters);
    const auto [name, value] = split_setting(setting);
    text += fmt::format("  {} {}\n", yaml_key(name, 2), yaml_value(value));
  }
  return text;
}

}  // namespace ttrace
