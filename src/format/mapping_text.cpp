#include "format/mapping_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/layout.h"
#include "base/mesh.h"
#include "format/format.h"
#include "format/json_inspection.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;  // of a dimension

// A JSON value with its path in the text, for error messages (`mapping: fragment: slices 2`). Its members throw
// InputError for a value of another form than they expect.
struct JsonNode {
  const Json& json;
  std::string name;

  [[noreturn]] void fail(std::string_view what, std::string_view expected) const {
    throw InputError(fmt::format("{}: {}; expected {}", name, what, expected));
  }

  void require(bool holds, std::string_view what, std::string_view expected) const {
    if (!holds) fail(what, expected);
  }

  // Requires an object that has no other keys than these.
  void check_keys(const std::vector<std::string_view>& known) const {
    const std::string expected = fmt::format("{}", fmt::join(known, ", "));
    require(json.is_object(), fmt::format("is of type {}", json.type_name()), "an object with " + expected);
    for (const auto& item : json.items()) {
      const bool is_known = std::find(known.begin(), known.end(), item.key()) != known.end();
      require(is_known, fmt::format("unknown key '{}'", printable(item.key().substr(0, 64))), expected);
    }
  }

  bool has(const char* key) const { return json.contains(key); }

  JsonNode at(const char* key) const {
    require(has(key), fmt::format("no {}", key), "one");
    return {json[key], fmt::format("{}: {}", name, key)};
  }

  std::vector<JsonNode> items(std::size_t max, std::string_view what) const {
    require(json.is_array(), fmt::format("is of type {}", json.type_name()), fmt::format("a list of {}", what));
    require(json.size() <= max, fmt::format("has {} {}", json.size(), what), fmt::format("at most {}", max));
    std::vector<JsonNode> items;
    for (const Json& item : json) items.push_back({item, fmt::format("{} {}", name, items.size())});
    return items;
  }

  std::string word(std::string_view expected) const {
    require(json.is_string(), fmt::format("is of type {}", json.type_name()), expected);
    return json.get<std::string>();
  }

  std::int64_t integer(std::int64_t min, std::int64_t max) const {
    const bool is_integer = json.is_number_integer();
    const bool is_huge = json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(max);
    if (is_integer && !is_huge && json.get<std::int64_t>() >= min && json.get<std::int64_t>() <= max) return json;
    fail(is_integer ? fmt::format("is {}", json.dump()) : fmt::format("is of type {}", json.type_name()),
         fmt::format("an integer from {} to {}", min, max));
  }

  Shape sizes() const {
    Shape sizes;
    for (const JsonNode& item : items(kMaxDims, "dimensions")) sizes.push_back(item.integer(0, kMaxSize));
    return sizes;
  }

  Shape sizes(std::size_t dims) const {
    Shape result = sizes();
    require(result.size() == dims, fmt::format("has {} dimensions", result.size()), fmt::format("{}", dims));
    return result;
  }

  // Returns `sizes`, and requires that 64 bits can count the tensor's bytes in any dtype. A dimension of 0 does not
  // hide an absurd size of another one.
  Shape shape() const {
    Shape result = sizes();
    std::int64_t bytes = sizeof(double);
    for (const std::int64_t size : result) {
      const bool overflows = __builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes);
      require(!overflows, fmt::format("{} is too large", to_string(result)), "less than 2^63 bytes");
    }
    return result;
  }
};

Json parse_json(std::string_view text) {
  const JsonInspection inspection = inspect_json(text);
  if (!inspection.is_valid) throw InputError("mapping: does not parse; expected a JSON object");
  if (inspection.twice) {
    throw InputError(
        fmt::format("mapping: '{}' appears twice; expected it once", printable(inspection.twice->substr(0, 64))));
  }
  return Json::parse(text);
}

