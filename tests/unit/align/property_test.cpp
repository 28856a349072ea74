// Sharding a known tensor and rebuilding it through the pieces is the identity, for random meshes, nested
// splits, sums and copies; and whatever is then broken is found, with the right ranks and ranges.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>

#include "align/shard_mapping.h"
#include "base/layout.h"
#include "support/mesh_trace.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

using Random = std::mt19937_64;

std::int64_t pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// A placement, and where it puts each rank's shard, worked out here without the code under test.
struct Case {
  Mesh mesh;
  std::int32_t world = 1;
  AnnotationRule rule;
  Shape shape;             // logical
  std::vector<Box> boxes;  // by rank
  std::vector<int> terms;  // by rank
  int term_count = 1;
};

// Splits `shape[dim]` over the axes of the rule that name it: leaf sizes are drawn, leaves lie one after
// the other in order of their coordinates.
void split_dimension(Random& random, Case& c, int dim, bool even) {
  const int ndim = static_cast<int>(c.shape.size());
  std::vector<std::string> axes;
  for (const AxisPlacement& axis : c.rule.axes) {
    if (axis.placement == Placement::kShard && (axis.dim + ndim) % ndim == dim) axes.push_back(axis.axis);
  }
  const std::int64_t size = pick(random, 1, axes.size() > 1 ? 2 : 4);
  std::map<std::vector<std::int64_t>, std::pair<std::int64_t, std::int64_t>> leaves;  // start, size; sorted
  std::vector<std::vector<std::int64_t>> coordinates;
  for (std::int32_t rank = 0; rank < c.world; ++rank) {
    const Coordinates all = coordinates_of(c.mesh.axes, rank);
    std::vector<std::int64_t> own;
    for (const std::string& axis : axes)
      own.push_back(all.at(c.mesh.aliases.contains(axis) ? c.mesh.aliases.at(axis) : axis));
    leaves[own] = {0, 0};
    coordinates.push_back(own);
  }
  std::int64_t extent = 0;
  for (auto& [coordinate, leaf] : leaves) {
    leaf = {extent, even ? size : pick(random, 0, 2 * size)};
    extent += leaf.second;
  }
  c.shape[static_cast<std::size_t>(dim)] = extent;
  for (std::size_t rank = 0; rank < c.boxes.size(); ++rank) {
    c.boxes[rank].start.push_back(leaves[coordinates[rank]].first);
    c.boxes[rank].size.push_back(leaves[coordinates[rank]].second);
  }
}

Case draw(Random& random) {
  Case c;
  for (std::int64_t i = 0, n = pick(random, 0, 4); i < n; ++i) {
    c.mesh.axes.push_back({std::string(1, static_cast<char>('a' + i)), pick(random, 1, 3)});
    c.world *= static_cast<std::int32_t>(c.mesh.axes.back().size);
  }
  c.shape.resize(static_cast<std::size_t>(pick(random, 1, 3)));
  const auto ndim = static_cast<int>(c.shape.size());
  c.rule.pattern = "tensor";
  c.rule.kind = Kind::kOutput;
  c.rule.source.line = 1;
  for (const Axis& axis : c.mesh.axes) {
    AxisPlacement placement;
    placement.axis = axis.name;
    if (pick(random, 0, 3) == 0) {
      placement.axis = "alias_" + axis.name;
      c.mesh.aliases[placement.axis] = axis.name;
    }
    const std::int64_t what = pick(random, 0, 5);
    if (what == 0) continue;  // not named: replicates
    placement.placement = what == 1 ? Placement::kReplicate : what == 2 ? Placement::kPartial : Placement::kShard;
    placement.dim = static_cast<std::int32_t>(pick(random, -ndim, ndim - 1));
    c.rule.axes.push_back(placement);
  }
  std::shuffle(c.rule.axes.begin(), c.rule.axes.end(), random);
  c.boxes.resize(static_cast<std::size_t>(c.world));
  const bool even = pick(random, 0, 1) == 0;
  for (int d = 0; d < ndim; ++d) split_dimension(random, c, d, even);
  for (std::int32_t rank = 0; rank < c.world; ++rank) {
    const Coordinates all = coordinates_of(c.mesh.axes, rank);
    int term = 0, count = 1;
    for (const AxisPlacement& axis : c.rule.axes) {
      if (axis.placement != Placement::kPartial) continue;
      const std::string name = c.mesh.aliases.contains(axis.axis) ? c.mesh.aliases.at(axis.axis) : axis.axis;
      const auto size = static_cast<int>(size_of_axis(c.mesh, name));
      term = term * size + static_cast<int>(all.at(name));
      count *= size;
    }
    c.terms.push_back(term);
    c.term_count = count;
  }
  return c;
}

