#include "format/provenance.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"

using namespace ttrace;

namespace {

std::string refusal_of(const std::string& text) {
  try {
    parse_provenance(text, "runs/a");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("format");

TEST_CASE("what `ttrace collect` says of a run is read") {
  const std::string text =
      R"({"command": ["python", "train.py"], "directory": "/work", "axes": "tp=2", "started": "now",
    "git_commit": null, "python": "3.11", "torch": "2.13.0", "device": "cpu", "recording_seconds": 1.5,
    "perturb_seed": 3, "perturb_at": "modules", "other": {"a": [1]},
    "rewritten": {"source": "b", "activations": "generated", "parameters": null, "seed": 7}})";
  const Provenance run = parse_provenance(text, "runs/a");
  CHECK(run.text == text);
  CHECK(run.command == std::vector<std::string>{"python", "train.py"});
  CHECK(run.directory == "/work");
  CHECK(run.axes == "tp=2");
  CHECK(run.started == "now");
  CHECK(run.git_commit == "");
  CHECK(run.python == "3.11");
  CHECK(run.torch == "2.13.0");
  CHECK(run.device == "cpu");
  CHECK(run.recording_seconds == 1.5);
  CHECK(run.perturb_seed == 3);
  CHECK(run.perturb_at == Estimator::kModules);
  CHECK(run.rewritten == RewrittenFrom{"b", "generated", "", 7});
}

TEST_CASE("what another recorder leaves out is not known, and a run is unperturbed and of its own values") {
  for (const std::string text :
       {"{}", R"({"perturb_seed": null, "perturb_at": null, "rewritten": null, "axes": null})"}) {
    const Provenance run = parse_provenance(text, "runs/a");
    CHECK(run.command.empty());
    CHECK(!run.axes);
    CHECK(run.torch == "");
    CHECK(run.recording_seconds == 0);
    CHECK(!run.perturb_seed);
    CHECK(!run.rewritten);
  }
  CHECK(parse_provenance(R"({"perturb_seed": 18446744073709551615})", "runs/a").perturb_at == Estimator::kInput);
}

TEST_CASE("facts of other types are not known") {
  const Provenance run = parse_provenance(
      R"({"command": "train", "directory": 1, "axes": {}, "started": [], "git_commit": false, "python": 3.11,
          "torch": {"version": 2}, "device": [["cpu"]], "recording_seconds": "1"})",
      "runs/a");
  CHECK(run.command.empty());
  CHECK(run.directory + run.started + run.git_commit + run.python + run.torch + run.device == "");
  CHECK(!run.axes);
  CHECK(run.recording_seconds == 0);
  CHECK(parse_provenance(R"({"command": ["python", 3, "train.py"]})", "runs/a").command.empty());
}

TEST_CASE("what is no JSON object is refused") {
  for (const std::string text : {"", "{", "[]", "null", "7", R"("{}")", "{} {}", "\xff"}) {
    CAPTURE(text);
    CHECK(refusal_of(text) == "runs/a: its provenance is no JSON object; expected one");
  }
}

TEST_CASE("a run that does not rightly say which values it computed with is refused") {
  for (const std::string seed : {"-1", "1.5", "\"two\"", "[1]", "{}", "true", "18446744073709551616"}) {
    CAPTURE(seed);
    CHECK(refusal_of(R"({"perturb_seed": )" + seed + "}") ==
          "runs/a: its provenance has a perturb_seed that is no seed; expected an integer from 0");
  }
  for (const std::string place : {"null", "1", "[\"input\"]"}) {
    CAPTURE(place);
    CHECK(refusal_of(R"({"perturb_seed": 1, "perturb_at": )" + place + "}") ==
          "runs/a: its provenance has a perturb_at " + place + "; expected one of input, modules, rewritten");
  }
  for (const std::string rewritten :
       {"7", "[]", "{}", R"({"source": 1, "activations": null, "parameters": null})",
        R"({"source": "b", "activations": "guessed", "parameters": null})",
        R"({"source": "b", "activations": null, "parameters": ["recorded"]})", R"({"source": "b", "parameters": null})",
        R"({"source": "b", "activations": null, "parameters": null, "seed": -1})"}) {
    CAPTURE(rewritten);
    CHECK(refusal_of(R"({"rewritten": )" + rewritten + "}") ==
          "runs/a: its provenance has a 'rewritten' that is none; expected what `ttrace collect` writes");
  }
}

