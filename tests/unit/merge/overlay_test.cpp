#include "merge/overlay.h"

#include <doctest/doctest.h>

#include <cstring>
#include <map>

#include "support/shards.h"

namespace {

using namespace ttrace;
using test::counted;
using test::Cut;
using test::Shards;

// Walks all boxes; returns how often each element was met, and counts elements with a wrong value.
std::map<Shape, int> visits(const std::vector<OverlayBox>& boxes, const Shape& shape, int& wrong) {
  std::map<Shape, int> met;
  for (const OverlayBox& box : boxes) {
    for (std::int64_t n = 0; n < element_count(box.logical.size); ++n) {
      Shape step(shape.size(), 0), index = box.logical.start;
      std::int64_t rest = n, position = 0;
      for (std::size_t i = shape.size(); i-- > 0; rest /= box.logical.size[i]) step[i] = rest % box.logical.size[i];
      for (std::size_t i = 0; i < shape.size(); ++i) index[i] += step[i], position = position * shape[i] + index[i];
      ++met[index];
      for (const auto* terms : {&box.reference, &box.candidate}) {
        for (const StridedTerm& term : *terms) {
          std::int64_t offset = 0;
          for (std::size_t i = 0; i < shape.size(); ++i) offset += step[i] * term.strides[i];
          std::int32_t value = 0;
          std::memcpy(&value, term.data + offset * 4, sizeof value);
          wrong += value != position;
        }
      }
    }
  }
  return met;
}

void check_covers_once(const std::vector<OverlayBox>& boxes, const Shape& shape) {
  int wrong = 0, twice = 0;
  const auto met = visits(boxes, shape, wrong);
  for (const auto& [index, count] : met) twice += count != 1;
  CHECK(wrong == 0);
  CHECK(twice == 0);
  CHECK(static_cast<std::int64_t>(met.size()) == element_count(shape));
}

TEST_SUITE("merge") {
  TEST_CASE("shards cut along different dimensions meet in every element once") {
    Shards shards;
    const Shape shape = {12, 10, 6};
    const auto reference = counted(shards, shape, {{.parts = {4, 1, 1}}});
    const auto candidate = counted(shards, shape, {{.parts = {1, 3, 2}, .margin = 1}});
    const Overlay laid = overlay(reference, candidate);
    CHECK(laid.boxes.size() == 24);
    check_covers_once(laid.boxes, shape);
  }

  TEST_CASE("uneven shards of different counts meet in every element once") {
    Shards shards;
    const Shape shape = {103};
    const auto reference = counted(shards, shape, {{.parts = {8}}});
    const auto candidate = counted(shards, shape, {{.parts = {3}}});
    check_covers_once(overlay(reference, candidate).boxes, shape);
  }

  TEST_CASE("partial terms that are cut differently are laid over each other first") {
    Shards shards;
    const Shape shape = {6, 8};
    const auto reference = counted(shards, shape, {{.parts = {1, 1}}});
    const auto candidate = counted(shards, shape, {{.parts = {2, 1}}, {.parts = {1, 4}, .first_rank = 2, .term = 1}});
    const Overlay laid = overlay(reference, candidate);
    CHECK(laid.boxes.size() == 8);
    check_covers_once(laid.boxes, shape);
    for (const OverlayBox& box : laid.boxes) CHECK(box.candidate.size() == 2);
  }

  TEST_CASE("a scalar is one box and an empty tensor none") {
    Shards shards;
    const auto scalar = counted(shards, {}, {{.parts = {}}});
    check_covers_once(overlay(scalar, scalar).boxes, {});
    const auto empty = counted(shards, {4, 0}, {{.parts = {2, 1}}});
    CHECK(overlay(empty, empty).boxes.empty());
  }

  TEST_CASE("further replicas are laid over the first copy of their own side") {
    Shards shards;
    const Shape shape = {8, 4};
    const auto reference = counted(shards, shape, {{.parts = {1, 1}}});
    const auto candidate =
        counted(shards, shape, {{.parts = {2, 1}}, {.parts = {1, 2}, .first_rank = 2, .replica = 1}});
    const Overlay laid = overlay(reference, candidate);
    REQUIRE(laid.candidate_replicas.size() == 1);
    CHECK(laid.reference_replicas.empty());
    check_covers_once(laid.candidate_replicas[0], shape);
    for (const OverlayBox& box : laid.candidate_replicas[0]) {
      CHECK(box.reference.front().rank < 2);
      CHECK(box.candidate.front().rank >= 2);
    }
  }

  TEST_CASE("a replica that holds a part is completed by the first copy") {
    Shards shards;
    const Shape shape = {8, 6};
    const auto reference = counted(shards, shape, {{.parts = {1, 1}}});
    auto candidate = counted(shards, shape, {{.parts = {2, 2}}, {.parts = {3, 3}, .first_rank = 4, .replica = 1}});
    std::vector<Piece> pieces = candidate.pieces();
    std::erase_if(pieces, [](const Piece& piece) { return piece.replica == 1 && piece.rank != 8; });
    test::set_pieces(candidate, pieces);
    const LogicalTensor seen = seen_by_replica(candidate, 1);
    const Overlay laid = overlay(reference, seen);
    check_covers_once(laid.boxes, shape);
    std::int64_t held = 0;
    for (const OverlayBox& box : laid.boxes) {
      if (box.candidate.front().rank == 8) held += element_count(box.logical.size);
    }
    CHECK(held == element_count(pieces.back().logical.size));
  }

  TEST_CASE("clipping a box moves every term to the first common element") {
    Shards shards;
    const Shape shape = {6, 8};
    const auto tensor = counted(shards, shape, {{.parts = {1, 1}, .margin = 2}});
    const Overlay laid = overlay(tensor, tensor);
    const auto part = clip(laid.boxes.front(), Box{{2, 3}, {10, 4}});
    REQUIRE(part);
    CHECK(part->logical == Box{{2, 3}, {4, 4}});
    CHECK(local_index(part->candidate.front(), {0, 0}) == Shape{4, 5});
    int wrong = 0;
    visits({*part}, shape, wrong);
    CHECK(wrong == 0);
    CHECK_FALSE(clip(laid.boxes.front(), Box{{6, 0}, {1, 8}}));
  }
}

}  // namespace
