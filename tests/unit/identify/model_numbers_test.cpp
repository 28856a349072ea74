// Which model of the reference each rank's are.
#include "identify/model_numbers.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// A model: the name of its parameter, and how that begins.
struct Model {
  std::string parameter;
  float begin;
  std::int64_t elements = 1;
};

void add_models(Trace& trace, std::size_t rank, const std::vector<Model>& models) {
  for (std::size_t i = 0; i < models.size(); ++i) {
    for (const Kind kind : {Kind::kParam, Kind::kMainGrad}) {
      TensorId id = tensor_id(kind, models[i].parameter);
      id.chunk = static_cast<std::int32_t>(i);
      const std::int64_t elements = models[i].elements;
      add_tensor(trace, rank, id, {elements}, std::vector<float>(static_cast<std::size_t>(elements), models[i].begin));
    }
  }
}

// The numbers of the candidate's models afterwards, in their order.
std::string numbers_after(const std::vector<Model>& reference, const std::vector<Model>& candidate) {
  Trace trusted = mesh_trace("", 1), trace = mesh_trace("", 1);
  add_models(trusted, 0, reference);
  add_models(trace, 0, candidate);
  number_models_as_reference(trusted, trace);
  std::string numbers;
  for (const Entry& entry : trace.ranks[0].entries) {
    if (entry.id.kind == Kind::kParam) numbers += std::to_string(entry.id.chunk);
  }
  return numbers;
}

const std::vector<Model> kThree = {{"proj.weight", 3}, {"proj.weight", 4}, {"out.weight", 5}};

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("a rank that runs some of the models has the reference's numbers of these") {
  CHECK(numbers_after(kThree, {{"proj.weight", 4}, {"out.weight", 5}}) == "12");
  CHECK(numbers_after(kThree, {{"out.weight", 5}, {"proj.weight", 4}, {"proj.weight", 3}}) == "210");
}

TEST_CASE("a model of other bytes keeps its number where it is the one of its name, and else all keep theirs") {
  CHECK(numbers_after(kThree, {{"out.weight", 9}}) == "0");
  CHECK(numbers_after(kThree, {{"proj.weight", 9}, {"proj.weight", 4}, {"out.weight", 5}}) == "012");
  CHECK(numbers_after(kThree, {{"other.weight", 4}, {"out.weight", 5}}) == "01");
}

TEST_CASE("a model of the same bytes comes before those that have only the names") {
  const std::vector<Model> layers = {{"tokens.weight", 1}, {"weight", 1, 3}, {"weight", 7, 5}};
  CHECK(numbers_after(layers, {{"weight", 7, 5}}) == "2");
  CHECK(numbers_after(layers, {{"weight", 1, 3}, {"weight", 7, 5}}) == "12");
  CHECK(numbers_after(layers, {{"weight", 8, 4}}) == "0");  // either may be it
}

TEST_CASE("models that begin alike keep their order") {
  const std::vector<Model> twins = {{"fc.weight", 1}, {"fc.weight", 1}};
  CHECK(numbers_after(twins, twins) == "01");
  CHECK(numbers_after({{"fc.weight", 1}, {"head.weight", 2}, {"head.weight", 2}}, {{"head.weight", 2}}) == "0");
}

TEST_SUITE_END();