TEST_SUITE_END();

namespace {

std::string refusal_of_not_seen(const std::string& list) {
  try {
    parse_not_seen(R"({"not_seen": )" + list + "}", "runs/a");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("what a rank could not record is read") {
  const std::vector<NotSeen> statements = parse_not_seen(
      R"({"not_seen": [{"reason": "compiled", "kinds": ["input", "output"], "iterations": [0, 2], "chunk": 1,
          "tensors": ["a:0"], "modules": ["b", "c"]}, {"reason": "r", "kinds": ["param"], "iterations": []}]})",
      "runs/a");
  REQUIRE(statements.size() == 2);
  CHECK(statements[0].reason == "compiled");
  CHECK(statements[0].kinds == std::set{Kind::kInput, Kind::kOutput});
  CHECK(statements[0].iterations == std::set<std::int32_t>{0, 2});
  CHECK(statements[0].chunk == 1);
  CHECK(statements[0].tensors == std::vector<std::string>{"a:0"});
  CHECK(statements[0].modules == std::vector<std::string>{"b", "c"});
  CHECK(statements[1].chunk == 0);
  CHECK(!statements[0].everything);
  CHECK(parse_not_seen("{}", "runs/a").empty());
}

TEST_CASE(
    "what was left out by design is told from what could not be seen, and what a run was told to record is read") {
  const auto statements = parse_not_seen(
      R"({"not_seen": [{"reason": "r", "kinds": ["output"], "iterations": [0], "modules": ["a"], "by_design": true}]})",
      "runs/a");
  REQUIRE(statements.size() == 1);
  CHECK(statements[0].by_design);
  const Provenance provenance =
      parse_provenance(R"({"selection": {"only": ["a"], "except": [], "kinds": ["output"], "depth": 2}})", "runs/a");
  CHECK(provenance.selection.only == std::vector<std::string>{"a"});
  CHECK(provenance.selection.kinds == std::vector<std::string>{"output"});
  CHECK(provenance.selection.depth == 2);
  CHECK(parse_provenance(R"({"selection": null})", "runs/a").selection == RecordingSelection{});
  CHECK(parse_provenance(R"({"selection": {"only": 1, "depth": -1}})", "runs/a").selection == RecordingSelection{});
}

TEST_CASE("a trace that holds less by design is read") {
  const auto statements = parse_not_seen(R"({"not_seen": [{"reason": "imported", "everything": true}]})", "runs/a");
  REQUIRE(statements.size() == 1);
  CHECK(statements[0].everything);
  CHECK(statements[0].reason == "imported");
  CHECK(refusal_of_not_seen(R"([{"everything": true}])") != "");
  CHECK(refusal_of_not_seen(R"([{"reason": "r", "everything": 1}])") != "");
}

TEST_CASE("a list of what was not seen that is none is refused") {
  const std::string malformed =
      "runs/a: its provenance has a 'not_seen' that is none; expected what `ttrace collect` writes";
  for (const std::string list :
       {"1", "[1]", R"([{"kinds": [], "iterations": []}])", R"([{"reason": "r", "kinds": "input", "iterations": [0]}])",
        R"([{"reason": "r", "kinds": [], "iterations": [0], "modules": [1]}])"}) {
    CHECK(refusal_of_not_seen(list) == malformed);
  }
  const std::string expected = "; expected kinds and names of tensors, at most 10000";
  CHECK(refusal_of_not_seen(R"([{"reason": "r", "kinds": ["x"], "iterations": []}])") ==
        "runs/a: its provenance says of the kind 'x' that it was not seen" + expected);
  CHECK(refusal_of_not_seen(R"([{"reason": "r", "kinds": [], "iterations": [], "tensors": [""]}])") ==
        "runs/a: its provenance says of the name '' that it was not seen" + expected);
  std::string names = R"("m")";
  for (std::size_t i = 0; i < kMaxNamesNotSeen; ++i) names += R"(,"m")";
  CHECK(refusal_of_not_seen(R"([{"reason": "r", "kinds": [], "iterations": [], "modules": [)" + names + "]}]") ==
        "runs/a: its provenance says of 10001 names that it was not seen" + expected);
}

