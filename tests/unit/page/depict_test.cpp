#include "page/depict.h"

#include <cmath>
#include <limits>

#include "support/aligned.h"

namespace {

using namespace ttrace;
using namespace ttrace::test;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A tensor `mlp` output whose element at position i has the value i.
std::vector<float> counted(std::int64_t elements, std::int64_t from = 0) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < elements; ++i) values.push_back(static_cast<float>(from + i));
  return values;
}

Alignment whole(const Shape& shape, std::vector<float> values, Trace& trace) {
  trace = mesh_trace("", 1);
  add_tensor(trace, 0, tensor_id(Kind::kOutput, "mlp", 0), shape, std::move(values));
  return align(trace, annotations(""), {});
}

Alignment on_two(const Shape& part, const std::vector<std::vector<float>>& values, const std::string& text,
                 const Alignment& reference, Trace& trace) {
  trace = mesh_trace("tp=2", 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    add_tensor(trace, rank, tensor_id(Kind::kOutput, "mlp", 0), part, values[rank]);
  }
  return align(trace, annotations(text), layout_of(reference));
}

TEST_SUITE("page") {
  TEST_CASE("the map shows which rank's rows are wrong, and the list which elements") {
    Trace first, second;
    const Alignment reference = whole({4, 3}, counted(12), first);
    const Alignment candidate =
        on_two({2, 3}, {counted(6), {6, 7, 8, 9, 10.5, 13}}, "mlp:\n  output: {tp_dim: 0}\n", reference, second);
    const Picture picture = depict_tensor(only_tensor(reference), only_tensor(candidate));
    CHECK(picture.without_values.empty());
    CHECK(picture.reference.ranks == 1);
    REQUIRE(picture.candidate.boxes.size() == 2);
    CHECK(picture.candidate.boxes[1].box == Box{{2, 0}, {2, 3}});
    CHECK(picture.candidate.boxes[1].replicas == std::vector<std::vector<std::int32_t>>{{1}});
    CHECK(picture.map.row_dim == 0);
    CHECK(picture.map.column_dim == 1);
    CHECK(picture.map.largest == std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5, 2});
    CHECK(picture.equal == 10);
    CHECK(picture.octaves == std::map<int, std::int64_t>{{-1, 1}, {1, 1}});
    REQUIRE(picture.worst.size() == 2);
    CHECK(picture.worst[0].index == Shape{3, 2});
    CHECK(picture.worst[0].rank == 1);
    CHECK(picture.worst[0].reference == 11);
    CHECK(picture.worst[0].candidate == 13);
  }

  TEST_CASE("equal tensors have an empty map") {
    Trace first, second;
    const Alignment reference = whole({4, 3}, counted(12), first);
    const Alignment candidate =
        on_two({2, 3}, {counted(6), counted(6, 6)}, "mlp:\n  output: {tp_dim: 0}\n", reference, second);
    const Picture picture = depict_tensor(only_tensor(reference), only_tensor(candidate));
    CHECK(picture.map.largest == std::vector<double>(12, 0));
    CHECK(picture.equal == 12);
    CHECK(picture.octaves.empty());
    CHECK(picture.worst.empty());
  }

  TEST_CASE("terms are added up, and drawn as such") {
    Trace first, second;
    const Alignment reference = whole({2}, {3, 5}, first);
    const Alignment candidate = on_two({2}, {{1, 2}, {2, 3}}, "mlp:\n  output: {tp: partial}\n", reference, second);
    const Picture picture = depict_tensor(only_tensor(reference), only_tensor(candidate));
    REQUIRE(picture.candidate.boxes.size() == 1);
    CHECK(picture.candidate.boxes[0].replicas == std::vector<std::vector<std::int32_t>>{{0, 1}});
    CHECK(picture.equal == 2);
    CHECK(picture.map.row_dim == -1);
    CHECK(picture.map.column_dim == 0);
  }

  TEST_CASE("of copies that differ the one that was asked for is drawn") {
    Trace first, second;
    const Alignment reference = whole({2}, {3, 5}, first);
    const Alignment candidate = on_two({2}, {{3, 5}, {3, 7}}, "mlp:\n  output: {}\n", reference, second);
    const LogicalTensor &from = only_tensor(reference), &to = only_tensor(candidate);
    CHECK(depict_tensor(from, to).worst.empty());
    const Picture picture = depict_tensor(from, to, 1);
    REQUIRE(picture.worst.size() == 1);
    CHECK(picture.worst[0].rank == 1);
    CHECK(picture.candidate.boxes[0].replicas == std::vector<std::vector<std::int32_t>>{{0}, {1}});
  }

  TEST_CASE("what is finite on one side only is the worst, and what is NaN on both is equal") {
    Trace first, second;
    const Alignment reference = whole({4}, {kNan, 2, 3, 4}, first);
    const Alignment candidate = whole({4}, {kNan, kNan, 3, 9}, second);
    const Picture picture = depict_tensor(only_tensor(reference), only_tensor(candidate));
    CHECK(picture.equal == 2);
    CHECK(picture.not_finite == 1);
    REQUIRE(picture.worst.size() == 2);
    CHECK(picture.worst[0].index == Shape{1});
    CHECK(std::isinf(picture.map.largest[1]));
    CHECK(picture.map.largest[3] == 5);
  }

  TEST_CASE("a large tensor's cells each show the largest error in them") {
    Trace first, second;
    std::vector<float> values(200 * 3, 1), changed = values;
    changed[199 * 3 + 2] = 2;
    changed[198 * 3 + 2] = 4;
    const Alignment reference = whole({200, 3}, values, first);
    const Alignment candidate = whole({200, 3}, changed, second);
    const ErrorMap map = depict_tensor(only_tensor(reference), only_tensor(candidate)).map;
    CHECK(map.rows == 64);
    CHECK(map.columns == 3);
    CHECK(map.largest.back() == 3);
    CHECK(std::count(map.largest.begin(), map.largest.end(), 0) == 64 * 3 - 1);
  }

  TEST_CASE("a scalar has one cell") {
    Trace first, second;
    const Alignment reference = whole({}, {2}, first), candidate = whole({}, {2.5}, second);
    const Picture picture = depict_tensor(only_tensor(reference), only_tensor(candidate));
    CHECK(picture.map.largest == std::vector<double>{0.5});
    CHECK(picture.worst[0].index.empty());
  }

  TEST_CASE("shapes that differ are drawn without values") {
    Trace first, second;
    const Alignment reference = whole({4}, counted(4), first), candidate = whole({5}, counted(5), second);
    const Picture picture = depict_tensor(only_tensor(reference), only_tensor(candidate));
    CHECK(picture.without_values == "the shapes differ");
    CHECK(picture.map.largest.empty());
    CHECK(picture.candidate.boxes.size() == 1);
  }

  TEST_CASE("the root and the worst of each module are drawn before others of the same module") {
    Trace first = mesh_trace("", 1), second = mesh_trace("", 1);
    for (const auto& [name, error] : std::map<std::string, float>{{"a", 0}, {"layers.0.mlp", 1}, {"layers.1.mlp", 2}}) {
      add_tensor(first, 0, tensor_id(Kind::kOutput, name, 0), {2}, {1, 1});
      add_tensor(second, 0, tensor_id(Kind::kOutput, name, 0), {2}, {1, 1 + error});
    }
    const Alignment reference = align(first, annotations(""), {}), candidate = align(second, annotations(""), {});
    const std::vector<Picture> pictures = depict(checked(first, second, ""), reference, candidate);
    REQUIRE(pictures.size() == 3);
    CHECK(pictures[0].id.name == "layers.0.mlp");  // without tolerances both are wrong, and this one came first
    CHECK(pictures[1].id.name == "a");
    CHECK(pictures[2].id.name == "layers.1.mlp");
  }

  TEST_CASE("of a tensor that is too large to read the shards are drawn") {
    Trace first, second;
    const Alignment reference = whole({4}, counted(4), first), candidate = whole({4}, counted(4, 1), second);
    const Picture picture = depict_tensor(only_tensor(reference), only_tensor(candidate), -1, 3);
    CHECK(!picture.without_values.empty());
    CHECK(picture.worst.empty());
    CHECK(picture.candidate.boxes.size() == 1);
  }
}

}  // namespace
