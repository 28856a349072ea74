#include "align/passed_on.h"

#include <doctest/doctest.h>

#include "diagnose/root_causes.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// A linear, and a module that is given its output and returns `returned`.
Trace trace_with(float output, float returned) {
  Trace trace = mesh_trace("", 1);
  const auto add = [&](Kind kind, const std::string& name, Shape shape, float value) {
    add_tensor(trace, 0, tensor_id(kind, name, 0), std::move(shape), {value, 1, 2, 3});
  };
  add(Kind::kInput, "fc", {4}, 5);
  add(Kind::kOutput, "fc", {4}, output);
  add(Kind::kInput, "view", {4}, output);
  add(Kind::kOutput, "view", {2, 2}, returned);
  return trace;
}

// The names of the roots of a run whose modules were given the reference's values.
std::vector<std::string> roots_of(const Trace& reference, const Trace& candidate) {
  const Alignment a = align(reference, annotations(""), {}), b = align(candidate, annotations(""), layout_of(a));
  const Matching matching = match(a, b);
  Report report = judge_all(a, matching, compare(matching.pairs, {1, {}, false}), nullptr);
  add_root_causes(report, {a, b, candidate.mesh, {}, /*rewritten=*/true});
  std::vector<std::string> names;
  for (const RootCause& root : report.explanation.roots) names.push_back(report.findings[root.finding].id.name);
  return names;
}

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("what a module returns as it was given it, if in another shape, is passed on") {
  const Trace trace = trace_with(7, 7), other = trace_with(7, 8);
  const TensorId output = tensor_id(Kind::kOutput, "view", 0);
  CHECK(is_passed_on(align(trace, annotations(""), {}), output));
  CHECK_FALSE(is_passed_on(align(other, annotations(""), {}), output));
  CHECK_FALSE(is_passed_on(align(trace, annotations(""), {}), tensor_id(Kind::kOutput, "fc", 0)));
  CHECK_FALSE(is_passed_on(align(trace, annotations(""), {}), tensor_id(Kind::kInput, "view", 0)));
}

TEST_CASE("a module that passes on a wrong value is no root, and one that forgot to compute is") {
  CHECK(roots_of(trace_with(6, 6), trace_with(7, 7)) == std::vector<std::string>{"fc"});
  CHECK(roots_of(trace_with(6, 9), trace_with(7, 7)) == std::vector<std::string>{"fc", "view"});
}
