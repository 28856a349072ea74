// One parameter of the reference under two names, of which stages of the candidate have a copy each.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "identify/ties.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const std::string kTable = "emb.weight", kTiedHead = "head.weight";

void add_parameter(Trace& trace, std::size_t rank, const std::string& name, float value, float gradient) {
  add_tensor(trace, rank, tensor_id(Kind::kParam, name), {2}, {value, 1});
  add_tensor(trace, rank, tensor_id(Kind::kMainGrad, name), {2}, {gradient, gradient});
  add_tensor(trace, rank, tensor_id(Kind::kParamAfter, name), {2}, {value - gradient, 1});
}

Trace tied_reference(float head = 4, float gradient = 2) {
  Trace trace = mesh_trace("", 1);
  add_parameter(trace, 0, kTable, 4, gradient);
  add_parameter(trace, 0, kTiedHead, head, gradient);
  return trace;
}

Trace untied_stages(float head = 4, const std::string& more = "") {
  Trace trace = mesh_trace("pp=2", 2);
  add_parameter(trace, 0, kTable, 4, 2);
  add_parameter(trace, 1, kTiedHead, head, 2);
  if (!more.empty()) add_parameter(trace, 1, more, 4, 2);
  return trace;
}

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("copies of what is one parameter in the reference are tied by its bytes") {
  const auto ties = ties_of_bytes(tied_reference(), untied_stages());
  REQUIRE(ties.size() == 1);
  CHECK(ties[0].name == kTiedHead);
  CHECK(ties[0].of == kTable);
}

TEST_CASE("parameters are not tied that differ, that have no gradient, or that one rank has under both names") {
  CHECK(ties_of_bytes(tied_reference(5), untied_stages()).empty());
  CHECK(ties_of_bytes(tied_reference(4, 0), untied_stages()).empty());
  CHECK(ties_of_bytes(tied_reference(), untied_stages(4, kTable)).empty());
}

TEST_CASE("a copy that begins with other bytes is none") {
  CHECK(ties_of_bytes(tied_reference(), untied_stages(5)).empty());
}

TEST_CASE("a name that ends another's is left alone, for it would tie that, too") {
  CHECK(ties_of_bytes(tied_reference(), untied_stages(4, "aux.head.weight")).empty());
}
