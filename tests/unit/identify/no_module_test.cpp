// Tensors that optimizers train and no called module has go by the order of their first steps.
#include "identify/no_module.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// A tensor of no module: how many elements, and the first one's value as it begins.
struct Trained {
  std::int64_t elements;
  float begin;
};

void add_trained(Trace& trace, std::size_t rank, const std::vector<Trained>& trained) {
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const std::string name = "(optimizer)." + std::to_string(i);
    add_tensor(trace, rank, tensor_id(Kind::kParam, name), {trained[i].elements}, {trained[i].begin});
    add_tensor(trace, rank, tensor_id(Kind::kMainGrad, name), {trained[i].elements}, {1});
  }
}

Trace run_of(const std::vector<Trained>& trained) {
  Trace trace = mesh_trace("", 1);
  add_trained(trace, 0, trained);
  return trace;
}

// The numbers that the candidate's have afterwards, in the order of its entries; parameter and gradient have one.
std::string numbers_after(const std::vector<Trained>& reference, const std::vector<Trained>& candidate) {
  Trace trace = run_of(candidate);
  number_as_reference(run_of(reference), trace);
  std::string numbers;
  const auto& entries = trace.ranks[0].entries;
  for (std::size_t i = 0; i < entries.size(); i += 2) {
    CHECK(entries[i].id.name == entries[i + 1].id.name);
    numbers += entries[i].id.name.get().back();
  }
  return numbers;
}

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("tensors of no module have the numbers of those that begin with their bytes") {
  CHECK(numbers_after({{1, 3}, {1, 4}, {1, 5}}, {{1, 5}, {1, 3}, {1, 4}}) == "201");
}

TEST_CASE("where bytes differ, a shape that is there once tells") {
  CHECK(numbers_after({{1, 3}, {2, 4}}, {{2, 8}, {1, 9}}) == "10");
}

TEST_CASE("those that begin alike, and what nothing tells, keep their order") {
  CHECK(numbers_after({{1, 0}, {1, 0}}, {{1, 0}, {1, 0}}) == "01");
  CHECK(numbers_after({{1, 3}, {1, 4}}, {{1, 8}, {1, 9}}) == "01");
}

TEST_CASE("one that only the candidate has gets a number that the reference has not") {
  CHECK(numbers_after({{1, 3}}, {{2, 7}, {1, 3}}) == "10");
}

TEST_CASE("each rank's are numbered by themselves") {
  Trace candidate = mesh_trace("dp=2", 2);
  add_trained(candidate, 0, {{1, 3}, {1, 4}});
  add_trained(candidate, 1, {{1, 4}, {1, 3}});
  number_as_reference(run_of({{1, 3}, {1, 4}}), candidate);
  CHECK(candidate.ranks[0].entries[0].id.name == "(optimizer).0");
  CHECK(candidate.ranks[1].entries[0].id.name == "(optimizer).1");
}