namespace {

std::string refusal_of_steps(const std::string& document) {
  try {
    parse_optimizer_steps(R"({"optimizer_steps": )" + document + "}", "runs/a");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// A document with one sound step, but for `changed`, the fields that replace its own.
std::string one_step(const std::string& changed) {
  nlohmann::json step = {{"iteration", 0}, {"chunk", 0},         {"parameters", 0},
                         {"calls", 1},     {"optimizer", "SGD"}, {"options", {{"lr", 0.5}}}};
  step.update(nlohmann::json::parse(changed));
  return R"({"parameters": [["w"]], "steps": [)" + step.dump() + "]}";
}

}  // namespace

TEST_CASE("what a rank says of its optimizers' steps is read") {
  const std::vector<OptimizerStep> steps = parse_optimizer_steps(
      R"({"optimizer_steps": {"parameters": [["a.weight", "a.bias"], ["b"]], "steps": [
          {"iteration": 3, "chunk": 1, "parameters": 0, "optimizer": "torch.optim.adam.Adam", "step": 4, "calls": 2,
           "clip_factor": 0.5, "master": "float32", "changed_after": true, "options": {"lr": 1e-3, "amsgrad": 0}},
          {"iteration": 3, "chunk": 0, "parameters": 1, "optimizer": "", "calls": 0, "options": {}}]}})",
      "runs/a");
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].iteration == 3);
  CHECK(steps[0].chunk == 1);
  CHECK(steps[0].parameters == std::vector<std::string>{"a.weight", "a.bias"});
  CHECK(steps[0].optimizer == "torch.optim.adam.Adam");
  CHECK(steps[0].options == std::map<std::string, double>{{"lr", 1e-3}, {"amsgrad", 0}});
  CHECK(steps[0].step == 4);
  CHECK(steps[0].calls == 2);
  CHECK(steps[0].clip_factor == 0.5);
  CHECK(steps[0].master == "float32");
  CHECK(steps[0].changed_after);
  CHECK(steps[1].parameters == std::vector<std::string>{"b"});
  CHECK(steps[1].optimizer == "");
  CHECK(steps[1].options.empty());
  CHECK(!steps[1].step);
  CHECK(steps[1].calls == 0);
  CHECK(!steps[1].clip_factor);
  CHECK(steps[1].master == "");
  CHECK(!steps[1].changed_after);
  CHECK(parse_optimizer_steps("{}", "runs/a").empty());
}

TEST_CASE("optimizers that a rank says took no step are read, and what are none is refused") {
  const auto parse = [](const std::string& unstepped) {
    return parse_unstepped(R"({"optimizer_steps": {"parameters": [], "steps": [], "unstepped": )" + unstepped + "}}",
                           "runs/a");
  };
  CHECK(parse(R"([{"optimizer": "torch.optim.adam.Adam", "parameters": 6}])") ==
        std::vector<UnsteppedOptimizer>{{"torch.optim.adam.Adam", 6}});
  CHECK(parse_unstepped("{}", "runs/a").empty());
  CHECK(parse_unstepped(R"({"optimizer_steps": {"parameters": [], "steps": []}})", "runs/a").empty());
  for (const std::string document : {"1", "[1]", R"([{"optimizer": "SGD"}])", R"([{"optimizer": 1, "parameters": 1}])",
                                     R"([{"optimizer": "SGD", "parameters": -1}])"}) {
    CAPTURE(document);
    CHECK_THROWS_WITH_AS(
        parse(document),
        "runs/a: its provenance has 'unstepped' that are no optimizers; expected what `ttrace collect` writes",
        InputError);
  }
}

TEST_CASE("what a rank keeps beside its models is read, nothing is no statement, and what are no names is refused") {
  CHECK(parse_kept(R"({"kept": {"titles": ["EMA.shadow", "Teacher"]}})", "runs/a") ==
        KeptModels{"EMA.shadow", "Teacher"});
  CHECK(parse_kept(R"({"kept": {"titles": []}})", "runs/a") == KeptModels{});
  CHECK(parse_kept("{}", "runs/a") == std::nullopt);
  for (const std::string document : {"1", R"(["EMA"])", "{}", R"({"titles": 1})", R"({"titles": [1]})"}) {
    CAPTURE(document);
    CHECK_THROWS_WITH_AS(parse_kept(R"({"kept": )" + document + "}", "runs/a"),
                         "runs/a: its provenance has 'kept' that are no names; expected what `ttrace collect` writes",
                         InputError);
  }
}

