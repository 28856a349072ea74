// Modules that only hold another one, which the reference does not have.
#include "identify/wrappers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// One process: parameters by name, each beginning with a value of its own, and the outputs of modules.
Trace program(const std::vector<std::pair<std::string, float>>& parameters, const std::vector<std::string>& outputs) {
  Trace trace = mesh_trace("", 1);
  for (const auto& [name, value] : parameters) add_tensor(trace, 0, tensor_id(Kind::kParam, name), {2}, {value, 1});
  for (const std::string& name : outputs) add_tensor(trace, 0, tensor_id(Kind::kOutput, name, 0), {2}, {5, 6});
  return trace;
}

std::vector<std::string> names_in(const Trace& trace) {
  std::vector<std::string> names;
  for (const Entry& entry : trace.ranks[0].entries) names.push_back(entry.id.name);
  return names;
}

using Names = std::vector<std::string>;

const Trace kPlain = program({{"embed.weight", 1}, {"head.weight", 2}}, {"embed", "head", "(model)"});

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("a wrapper's attribute is left out of the names inside, and a note names it") {
  Trace candidate =
      program({{"net.embed.weight", 1}, {"net.head.weight", 2}}, {"net.embed", "net.head", "net", "(model)"});
  const auto notes = see_through_wrappers(kPlain, candidate);
  REQUIRE(notes.size() == 1);
  CHECK(has(notes[0], "the reference's: net"));
  // The calls of both hand over the same: the wrapper's are the reference's model's.
  CHECK(names_in(candidate) == Names{"embed.weight", "head.weight", "embed", "head", "net", "(model)"});
}

TEST_CASE("two wrappers, one inside the other, are seen through at once") {
  Trace candidate = program({{"a.b.embed.weight", 1}, {"a.b.head.weight", 2}}, {"a.b.embed", "a.b.head"});
  CHECK(see_through_wrappers(kPlain, candidate).size() == 1);
  CHECK(names_in(candidate) == Names{"embed.weight", "head.weight", "embed", "head"});
}

TEST_CASE("names alone do not make a wrapper of a module whose parameters begin otherwise") {
  Trace candidate = program({{"net.embed.weight", 7}, {"net.head.weight", 8}}, {"net.embed", "net.head"});
  CHECK(see_through_wrappers(kPlain, candidate).empty());
  CHECK(names_in(candidate) == Names{"net.embed.weight", "net.head.weight", "net.embed", "net.head"});
}

TEST_CASE("a module that holds two, or whose attribute the reference has, is none") {
  for (const char* const other : {"tail.weight", "net.weight"}) {
    CAPTURE(other);
    Trace two = program({{"net.embed.weight", 1}, {"net.head.weight", 2}, {"tail.weight", 3}}, {});
    Trace trusted = program({{"embed.weight", 1}, {"head.weight", 2}, {other, 3}}, {});
    if (std::string(other) == "net.weight") two = program({{"net.embed.weight", 1}, {"net.head.weight", 2}}, {});
    CHECK(see_through_wrappers(trusted, two).empty());
  }
}

TEST_CASE("a parameter that the candidate lacks inside a wrapper is still missing") {
  Trace candidate = program({{"net.embed.weight", 1}}, {"net.embed", "net.head"});
  CHECK(see_through_wrappers(kPlain, candidate).size() == 1);
  CHECK(names_in(candidate) == Names{"embed.weight", "embed", "head"});
}

TEST_CASE("wrappers of every layer are seen through, and what is said of all layers with them") {
  const Trace trusted = program({{"h.0.fc.weight", 1}, {"h.1.fc.weight", 2}, {"out.weight", 3}}, {});
  Trace candidate = program({{"h.0.inner.fc.weight", 1}, {"h.1.inner.fc.weight", 2}, {"out.weight", 3}}, {});
  NotSeen statement;
  statement.modules = {"h.#.inner.fc"};
  candidate.ranks[0].not_seen.push_back(statement);
  const auto notes = see_through_wrappers(trusted, candidate);
  REQUIRE(notes.size() == 1);
  CHECK(has(notes[0], "h.#.inner"));
  CHECK(names_in(candidate) == Names{"h.0.fc.weight", "h.1.fc.weight", "out.weight"});
  CHECK(candidate.ranks[0].not_seen[0].modules == Names{"h.#.fc"});
}

namespace {

// Beside a model, a criterion that goes by its class, in a wrapper of another class or by itself.
Trace with_criterion(const std::string& within, const std::string& inner_class, const std::string& term) {
  Trace trace = program({{"fc.weight", 1}}, {"fc"});
  const auto call = [&](const std::string& name, const std::string& module_class) {
    add_tensor(trace, 0, tensor_id(Kind::kOutput, name, 0), {}, {3});
    trace.ranks[0].entries.back().module_class = module_class;
  };
  const std::string path = within.empty() ? "Memory" : within + ".loss";
  if (!within.empty()) call(within, "wrappers." + within);
  call(path, inner_class);
  call(path + "." + term, "losses.Term");
  add_tensor(trace, 0, tensor_id(Kind::kBufferAfter, path + ".kept"), {2}, {8, 9});
  return trace;
}

}  // namespace

TEST_CASE(
    "a module outside of the model is the one that the reference calls by itself, by its class and what is inside") {
  Trace candidate = with_criterion("Gathered", "losses.Memory", "term");
  const auto notes = see_through_wrappers(with_criterion("", "losses.Memory", "term"), candidate);
  REQUIRE(notes.size() == 1);
  CHECK(has(notes[0], "Memory (Gathered.loss)"));
  CHECK(names_in(candidate) == Names{"fc.weight", "fc", "Gathered", "Memory", "Memory.term", "Memory.kept"});
}

TEST_CASE("of another class, with other modules inside, or beside one that is called by itself, it is none") {
  const Trace trusted = with_criterion("", "losses.Memory", "term");
  for (const auto& [module_class, term] :
       {std::pair("losses.Other", "term"), {"other.Memory", "term"}, {"losses.Memory", "other"}}) {
    CAPTURE(module_class);
    Trace candidate = with_criterion("Gathered", module_class, term);
    CHECK(see_through_wrappers(trusted, candidate).empty());
  }
  Trace both = with_criterion("Gathered", "losses.Memory", "term");
  add_tensor(both, 0, tensor_id(Kind::kOutput, "Memory", 0), {}, {3});
  CHECK(see_through_wrappers(trusted, both).empty());
}