// Reads the layout of a shard, which is contiguous where none is named.
void parse_layout(const JsonNode& node, AxisPlacement& placement) {
  if (node.has("layout")) {
    const JsonNode layout = node.at("layout");
    const std::vector<std::string> names = layout_names(&Layout::recordable);
    const std::string expected = fmt::format("{}", fmt::join(names, " or "));
    placement.layout = layout.word(expected);
    layout.require(std::find(names.begin(), names.end(), placement.layout) != names.end(),
                   fmt::format("'{}'", printable(placement.layout.substr(0, 64))), expected);
  }
  if (find_layout(placement.layout)->options.empty()) {
    node.require(!node.has("blocks"), fmt::format("blocks of a {} shard", placement.layout),
                 "some of a stacked one only");
    return;
  }
  std::vector<std::int64_t>& blocks = placement.options["blocks"];
  for (const JsonNode& item : node.at("blocks").items(kMaxMappingParts, "blocks")) {
    blocks.push_back(item.integer(1, kMaxSize));
  }
  node.require(!blocks.empty(), "no blocks", "one or more");
}

RecordedMapping::Axis parse_axis(const JsonNode& node) {
  node.check_keys({"axis", "size", "placement", "dim", "layout", "blocks"});
  RecordedMapping::Axis axis;
  const JsonNode name = node.at("axis");
  axis.placement.axis = name.word("a name");
  name.require(is_axis_name(axis.placement.axis), fmt::format("'{}'", printable(axis.placement.axis.substr(0, 64))),
               "a name as tp or dp_cp");
  axis.size = node.at("size").integer(1, kMaxWorldSize);
  constexpr std::string_view kPlacements = "shard, replicate, partial or mean";
  const JsonNode placement = node.at("placement");
  const std::string word = placement.word(kPlacements);
  if (word == "shard") {
    axis.placement.placement = Placement::kShard;
    constexpr auto kDims = static_cast<std::int64_t>(kMaxDims);
    axis.placement.dim = static_cast<std::int32_t>(node.at("dim").integer(-kDims, kDims - 1));
    parse_layout(node, axis.placement);
    return axis;
  }
  placement.require(word == "replicate" || word == "partial" || word == "mean",
                    fmt::format("'{}'", printable(word.substr(0, 64))), kPlacements);
  for (const char* key : {"dim", "layout", "blocks"}) {
    node.require(!node.has(key), fmt::format("a {} of a {} axis", key, word), "one of a shard only");
  }
  axis.placement.placement = word == "replicate" ? Placement::kReplicate : Placement::kPartial;
  axis.placement.mean = word == "mean";
  return axis;
}

std::vector<RecordedMapping::Axis> parse_axes(const JsonNode& node) {
  std::vector<RecordedMapping::Axis> axes;
  std::set<std::string> seen;
  for (const JsonNode& item : node.items(kMaxMappingParts, "axes")) {
    axes.push_back(parse_axis(item));
    const std::string& name = axes.back().placement.axis;
    item.require(seen.insert(name).second, fmt::format("axis '{}' appears twice", name), "it once");
  }
  return axes;
}

// Boxes as plain numbers, begin and end by dimension: a mapping's thousand are compared pair by pair.
class DisjointBoxes {
 public:
  // Returns the one before that overlaps `box`, or else keeps the box.
  std::optional<std::size_t> add(const Box& box) {
    const std::size_t dims = box.start.size();
    std::vector<std::int64_t> ends;
    for (std::size_t dim = 0; dim < dims; ++dim) {
      ends.push_back(box.start[dim]);
      ends.push_back(box.start[dim] + box.size[dim]);
    }
    for (std::size_t other = 0; other < count_; ++other) {
      const std::int64_t* known = ends_.data() + other * ends.size();
      std::size_t dim = 0;
      while (dim < dims && std::max(known[2 * dim], ends[2 * dim]) < std::min(known[2 * dim + 1], ends[2 * dim + 1])) {
        ++dim;
      }
      if (dim == dims) return other;
    }
    ends_.insert(ends_.end(), ends.begin(), ends.end());
    ++count_;
    return std::nullopt;
  }

 private:
  std::size_t count_ = 0;
  std::vector<std::int64_t> ends_;
};

// Returns the first dimension in which `box` reaches beyond `shape`, which has as many dimensions.
std::optional<std::size_t> first_dim_outside(const Box& box, const Shape& shape) {
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (box.start[dim] + box.size[dim] > shape[dim]) return dim;
  }
  return std::nullopt;
}