TEST_CASE("steps of an optimizer that are none are refused") {
  const std::string malformed =
      "runs/a: its provenance has 'optimizer_steps' that are none; expected what `ttrace collect` writes";
  CHECK(refusal_of_steps(one_step("{}")) == "");
  for (const std::string document : {"1", "[]", R"({"steps": []})", R"({"parameters": []})",
                                     R"({"parameters": [[1]], "steps": []})", R"({"parameters": [], "steps": [1]})"}) {
    CAPTURE(document);
    CHECK(refusal_of_steps(document) == malformed);
  }
  for (const std::string changed : {R"({"options": 1})", R"({"options": [0.5]})", R"({"options": {"lr": true}})",
                                    R"({"options": {"lr": "1"}})", R"({"optimizer": null})", R"({"step": "1"})",
                                    R"({"clip_factor": null})", R"({"master": 1})", R"({"changed_after": 1})"}) {
    CAPTURE(changed);
    CHECK(refusal_of_steps(one_step(changed)) == malformed);
  }
  const auto with = [](const std::string& what) {
    return "runs/a: its provenance has 'optimizer_steps' with " + what + "; expected what `ttrace collect` writes";
  };
  for (const std::string key : {"iteration", "chunk", "calls", "parameters"}) {
    for (const std::string number : {"-1", "0.5", "true", "null", "2147483648", "18446744073709551615"}) {
      CAPTURE(key + number);
      CHECK(refusal_of_steps(one_step("{\"" + key + "\": " + number + "}")) ==
            with("a '" + key + "' that is no number from 0 to 2147483647"));
    }
  }
  CHECK(refusal_of_steps(one_step(R"({"parameters": 1})")) == with("list 1 of 1 lists of parameters"));
  CHECK(refusal_of_steps(one_step(R"({"master": "float33"})")) == with("the dtype 'float33'"));
  CHECK(refusal_of_steps(R"({"parameters": [[""]], "steps": []})") == with("the name ''"));
}

TEST_CASE("steps that name more parameters than memory should hold are refused") {
  nlohmann::json step = {{"iteration", 0}, {"chunk", 0},      {"parameters", 0},
                         {"calls", 1},     {"optimizer", ""}, {"options", nlohmann::json::object()}};
  const nlohmann::json document = {{"parameters", {std::vector<std::string>(kMaxNamesInSteps / 2, "w")}},
                                   {"steps", {step, step, step}}};
  CHECK(refusal_of_steps(document.dump()) ==
        "runs/a: its provenance has 'optimizer_steps' with more than 1000000 names of parameters; expected what "
        "`ttrace collect` writes");
}

TEST_CASE("where modules are is read, and a trace that says nothing of it is read as well") {
  CHECK(parse_sources("{}", "runs/a") == nullptr);
  CHECK(parse_sources(R"({"sources": null})", "runs/a") == nullptr);
  const auto sources = parse_sources(
      R"({"sources": {"files": ["a.py", "/b.py"], "forwards": {"m.Mlp": [0, 7]}, "calls": {"mlp": [1, 9]}}})",
      "runs/a");
  REQUIRE(sources != nullptr);
  CHECK(text_of(sources->of("mlp", "m.Mlp")) == "in a.py:7, called at /b.py:9");
}

TEST_CASE("configurations give modules their attributes, with those of objects that several have") {
  CHECK(parse_configurations("{}", "runs/a") == nullptr);
  const auto configurations = parse_configurations(
      R"({"configurations": {"objects": [{"theta": "1.0"}],
          "values": [{"class": "m.Mlp", "attributes": {"p": "0.1"}, "objects": {"config": 0}}],
          "modules": [{"layers.#.mlp": 0}, {"head": 0}]}})",
      "runs/a");
  REQUIRE(configurations != nullptr);
  const ModuleConfiguration* mlp = configurations->of(0, "layers.3.mlp");
  REQUIRE(mlp != nullptr);
  CHECK(mlp->module_class == "m.Mlp");
  CHECK(mlp->attributes == std::map<std::string, std::string>{{"config.theta", "1.0"}, {"p", "0.1"}});
  CHECK(configurations->of(0, "head") == nullptr);
  CHECK(configurations->of(1, "head") == mlp);
  CHECK(configurations->of(2, "head") == nullptr);
}

