// Losses of samples that each rank has gathered from all.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const std::vector<float> kAll = {1, 2, 3, 4, 5, 6, 7, 8};  // four samples, or gradients with respect to them
const std::vector<float> kOtherOrder = {5, 6, 7, 8, 1, 2, 3, 4};

// What a rank computes of the four samples.
struct Gathering {
  float loss = 6, main_gradient = 8;
  float inner = 1;  // the multiple of the gradients behind the criterion
  bool owns_first = false;
  float kept = 0;  // what is wrong of its buffer
};

std::vector<float> times(float factor, std::vector<float> values) {
  for (float& value : values) value *= factor;
  return values;
}

std::vector<float> part_of(const std::vector<float>& values, std::size_t rank, std::size_t ranks) {
  const auto size = static_cast<std::ptrdiff_t>(values.size() / ranks);
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(rank) * size;
  return {begin, begin + size};
}

Trace trace_of_gathering(const char* axes, const std::vector<Gathering>& ranks) {
  Trace trace = mesh_trace(axes, static_cast<std::int32_t>(ranks.size()));
  const auto samples = static_cast<std::int64_t>(4 / ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Gathering& own = ranks[rank];
    const bool is_other = own.owns_first && rank > 0;
    const std::vector<float>& gathered = is_other ? kOtherOrder : kAll;
    const std::vector<float> part = part_of(kAll, rank, ranks.size());
    const auto scale = static_cast<float>(ranks.size());
    test::add_tensor(trace, rank, tensor_id(Kind::kParam, "fc.weight"), {2}, {1, 2});
    test::add_tensor(trace, rank, tensor_id(Kind::kInput, "(model)", 0), {samples, 2}, part);
    test::add_tensor(trace, rank, tensor_id(Kind::kOutput, "(model)", 0), {samples, 2}, part);
    test::add_tensor(trace, rank, tensor_id(Kind::kInput, "Gathered.loss", 0), {4, 2}, gathered);
    test::add_tensor(trace, rank, tensor_id(Kind::kOutput, "Gathered", 0), {}, {own.loss});
    test::add_tensor(trace, rank, tensor_id(Kind::kScalar, "loss", 0), {}, {own.loss});
    test::add_tensor(trace, rank, tensor_id(Kind::kGradInput, "Gathered.loss", 0), {4, 2}, times(own.inner, gathered));
    test::add_tensor(trace, rank, tensor_id(Kind::kGradOutput, "(model)", 0), {samples, 2}, times(scale, part));
    test::add_tensor(trace, rank, tensor_id(Kind::kMainGrad, "fc.weight"), {2}, {own.main_gradient, 2});
    std::vector<float> kept = gathered;
    kept[0] += own.kept;
    test::add_tensor(trace, rank, tensor_id(Kind::kBufferAfter, "Gathered.loss.kept"), {4, 2}, kept);
  }
  return trace;
}

Report checked_gathering(const std::vector<Gathering>& ranks) {
  return checked(trace_of_gathering("", {{}}), trace_of_gathering("dp=2", ranks), "parallelism: {loss_scale: dp}");
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a whole loss on every rank, times the loss scale, is right where training is, and a note says so") {
  const Report report = checked_gathering({{12, 8, 2}, {12, 8, 2}});
  CHECK(findings_in(report) == Lines{});
  CHECK(has(report.notes.back(), "each rank has the loss of all samples"));
}

TEST_CASE("it is not where a step takes another gradient, where ranks have unlike losses, or another multiple") {
  CHECK(!checked_gathering({{12, 16, 2}, {12, 16, 2}}).same());
  for (const auto& [first, second] : {std::pair(12.F, 11.F), {18.F, 18.F}, {11.F, 13.5F}}) {
    CAPTURE(first);
    const Lines wrong = findings_in(checked_gathering({{first, 8, 2}, {second, 8, 2}}));
    CHECK(std::find(wrong.begin(), wrong.end(), "loss scalar: exceeds-tolerance") != wrong.end());
  }
}

TEST_CASE("a gradient behind it that is another multiple is wrong") {
  CHECK(findings_in(checked_gathering({{12, 8, 3}, {12, 8, 3}})) ==
        Lines{"Gathered.loss grad_input: exceeds-tolerance"});
}

TEST_CASE("samples that ranks have in other orders are compared on the first, and the note says so") {
  const Report report = checked_gathering({{12, 8, 2, true}, {12, 8, 2, true}});
  CHECK(findings_in(report) == Lines{});
  CHECK(has(report.notes.back(), "in another order than the first rank"));
  CHECK(has(report.notes.back(), "of Gathered,"));
}

TEST_CASE("a buffer with other rows than the first rank's is wrong, in whatever order") {
  CHECK(findings_in(checked_gathering({{12, 8, 2, true}, {12, 8, 2, true, 1}})) ==
        Lines{"Gathered.loss.kept buffer_after: replicas-disagree"});
  CHECK(!checked_gathering({{12, 8, 2, true}, {12, 16, 2, true}}).same());
}