std::vector<Slice> parse_slices(const JsonNode& node, const Shape& whole) {
  std::vector<Slice> slices;
  DisjointBoxes recorded;
  for (const JsonNode& item : node.items(kMaxMappingParts, "slices")) {
    item.check_keys({"local", "start", "size"});
    const Shape size = item.at("size").sizes(whole.size());
    slices.push_back({{item.at("local").sizes(whole.size()), size}, {item.at("start").sizes(whole.size()), size}});
    if (const auto dim = first_dim_outside(slices.back().whole, whole)) {
      item.fail(fmt::format("ends at {} of dimension {}", slices.back().whole.start[*dim] + size[*dim], *dim),
                fmt::format("at most {}, the size of the whole", whole[*dim]));
    }
    if (const auto other = recorded.add(slices.back().local)) {
      item.fail(fmt::format("overlaps slice {} in what was recorded", *other), "elements of its own");
    }
  }
  node.require(!slices.empty(), "is empty", "a slice");
  return slices;
}

Fragment parse_fragment(const JsonNode& node) {
  node.check_keys({"whole", "slices", "range"});
  Fragment fragment;
  fragment.whole = node.at("whole").shape();
  node.require(node.has("slices") != node.has("range"),
               node.has("slices") ? "both slices and range" : "neither slices nor range", "one of them");
  if (node.has("slices")) {
    fragment.slices = parse_slices(node.at("slices"), fragment.whole);
    return fragment;
  }
  const JsonNode range = node.at("range");
  const std::vector<JsonNode> ends = range.items(2, "numbers");
  range.require(ends.size() == 2, fmt::format("has {} numbers", ends.size()), "begin and end");
  const std::int64_t end = ends[1].integer(0, element_count(fragment.whole));
  fragment.range = {ends[0].integer(0, end), end};
  return fragment;
}

}  // namespace

RecordedMapping parse_mapping(std::string_view text) {
  if (text.size() > kMaxMappingBytes) {
    throw InputError(fmt::format("mapping: has {} bytes; expected at most {}", text.size(), kMaxMappingBytes));
  }
  // nlohmann's parser takes NUL for the end.
  if (!is_utf8(text) || !text.starts_with('{') || !text.ends_with('}')) {
    throw InputError("mapping: does not parse; expected a JSON object");
  }
  const Json json = parse_json(text);
  const JsonNode node{json, "mapping"};
  node.check_keys({"axes", "shape", "fragment"});
  RecordedMapping mapping;
  if (node.has("axes")) mapping.axes = parse_axes(node.at("axes"));
  if (node.has("shape")) mapping.shape = node.at("shape").shape();
  if (node.has("fragment")) mapping.fragment = parse_fragment(node.at("fragment"));
  return mapping;
}

std::string objection_to_mapping(const RecordedMapping& mapping, const Shape& shape) {
  // These are the dimensions of the rank's own tensor, of which the recorded one may be a fragment.
  const std::size_t dims = mapping.fragment ? mapping.fragment->whole.size() : shape.size();
  if (mapping.shape && mapping.shape->size() != dims) {
    return fmt::format("mapping: shape: has {} dimensions; expected {}", mapping.shape->size(), dims);
  }
  for (const RecordedMapping::Axis& axis : mapping.axes.value_or(std::vector<RecordedMapping::Axis>())) {
    const auto signed_dims = static_cast<std::int32_t>(dims);
    const std::int32_t dim = axis.placement.dim;
    if (axis.placement.placement != Placement::kShard || (dim >= -signed_dims && dim < signed_dims)) continue;
    return fmt::format("mapping: axis '{}': dim is {}; expected one of {} dimensions", axis.placement.axis, dim, dims);
  }
  if (!mapping.fragment) return {};
  const Fragment& fragment = *mapping.fragment;
  if (fragment.range) {
    const std::int64_t elements = fragment.range->end - fragment.range->begin;
    if (shape == Shape{elements}) return {};
    return fmt::format("mapping: fragment: range of {} elements for a tensor recorded as {}; expected it as [{}]",
                       elements, to_string(shape), elements);
  }
  if (shape.size() != dims) {
    return fmt::format("mapping: fragment: whole: has {} dimensions; expected {}, as recorded", dims, shape.size());
  }
  for (std::size_t i = 0; i < fragment.slices.size(); ++i) {
    if (const auto dim = first_dim_outside(fragment.slices[i].local, shape)) {
      return fmt::format("mapping: fragment: slices {}: its local part leaves dimension {}; expected it inside {}", i,
                         *dim, to_string(shape));
    }
  }
  return {};
}

}  // namespace ttrace
