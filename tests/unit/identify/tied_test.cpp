// Parameters that two pipeline stages share.
#include <doctest/doctest.h>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const std::string kEmbedding = "embedding.word_embeddings.weight";
const std::string kHead = "output_layer.weight";
const std::string kTied =
    "word_embeddings.weight: {tp_dim: 0}\nparallelism: {tied: {output_layer.weight: "
    "embedding.word_embeddings.weight}}";

// One process, one parameter under one name.
Trace reference(Kind kind, std::vector<float> values) {
  Trace trace = mesh_trace("", 1);
  add_tensor(trace, 0, tensor_id(kind, kEmbedding), {4}, std::move(values));
  return trace;
}

// tp 2, pp 2: the first stage's ranks 0 and 1 call it the embedding, the last one's 2 and 3 the head.
Trace candidate(Kind kind, const std::vector<float>& first, const std::vector<float>& last) {
  Trace trace = mesh_trace("tp=2,pp=2", 4);
  for (const std::size_t rank : {0, 1, 2, 3}) {
    const std::vector<float>& all = rank < 2 ? first : last;
    const auto begin = all.begin() + (rank % 2) * 2;
    add_tensor(trace, rank, tensor_id(kind, rank < 2 ? kEmbedding : kHead), {2}, {begin, begin + 2});
  }
  return trace;
}

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("a tied head is a copy of the embedding, and must agree with it") {
  for (const Kind kind : {Kind::kParam, Kind::kMainGrad, Kind::kParamDelta, Kind::kParamAfter}) {
    CAPTURE(name_of(kind));
    const std::vector<float> right = {1, 2, 3, 4};
    CHECK(checked(reference(kind, right), candidate(kind, right, right), kTied).same());
    // Nobody added up the two stages' gradients, or copied the first weight: the second stage has its own.
    const Report report = checked(reference(kind, right), candidate(kind, right, {1, 2, 3, 5}), kTied);
    REQUIRE(report.findings.size() == 1);
    CHECK(report.findings[0].id.name == kEmbedding);
    CHECK(report.findings[0].reason == Reason::kReplicasDisagree);
  }
}

TEST_CASE("a head that has values of its own in the reference is not tied, in the candidate either") {
  for (const Kind kind : {Kind::kParam, Kind::kMainGrad}) {
    CAPTURE(name_of(kind));
    Trace untied = reference(Kind::kParam, {1, 2, 3, 4});
    add_tensor(untied, 0, tensor_id(Kind::kParam, kHead), {4}, {5, 6, 7, 8});
    Trace parts = candidate(Kind::kParam, {1, 2, 3, 4}, {5, 6, 7, 8});
    if (kind == Kind::kMainGrad) {
      add_tensor(untied, 0, tensor_id(kind, kHead), {4}, {9, 9, 9, 9});
      for (const std::size_t rank : {2, 3}) add_tensor(parts, rank, tensor_id(kind, kHead), {2}, {9, 9});
    }
    const std::string split = kTied + "\noutput_layer.weight: {tp_dim: 0}";
    CHECK(findings_in(checked(untied, parts, split)) == std::vector<std::string>{});
    CHECK(findings_in(checked(untied, candidate(Kind::kParam, {1, 2, 3, 4}, {1, 2, 3, 4}), split)).front() ==
          kHead + " param: exceeds-tolerance");
  }
}

TEST_CASE("the gradient of a tied parameter is the sum of what the stages add") {
  const Kind kind = Kind::kParamGrad;
  CHECK(checked(reference(kind, {1, 2, 3, 4}), candidate(kind, {1, 1, 1, 1}, {0, 1, 2, 3}), kTied).same());
  CHECK(findings_in(checked(reference(kind, {1, 2, 3, 4}), candidate(kind, {1, 1, 1, 1}, {0, 1, 2, 4}), kTied)) ==
        std::vector<std::string>{kEmbedding + " param_grad: exceeds-tolerance"});
}

TEST_CASE("stages that hold a parameter under one name share it: what each adds to its gradient is a term") {
  const auto stages = [](Kind kind, const std::vector<float>& first, const std::vector<float>& last) {
    Trace trace = mesh_trace("pp=2", 2);
    add_tensor(trace, 0, tensor_id(kind, kEmbedding), {4}, first);
    add_tensor(trace, 1, tensor_id(kind, kEmbedding), {4}, last);
    return trace;
  };
  const std::vector<float> whole = {1, 2, 3, 4}, one = {1, 1, 1, 1}, other = {0, 1, 2, 3};
  CHECK(checked(reference(Kind::kParamGrad, whole), stages(Kind::kParamGrad, one, other), "").same());
  CHECK(checked(reference(Kind::kParamGrad, whole), stages(Kind::kParamGrad, whole, whole), "").same());
  CHECK(findings_in(checked(reference(Kind::kParamGrad, whole), stages(Kind::kParamGrad, one, whole), "")) ==
        std::vector<std::string>{kEmbedding + " param_grad: exceeds-tolerance"});
  CHECK(findings_in(checked(reference(Kind::kMainGrad, whole), stages(Kind::kMainGrad, one, other), "")) ==
        std::vector<std::string>{kEmbedding + " main_grad: replicas-disagree"});
}

TEST_CASE("a stage that lacks its shard of a tied parameter is named") {
  Trace trace = candidate(Kind::kParamGrad, {1, 1, 1, 1}, {0, 1, 2, 3});
  trace.ranks[3].entries.clear();
  CHECK(only_finding(align(trace, annotations(kTied), {})).message ==
        kEmbedding + " param_grad, iteration 0: not there: [2:4] of rank 3 (tp=1, pp=1)");
}

TEST_CASE("two tied parameters of one process are two copies") {
  Trace trace = mesh_trace("", 1);
  float value = 1;
  for (const std::string& name : {kEmbedding, kHead}) {
    add_tensor(trace, 0, tensor_id(Kind::kParam, name), {4}, {1, 2, 3, 4});
    add_tensor(trace, 0, tensor_id(Kind::kParamGrad, name, 0), {4}, {value++, 2, 3, 4});
  }
  const Alignment alignment = align(trace, annotations(kTied), {});
  CHECK(alignment.findings.empty());
  CHECK(alignment.tensors.at(tensor_id(Kind::kParamGrad, kEmbedding, 0)).pieces()[1].term == 1);
}

TEST_CASE("one parameter that a process recorded under both names counts once") {
  Trace trace = mesh_trace("", 1);
  for (const std::string& name : {kEmbedding, kHead}) {
    add_tensor(trace, 0, tensor_id(Kind::kParam, name), {4}, {1, 2, 3, 4});
    add_tensor(trace, 0, tensor_id(Kind::kParamGrad, name, 0), {4}, {1, 2, 3, 4});
  }
  const Alignment alignment = align(trace, annotations(kTied), {});
  CHECK(alignment.findings.empty());
  CHECK(alignment.tensors.at(tensor_id(Kind::kParam, kEmbedding)).pieces().size() == 1);
  CHECK(alignment.tensors.at(tensor_id(Kind::kParamGrad, kEmbedding, 0)).pieces().size() == 1);
}

TEST_CASE("what stands before a tied name stays") {
  Trace trace = mesh_trace("pp=2", 2);
  add_tensor(trace, 0, tensor_id(Kind::kParam, "module." + kEmbedding), {1});
  add_tensor(trace, 1, tensor_id(Kind::kParam, "module." + kHead), {1});
  CHECK(only_tensor(align(trace, annotations(kTied), {})).id.name == "module." + kEmbedding);
}

TEST_SUITE_END();