// Visits the elements of a box of the shape: index within the box, linear index in the shape.
template <class Visit>
void each_element(const Box& box, const Shape& shape, const Visit& visit) {
  for (std::int64_t i = 0; i < element_count(box.size); ++i) {
    std::int64_t rest = i, linear = 0, stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      linear += (box.start[d] + rest % box.size[d]) * stride;
      rest /= box.size[d];
      stride *= shape[d];
    }
    visit(i, linear);
  }
}

float value_at(std::int64_t linear) { return static_cast<float>(linear + 1); }

// Small integers whose sum over the terms is the value.
float term_at(const Case& c, int term, std::int64_t linear) {
  const auto share = [&](int t) { return static_cast<float>((linear * 7 + t * 13) % 101); };
  if (term + 1 < c.term_count) return share(term);
  float rest = value_at(linear);
  for (int t = 0; t + 1 < c.term_count; ++t) rest -= share(t);
  return rest;
}

const TensorId kId = tensor_id(Kind::kOutput, "tensor");

Trace shard(const Case& c) {
  Trace trace = mesh_trace(to_string(c.mesh), c.world);
  for (std::size_t rank = 0; rank < c.boxes.size(); ++rank) {
    std::vector<float> values;
    each_element(c.boxes[rank], c.shape,
                 [&](std::int64_t, std::int64_t linear) { values.push_back(term_at(c, c.terms[rank], linear)); });
    add_tensor(trace, rank, kId, c.boxes[rank].size, values);
  }
  return trace;
}

Alignment aligned(const Case& c, const Trace& trace) {
  Annotations annotations;
  annotations.rules = {c.rule};
  return align(trace, annotations, {});
}

// The logical values by replica; an element that no piece fills stays 0.
std::map<int, std::vector<float>> rebuild(const LogicalTensor& tensor) {
  std::map<int, std::vector<float>> replicas;
  for (const Piece& piece : tensor.pieces()) {
    std::vector<float>& values = replicas[piece.replica];
    values.resize(static_cast<std::size_t>(element_count(tensor.shape)), 0);
    each_element(piece.logical, tensor.shape, [&](std::int64_t i, std::int64_t linear) {
      std::int64_t rest = i, from = piece.offset;
      for (std::size_t d = tensor.shape.size(); d-- > 0; rest /= piece.logical.size[d]) {
        from += rest % piece.logical.size[d] * piece.strides[d];
      }
      float value = 0;
      std::memcpy(&value, piece.data + static_cast<std::size_t>(from) * sizeof(float), sizeof(float));
      values[static_cast<std::size_t>(linear)] += value;
    });
  }
  return replicas;
}

std::vector<float> whole(const Case& c) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < element_count(c.shape); ++i) values.push_back(value_at(i));
  return values;
}

std::string slice(const Box& box) {
  std::vector<std::string> ranges;
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    ranges.push_back(fmt::format("{}:{}", box.start[d], box.start[d] + box.size[d]));
  }
  return fmt::format("[{}]", fmt::join(ranges, ", "));
}

// Two axes, each of several ranks, split one dimension.
bool is_nested(const Case& c) {
  const int ndim = static_cast<int>(c.shape.size());
  std::map<int, int> splits;
  for (const AxisPlacement& axis : c.rule.axes) {
    if (axis.placement == Placement::kShard && size_of_axis(c.mesh, axis.axis) > 1) ++splits[(axis.dim + ndim) % ndim];
  }
  return std::any_of(splits.begin(), splits.end(), [](const auto& item) { return item.second > 1; });
}

