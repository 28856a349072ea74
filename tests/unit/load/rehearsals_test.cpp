// What was recorded of calls that trained nothing is no part of a trace.
#include "load/rehearsals.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "format/provenance.h"

namespace ttrace {
namespace {

RankTrace rank_of(const std::vector<TensorId>& ids) {
  RankTrace rank;
  for (const TensorId& id : ids) rank.entries.emplace_back().id = id;
  return rank;
}

TensorId output(std::int32_t microbatch, std::int32_t chunk) {
  return {.microbatch = microbatch, .chunk = chunk, .name = std::string("fc")};
}

std::vector<TensorId> ids_of(const RankTrace& rank) {
  std::vector<TensorId> ids;
  for (const Entry& entry : rank.entries) ids.push_back(entry.id);
  return ids;
}

TEST_CASE("the chunks and micro-batches behind a rehearsal are numbered as if it had not been recorded") {
  const TensorId parameter = {.chunk = 1, .kind = Kind::kParam, .name = std::string("fc.weight")};
  RankTrace rank = rank_of({output(0, 0), parameter, output(0, 1), output(1, 1), output(0, 2)});
  for (const std::int32_t chunk : {2, 0}) rank.not_seen.emplace_back().chunk = chunk;
  leave_out({.chunks = {0}, .microbatches = {{0, 1, 0}}}, rank);
  TensorId renumbered = parameter;
  renumbered.chunk = 0;
  CHECK(ids_of(rank) == std::vector<TensorId>{renumbered, output(0, 0), output(0, 1)});
  CHECK(rank.rehearsed == 2);
  REQUIRE(rank.not_seen.size() == 1);
  CHECK(rank.not_seen[0].chunk == 1);
}

TEST_CASE("what is of no model is no part of a rehearsal") {
  const TensorId trained = {.kind = Kind::kParam, .name = std::string("(optimizer).0")},
                 average = {.kind = Kind::kBufferAfter, .name = std::string("Average.fc.weight")},
                 before = {.kind = Kind::kBuffer, .name = std::string("norm.running_mean")},
                 after = {.kind = Kind::kBufferAfter, .name = std::string("norm.running_mean")};
  TensorId second_before = before, second_after = after;
  second_before.chunk = second_after.chunk = 1;
  RankTrace rank = rank_of({trained, average, before, after, output(0, 0), second_before, second_after});
  rank.optimizer_steps.emplace_back().parameters = {"(optimizer).0"};
  rank.optimizer_steps.emplace_back().parameters = {"fc.weight"};
  leave_out({.chunks = {0}, .microbatches = {}}, rank);
  CHECK(ids_of(rank) == std::vector<TensorId>{trained, average, before, after});  // those of the second chunk
  CHECK(rank.rehearsed == 3);
  REQUIRE(rank.optimizer_steps.size() == 1);
  CHECK(rank.optimizer_steps[0].parameters == std::vector<std::string>{"(optimizer).0"});
}

TEST_CASE("a rank that says nothing of rehearsals is left as it is") {
  RankTrace rank = rank_of({output(0, 0), output(0, 1)});
  leave_out(parse_rehearsals(R"({"command": []})", "here"), rank);
  CHECK(ids_of(rank) == std::vector<TensorId>{output(0, 0), output(0, 1)});
}

TEST_CASE("rehearsals that are none are refused") {
  for (const char* text : {R"({"rehearsals": {"chunks": [-1]}})", R"({"rehearsals": {"microbatches": [[0, 1]]}})",
                           R"({"rehearsals": 3})", R"({"rehearsals": {"chunks": "all"}})"}) {
    CHECK_THROWS_AS(parse_rehearsals(text, "here"), InputError);
  }
}

}  // namespace
}  // namespace ttrace
