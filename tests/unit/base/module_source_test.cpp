#include "base/module_source.h"

#include <doctest/doctest.h>

using namespace ttrace;

TEST_SUITE_BEGIN("base");

TEST_CASE("a module's source is its class's forward and the line that calls it, in any layer") {
  const ModuleSources sources{{{"model.Mlp", {"model.py", 106}}},
                              {{"layers.#.mlp", {"model.py", 120}}, {"layers.3.mlp", {"model.py", 130}}}};
  CHECK(text_of(sources.of("layers.0.mlp", "model.Mlp")) == "in model.py:106, called at model.py:120");
  CHECK(text_of(sources.of("layers.3.mlp", "")) == "called at model.py:130");
  CHECK(text_of(sources.of("head", "model.Mlp")) == "in model.py:106");
  CHECK(text_of(sources.of("head", "other.Mlp")).empty());
}

TEST_CASE("a source says by which variable the program holds the model") {
  ModuleSources sources;
  sources.variables = {{"", "actor"}};
  CHECK_FALSE(sources.variable_of("0.weight"));  // there is no other
  sources.variables["model1"] = "agent.critic";
  sources.variables["Mlp"] = "target";
  CHECK(sources.variable_of("0.weight") == "actor");
  CHECK(sources.variable_of("model1.0.weight") == "agent.critic");
  CHECK(sources.variable_of("Mlp.0.weight") == "target");
  CHECK_FALSE(sources.variable_of("EMA.shadow.0.weight", true));
  ModuleSource source = sources.of("0", "");
  source.variable = "actor";
  CHECK(text_of(source) == "of the program's 'actor'");
  source.call = CodeLine{"train.py", 7};
  CHECK(text_of(source) == "called at train.py:7, of the program's 'actor'");
}

TEST_CASE("the best line is one of the repository") {
  const CodeLine own{"model.py", 1}, other{"train.py", 2}, library{"/usr/lib/x.py", 3};
  CHECK(*best_line({own, other}) == own);
  CHECK(*best_line({library, other}) == other);
  CHECK(*best_line({library, library}) == library);
  CHECK(best_line({}) == nullptr);
}