bool same_box(const Case& c, std::size_t a, std::size_t b) { return c.boxes[a] == c.boxes[b]; }

AxisLayout one_too_low(const AxisParts& parts) {
  AxisLayout layout = contiguous(parts);
  for (std::size_t i = 1; i < layout.parts.size(); ++i) {
    for (Stretch& stretch : layout.parts[i]) stretch.logical -= 1;
  }
  return layout;
}

constexpr int kCases = 2000;

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("sharding a tensor and rebuilding it is the identity") {
  Random random(2506);
  int split = 0, nested = 0, copied = 0, summed = 0;
  for (int i = 0; i < kCases; ++i) {
    const Case c = draw(random);
    const Trace trace = shard(c);
    const Alignment alignment = aligned(c, trace);
    REQUIRE(alignment.findings.empty());
    REQUIRE(alignment.tensors.size() == 1);
    const LogicalTensor& tensor = alignment.tensors.at(kId);
    REQUIRE(tensor.shape == c.shape);
    const auto rebuilt = rebuild(tensor);
    if (element_count(c.shape) > 0) REQUIRE(rebuilt.contains(0));
    for (const auto& [replica, values] : rebuilt) REQUIRE(values == whole(c));
    if (element_count(c.shape) == 0) continue;
    split += c.boxes[0].size != c.shape ? 1 : 0;
    nested += is_nested(c) ? 1 : 0;
    copied += rebuilt.size() > 1 ? 1 : 0;
    summed += c.term_count > 1 ? 1 : 0;
  }
  // The cases are what they are meant to be.
  for (const int count : {split, nested, copied, summed}) CHECK(count > kCases / 20);
}

TEST_CASE("a shard left out is found, with its rank and range") {
  Random random(1);
  int checked = 0;
  for (int i = 0; i < kCases; ++i) {
    const Case c = draw(random);
    if (c.world == 1) continue;
    Trace trace = shard(c);
    const auto lost = static_cast<std::size_t>(pick(random, 0, c.world - 1));
    trace.ranks[lost].entries.clear();
    const Alignment alignment = aligned(c, trace);
    REQUIRE(alignment.tensors.empty());
    REQUIRE(alignment.findings.size() == 1);
    REQUIRE(alignment.findings[0].reason == Reason::kOmission);
    REQUIRE(alignment.findings[0].ranks == std::vector<std::int32_t>{static_cast<std::int32_t>(lost)});
    // Where another rank holds the same elements, their place is certain.
    bool known = element_count(c.boxes[lost].size) > 0;
    for (const Box& box : c.boxes) known = known && box.size == c.boxes[lost].size;
    if (!known) continue;
    ++checked;
    const std::string expected =
        fmt::format("tensor output, iteration 0: not there: {} of rank {} (", slice(c.boxes[lost]), lost);
    REQUIRE(alignment.findings[0].message.substr(0, expected.size()) == expected);
  }
  CHECK(checked > kCases / 4);
}

TEST_CASE("a shard recorded twice is found") {
  Random random(2);
  for (int i = 0; i < kCases / 4; ++i) {
    const Case c = draw(random);
    Trace trace = shard(c);
    const auto twice = static_cast<std::size_t>(pick(random, 0, c.world - 1));
    add_tensor(trace, twice, kId, c.boxes[twice].size);
    const Alignment alignment = aligned(c, trace);
    REQUIRE(alignment.tensors.empty());
    REQUIRE(alignment.findings.size() == 1);
    REQUIRE(alignment.findings[0].reason == Reason::kDuplicateTensor);
    REQUIRE(alignment.findings[0].ranks == std::vector<std::int32_t>{static_cast<std::int32_t>(twice)});
  }
}

