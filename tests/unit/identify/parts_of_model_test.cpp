// Models of ranks that are modules, or hold modules, of the reference's model.
#include "identify/parts_of_model.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

struct NamedValue {
  std::string name;
  float value;
};

using NamedValues = std::vector<NamedValue>;

const NamedValues kWhole = {{"embed.weight", 1},    {"layers.0.norm", 9}, {"layers.0.weight", 2}, {"layers.1.norm", 9},
                            {"layers.1.weight", 3}, {"norm.norm", 9},     {"head.weight", 4}};

void add_parameters(Trace& trace, std::size_t rank, std::int32_t chunk, const NamedValues& parameters) {
  for (const NamedValue& parameter : parameters) {
    TensorId id = tensor_id(Kind::kParam, parameter.name);
    id.chunk = chunk;
    add_tensor(trace, rank, id, {2}, {parameter.value, 1});
  }
}

void add_call(Trace& trace, std::size_t rank, std::int32_t chunk, const std::string& module, float given) {
  for (const Kind kind : {Kind::kInput, Kind::kOutput}) {
    TensorId id = tensor_id(kind, module, 0);
    id.chunk = chunk;
    add_tensor(trace, rank, id, {2}, {given, kind == Kind::kInput ? 5.0F : 6.0F});
    trace.ranks[rank].entries.back().module_class = "torch.nn.Tanh";
  }
}

Trace whole() {
  Trace trace = mesh_trace("", 1);
  add_parameters(trace, 0, 0, kWhole);
  add_call(trace, 0, 0, "(model)", 1);
  add_call(trace, 0, 0, "embed", 1);
  add_call(trace, 0, 0, "layers.2", 7);
  return trace;
}

// The names of the rank's tensors afterwards, with the number of their model where that is not the first.
std::set<std::string> names_after(Trace candidate, std::size_t rank) {
  const std::vector<std::string> notes = name_parts_as_in_whole(whole(), candidate);
  std::set<std::string> names;
  for (const Entry& entry : candidate.ranks[rank].entries) {
    names.insert((entry.id.chunk == 0 ? "" : std::to_string(entry.id.chunk) + "/") + entry.id.name.get());
  }
  return names;
}

using SetOfNames = std::set<std::string>;

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("models of a rank that are modules of the reference's model have its names, and are one model") {
  Trace candidate = mesh_trace("pp=2", 2);
  add_parameters(candidate, 0, 0, {{"weight", 1}});
  add_call(candidate, 0, 0, "(model)", 1);
  add_parameters(candidate, 0, 1, {{"norm", 9}, {"weight", 3}});
  add_parameters(candidate, 1, 0, {{"norm", 9}, {"weight", 2}});
  CHECK(names_after(candidate, 0) ==
        SetOfNames{"embed.weight", "embed", "(model)", "layers.1.norm", "layers.1.weight"});
  CHECK(names_after(candidate, 1) == SetOfNames{"layers.0.norm", "layers.0.weight"});
}

TEST_CASE("so have the modules that a rank's model numbers from 0, those with equal values by what is left") {
  Trace candidate = mesh_trace("pp=2", 2);
  add_parameters(candidate, 0, 0, {{"0.weight", 1}, {"1.norm", 9}, {"1.weight", 2}});
  add_parameters(candidate, 1, 0, {{"0.norm", 9}, {"0.weight", 3}, {"2.norm", 9}, {"3.weight", 4}});
  add_call(candidate, 1, 0, "1", 7);  // behind layers.1
  CHECK(names_after(candidate, 0) == SetOfNames{"embed.weight", "layers.0.norm", "layers.0.weight"});
  CHECK(names_after(candidate, 1) ==
        SetOfNames{"layers.1.norm", "layers.1.weight", "layers.2", "norm.norm", "head.weight"});
}

TEST_CASE(
    "names stay where parameters begin otherwise, where they are the reference's, and where a child is not found") {
  const auto stays = [](const NamedValues& parameters) {
    Trace candidate = mesh_trace("", 1);
    add_parameters(candidate, 0, 0, parameters);
    SetOfNames names;
    for (const NamedValue& parameter : parameters) names.insert(parameter.name);
    return names_after(candidate, 0) == names;
  };
  CHECK(stays({{"0.weight", 5}}));
  CHECK(stays(kWhole));
  CHECK(stays({{"0.weight", 1}, {"1.gain", 2}}));
  CHECK(stays({{"5.norm", 9}}));  // of three
  CHECK_FALSE(stays({{"0.weight", 1}}));
}

TEST_SUITE_END();
