// Modules that are given another number of values in the reference than in the candidate, or return another number.
#include <doctest/doctest.h>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

Trace with(std::vector<std::pair<TensorId, float>> tensors) {
  Trace trace = mesh_trace("", 1);
  for (auto& [id, value] : tensors) add_tensor(trace, 0, id, {2}, {value, 2});
  return trace;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("the first value that is given or returned is one tensor, whether anything follows it or not") {
  for (const Kind kind : {Kind::kInput, Kind::kGradInput, Kind::kOutput, Kind::kGradOutput}) {
    CAPTURE(name_of(kind));
    const Kind of = kind == Kind::kInput || kind == Kind::kGradInput ? Kind::kInput : Kind::kOutput;
    const auto one = [&](const std::string& name, float value) {
      const TensorId given = tensor_id(of, name, 0), id = tensor_id(kind, name, 0);
      return kind == of ? with({{id, value}}) : with({{given, 1}, {id, value}});
    };
    for (const char* call : {"", "#1"}) {
      const std::string alone = std::string("attention") + call, first = std::string("attention:0") + call;
      CHECK(checked(one(alone, 1), one(first, 1), "").same());
      CHECK(checked(one(first, 1), one(alone, 1), "").same());
      CHECK(findings_in(checked(one(alone, 1), one(first, 3), "")).front() ==
            alone + " " + std::string(name_of(kind)) + ": exceeds-tolerance");
    }
  }
}

TEST_CASE("a second tensor that the candidate alone gives a module is missing in the reference") {
  const Trace reference = with({{tensor_id(Kind::kInput, "attention", 0), 1}});
  const Trace candidate =
      with({{tensor_id(Kind::kInput, "attention:0", 0), 1}, {tensor_id(Kind::kInput, "attention:1", 0), 1}});
  CHECK(findings_in(checked(reference, candidate, "")) == Names{"attention:1 input: missing-in-reference"});
}

TEST_CASE("what is given is not taken for another where the reference has both names, nor for what is returned") {
  const TensorId alone = tensor_id(Kind::kInput, "a", 0), first = tensor_id(Kind::kInput, "a:0", 0);
  CHECK(findings_in(checked(with({{alone, 1}, {first, 3}}), with({{first, 3}}), "")) ==
        Names{"a input: missing-in-candidate"});
  const TensorId member = tensor_id(Kind::kOutput, "a:0", 0);
  CHECK(findings_in(checked(with({{alone, 1}}), with({{alone, 1}, {member, 1}}), "")) ==
        Names{"a:0 output: missing-in-reference"});
  const TensorId second = tensor_id(Kind::kOutput, "a:1", 0), returned = tensor_id(Kind::kOutput, "a", 0);
  CHECK(findings_in(checked(with({{alone, 1}, {second, 1}}), with({{alone, 1}, {returned, 1}}), "")) ==
        Names{"a:1 output: missing-in-candidate", "a output: missing-in-reference"});
}