TEST_CASE("two ranks that swapped their shards never pass for the same tensor") {
  Random random(3);
  int moved = 0, mismatched = 0;
  for (int i = 0; i < kCases; ++i) {
    const Case c = draw(random);
    Trace trace = shard(c);
    const auto a = static_cast<std::size_t>(pick(random, 0, c.world - 1));
    const auto b = static_cast<std::size_t>(pick(random, 0, c.world - 1));
    const bool empty = element_count(c.boxes[a].size) == 0 || element_count(c.boxes[b].size) == 0;
    if (same_box(c, a, b) || empty) continue;
    std::swap(trace.ranks[a].entries, trace.ranks[b].entries);
    std::swap(trace.ranks[a].file, trace.ranks[b].file);
    const Alignment alignment = aligned(c, trace);
    if (!alignment.findings.empty()) {
      ++mismatched;
      REQUIRE(alignment.findings[0].reason == Reason::kShapeMismatch);
      const std::vector<std::int32_t>& ranks = alignment.findings[0].ranks;
      REQUIRE(std::count(ranks.begin(), ranks.end(), static_cast<std::int32_t>(a)) == 1);
      REQUIRE(std::count(ranks.begin(), ranks.end(), static_cast<std::int32_t>(b)) == 1);
      continue;
    }
    ++moved;
    const LogicalTensor& tensor = alignment.tensors.at(kId);
    const std::vector<float> expected = whole(c);
    std::vector<bool> allowed(expected.size(), c.boxes[a].size != c.boxes[b].size);
    for (const std::size_t rank : {a, b}) {
      each_element(c.boxes[rank], c.shape,
                   [&](std::int64_t, std::int64_t at) { allowed[static_cast<std::size_t>(at)] = true; });
    }
    bool differs = false;
    for (const auto& [replica, values] : rebuild(tensor)) {
      for (std::size_t e = 0; e < values.size(); ++e) {
        if (values[e] == expected[e]) continue;
        differs = true;
        REQUIRE(allowed[e]);
      }
    }
    REQUIRE(differs);
  }
  CHECK(moved > kCases / 20);
  CHECK(mismatched > kCases / 100);
}

TEST_CASE("a layout one element too low is found as an overlap and an omission") {
  register_layout("test-one-too-low", {one_too_low, {}});
  Random random(4);
  int checked = 0;
  for (int i = 0; i < kCases; ++i) {
    Case c = draw(random);
    AxisPlacement* split = nullptr;
    int splits = 0;
    for (AxisPlacement& axis : c.rule.axes) {
      if (axis.placement != Placement::kShard || size_of_axis(c.mesh, axis.axis) == 1) continue;
      split = &axis;
      ++splits;
    }
    if (splits != 1 || c.term_count > 1) continue;
    const int ndim = static_cast<int>(c.shape.size());
    const auto dim = static_cast<std::size_t>((split->dim + ndim) % ndim);
    split->layout = "test-one-too-low";
    // The two ranks of replica 0 at coordinates 0 and 1: everything else is 0.
    const std::string axis = c.mesh.aliases.contains(split->axis) ? c.mesh.aliases.at(split->axis) : split->axis;
    std::int32_t step = 1;
    for (const Axis& other : c.mesh.axes) {
      if (other.name == axis) break;
      step *= static_cast<std::int32_t>(other.size);
    }
    const Box& first = c.boxes[0];
    const Box& second = c.boxes[static_cast<std::size_t>(step)];
    if (element_count(first.size) == 0 || element_count(second.size) == 0) continue;
    ++checked;
    Box overlap = first, gap = first;
    overlap.start[dim] = first.size[dim] - 1;
    gap.start[dim] = c.shape[dim] - 1;
    overlap.size[dim] = gap.size[dim] = 1;
    const Trace trace = shard(c);
    const Alignment alignment = aligned(c, trace);
    REQUIRE(alignment.tensors.empty());
    REQUIRE(alignment.findings.size() == 2);
    REQUIRE(alignment.findings[0].reason == Reason::kOmission);
    REQUIRE(alignment.findings[0].message ==
            fmt::format("tensor output, iteration 0: no rank holds {} of {}", slice(gap), to_string(c.shape)));
    REQUIRE(alignment.findings[1].reason == Reason::kOverlap);
    REQUIRE(alignment.findings[1].message ==
            fmt::format("tensor output, iteration 0: filled more than once: {} by ranks 0, {}", slice(overlap), step));
  }
  CHECK(checked > kCases / 20);
}

TEST_SUITE_END();