TEST_CASE("configurations of another shape are refused") {
  for (const char* const wrong :
       {"3", "{}", R"({"objects": [], "values": [], "modules": [{"head": 0}]})",
        R"({"objects": [], "values": [{"class": "m", "attributes": {"p": 1}}], "modules": []})"}) {
    CHECK_THROWS_WITH_AS(
        parse_configurations(R"({"configurations": )" + std::string(wrong) + "}", "runs/a"),
        "runs/a: its provenance has 'configurations' that are none; expected what `ttrace collect` writes", InputError);
  }
}

TEST_CASE("draws are told by call, and where the list is cut by module") {
  CHECK(parse_draws("{}", "runs/a") == nullptr);
  const std::string document = R"({"draws": {"modules": ["drop", "drop#1", "up"], "calls": [
      [0, "output", 0, 1, 0, "forward", 17], [1, "output", 0, 1, 0, "recompute", 18],
      [2, "input", 0, 1, 0, "forward", 19]])";
  const auto recorded = [](Kind kind, const std::string& name, std::int32_t microbatch, Pass pass = Pass::kForward) {
    return TensorId{0, microbatch, 0, pass, kind, name};
  };
  const auto draws = parse_draws(document + "}}", "runs/a");
  REQUIRE(draws != nullptr);
  CHECK(draws->state_before(recorded(Kind::kOutput, "drop", 1)) == 17);
  CHECK(draws->state_before(recorded(Kind::kOutput, "drop:0#1", 1, Pass::kRecompute)) == 18);
  CHECK(draws->holds(recorded(Kind::kInput, "up:mask", 1)));
  CHECK(!draws->holds(recorded(Kind::kOutput, "drop", 0)));
  CHECK(!draws->holds(recorded(Kind::kOutput, "up", 1)));
  const auto cut = parse_draws(document + R"(, "cut": true}})", "runs/a");
  CHECK(cut->holds(recorded(Kind::kOutput, "drop", 0)));
  CHECK(!cut->state_before(recorded(Kind::kOutput, "drop", 0)));
  CHECK(!cut->holds(recorded(Kind::kOutput, "up", 1)));
  CHECK(!draws->of_any_call()->state_before(recorded(Kind::kOutput, "drop", 1)));
  CHECK(draws->of_any_call()->holds(recorded(Kind::kOutput, "drop", 5)));
}

TEST_CASE("draws of another shape are refused") {
  for (const char* const wrong : {"3", "{}", R"({"modules": [], "calls": [[0, "output", 0, 0, 0, "forward", 1]]})",
                                  R"({"modules": ["a"], "calls": [[0, "output", 0, 0, 0, "forward"]]})",
                                  R"({"modules": ["a"], "calls": [[0, "noise", 0, 0, 0, "forward", 1]]})",
                                  R"({"modules": ["a"], "calls": [[0, "output", 0, -1, 0, "forward", 1]]})"}) {
    CHECK_THROWS_WITH_AS(parse_draws(R"({"draws": )" + std::string(wrong) + "}", "runs/a"),
                         "runs/a: its provenance has 'draws' that are none; expected what `ttrace collect` writes",
                         InputError);
  }
}

TEST_CASE("surroundings are texts") {
  CHECK(parse_surroundings("{}").empty());
  CHECK(parse_surroundings(R"({"surroundings": {"torch": "2.1", "seed": 3}})") ==
        std::map<std::string, std::string>{{"torch", "2.1"}});
}

TEST_CASE("sources of another shape are refused") {
  const auto refusal = [](const std::string& sources) -> std::string {
    try {
      parse_sources(R"({"sources": )" + sources + "}", "runs/a");
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const std::string none = "runs/a: its provenance has 'sources' that are none; expected what `ttrace collect` writes";
  CHECK(refusal("3") == none);
  CHECK(refusal(R"({"files": [], "forwards": {}})") == none);
  CHECK(refusal(R"({"files": ["a"], "forwards": {"m": "a:1"}, "calls": {}})") == none);
  const std::string line =
      "runs/a: its provenance has 'sources' with the line of 'm'; expected the place of a file and a line";
  for (const char* const wrong : {"[1, 1]", "[-1, 1]", "[0, 0]", "[0]", "[0, 1, 2]", "[0, 9999999999]"}) {
    CHECK(refusal(R"({"files": ["a"], "calls": {}, "forwards": {"m": )" + std::string(wrong) + "}}") == line);
  }
}
