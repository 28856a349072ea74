#include "diagnose/dataflow.h"

#include <doctest/doctest.h>

#include <random>

using namespace ttrace;

TEST_SUITE_BEGIN("diagnose");

namespace {

// Observations of an execution, in order.
struct Story {
  std::vector<Observation> observations;

  Story& saw(Kind kind, const std::string& name, bool agrees = true, std::int32_t microbatch = 0,
             std::int32_t iteration = 0) {
    observations.push_back({{.iteration = iteration, .microbatch = microbatch, .kind = kind, .name = name}, agrees});
    return *this;
  }
  std::vector<std::string> roots() const {
    std::vector<std::string> names;
    for (const Root& root : find_roots(observations)) names.push_back(to_string(observations[root.observation].id));
    return names;
  }
};

constexpr bool kWrong = false;

// The forward of two linears in a block; the tensors from number `wrong_from` on are wrong.
Story forward(std::size_t wrong_from) {
  Story story;
  const std::pair<Kind, const char*> events[] = {{Kind::kInput, "block"},      {Kind::kInput, "block.fc1"},
                                                 {Kind::kOutput, "block.fc1"}, {Kind::kInput, "block.fc2"},
                                                 {Kind::kOutput, "block.fc2"}, {Kind::kOutput, "block"}};
  for (std::size_t i = 0; i < std::size(events); ++i) story.saw(events[i].first, events[i].second, i < wrong_from);
  return story;
}

}  // namespace

TEST_CASE("a module whose inputs agree and whose output does not is the root, and explains what follows") {
  const Story story = forward(2);
  const std::vector<Root> roots = find_roots(story.observations);
  REQUIRE(roots.size() == 1);
  CHECK(story.observations[roots[0].observation].id.name == "block.fc1");
  CHECK(roots[0].made_here);
  CHECK(roots[0].explained == std::vector<std::size_t>{3, 4, 5});
}

TEST_CASE("the gradient of a tensor that two modules are given follows from either's output") {
  const auto story = [](bool is_actor_wrong, bool shares) {
    Story told;
    told.saw(Kind::kInput, "actor")
        .saw(Kind::kOutput, "actor")
        .saw(Kind::kInput, "critic")
        .saw(Kind::kOutput, "critic");
    told.saw(Kind::kScalar, "loss", !kWrong).saw(Kind::kGradOutput, "actor", !is_actor_wrong);
    told.saw(Kind::kGradOutput, "critic").saw(Kind::kGradInput, "critic", kWrong);
    if (shares)
      told.observations.back().shared = {{.iteration = 0, .microbatch = 0, .kind = Kind::kInput, .name = "actor"}};
    return told;
  };
  CHECK(story(true, true).roots().size() == 1);
  CHECK(story(true, false).roots().size() == 2);
  CHECK(story(false, true).roots() == std::vector<std::string>{"critic grad_input, iteration 0, micro-batch 0"});
}

TEST_CASE("an input that nothing wrong was before is a root, but was not made there") {
  const std::vector<Root> roots = find_roots(forward(3).observations);
  REQUIRE(roots.size() == 1);
  CHECK(roots[0].observation == 3);
  CHECK_FALSE(roots[0].made_here);
  CHECK(roots[0].explained.size() == 2);
}

TEST_CASE("a block is no root beside what is wrong inside it") {
  // Observed are the block's and fc1's inputs, which agree, and their outputs, which are wrong.
  Story story;
  story.saw(Kind::kInput, "block").saw(Kind::kInput, "block.fc1").saw(Kind::kOutput, "block.fc1", kWrong);
  story.saw(Kind::kOutput, "block", kWrong);
  CHECK(story.roots() == std::vector<std::string>{"block.fc1 output, iteration 0, micro-batch 0"});
}

TEST_CASE("what is wrong inside one call of a block explains no other call of it") {
  // The block calls `act` twice each time, and puts `gate` right out.
  Story story;
  story.saw(Kind::kInput, "block").saw(Kind::kInput, "block.act").saw(Kind::kOutput, "block.act");
  story.saw(Kind::kInput, "block.act#1").saw(Kind::kOutput, "block.act#1", kWrong).saw(Kind::kOutput, "block", kWrong);
  story.saw(Kind::kInput, "block#1").saw(Kind::kInput, "block.act#2").saw(Kind::kOutput, "block.act#2");
  story.saw(Kind::kInput, "block.act#3").saw(Kind::kOutput, "block.act#3").saw(Kind::kOutput, "block#1", kWrong);
  CHECK(story.roots() == std::vector<std::string>{"block.act#1 output, iteration 0, micro-batch 0",
                                                  "block#1 output, iteration 0, micro-batch 0"});
}

TEST_CASE("what is wrong inside the second call of a block explains that call, forward and backward") {
  Story story;
  story.saw(Kind::kInput, "block").saw(Kind::kInput, "block.fc").saw(Kind::kOutput, "block.fc");
  story.saw(Kind::kOutput, "block").saw(Kind::kInput, "block#1").saw(Kind::kInput, "block.fc#1");
  story.saw(Kind::kOutput, "block.fc#1", kWrong).saw(Kind::kOutput, "block:out#1", kWrong);
  story.saw(Kind::kGradOutput, "block:out#1").saw(Kind::kGradInput, "block#1", kWrong);
  CHECK(story.roots() == std::vector<std::string>{"block.fc#1 output, iteration 0, micro-batch 0"});
}

TEST_CASE("updates that are left out are roots each, and explain what comes behind them in their iteration") {
  Story story;
  story.saw(Kind::kScalar, "loss");
  for (const char* name : {"target.weight", "target.bias"}) {
    story.saw(Kind::kBufferAfter, name, kWrong, kNoMicrobatch);
    story.observations.back().left_out = true;
  }
  story.saw(Kind::kScalar, "loss", kWrong, 1).saw(Kind::kMainGrad, "fc.weight", kWrong, kNoMicrobatch);
  CHECK(story.roots() ==
        std::vector<std::string>{"target.weight buffer_after, iteration 0", "target.bias buffer_after, iteration 0"});
}

TEST_CASE("an update that is left out behind a wrong step follows from that") {
  Story story;
  story.saw(Kind::kMainGrad, "fc.weight", true, kNoMicrobatch)
      .saw(Kind::kParamDelta, "fc.weight", kWrong, kNoMicrobatch);
  story.saw(Kind::kBufferAfter, "target.weight", kWrong, kNoMicrobatch);
  story.observations.back().left_out = true;
  CHECK(story.roots() == std::vector<std::string>{"fc.weight param_delta, iteration 0"});
}

TEST_CASE("a wrong weight explains every call of its module") {
  Story story;
  story.saw(Kind::kParam, "block.fc.weight", kWrong, kNoMicrobatch);
  for (const char* call : {"block.fc", "block.fc#1"}) {
    story.saw(Kind::kInput, call).saw(Kind::kOutput, call, kWrong);
  }
  CHECK(story.roots() == std::vector<std::string>{"block.fc.weight param, iteration 0"});
}

TEST_CASE("a weight's gradient is made of every call of its module") {
  for (const Kind operand : {Kind::kInput, Kind::kGradOutput}) {
    Story story;
    for (const char* call : {"fc", "fc#1"}) {
      story.saw(Kind::kInput, call, operand != Kind::kInput || call == std::string("fc")).saw(Kind::kOutput, call);
    }
    story.saw(Kind::kGradOutput, "fc#1", operand != Kind::kGradOutput).saw(Kind::kGradOutput, "fc");
    story.saw(Kind::kParamGrad, "fc.weight", kWrong);
    CHECK(story.roots() ==
          std::vector<std::string>{"fc#1 " + std::string(name_of(operand)) + ", iteration 0, micro-batch 0"});
  }
}

TEST_CASE("a parameter that a module uses between the modules inside it follows from what is wrong in these") {
  // The decay enters what the scan is given; the skip is the module's too, and a second fault's own.
  Story story;
  story.saw(Kind::kInput, "mixer").saw(Kind::kInput, "mixer.scan").saw(Kind::kOutput, "mixer.scan");
  story.saw(Kind::kOutput, "mixer").saw(Kind::kGradOutput, "mixer").saw(Kind::kGradOutput, "mixer.scan");
  story.saw(Kind::kParamGrad, "mixer.skip", kWrong).saw(Kind::kGradInput, "mixer.scan", kWrong);
  story.saw(Kind::kParamGrad, "mixer.decay", kWrong).saw(Kind::kGradInput, "mixer", kWrong);
  story.saw(Kind::kGradOutput, "norm").saw(Kind::kParamGrad, "norm.weight", kWrong);
  CHECK(story.roots() == std::vector<std::string>{"mixer.skip param_grad, iteration 0, micro-batch 0",
                                                  "mixer.scan grad_input, iteration 0, micro-batch 0",
                                                  "norm.weight param_grad, iteration 0, micro-batch 0"});
}

TEST_CASE("what is made of a tensor that is a question has no source that is known to be right") {
  Story story;
  story.saw(Kind::kInput, "router").saw(Kind::kOutput, "router", kWrong).saw(Kind::kInput, "expert");
  story.observations.back().is_open = true;
  story.saw(Kind::kOutput, "expert", kWrong);
  CHECK(story.roots() == std::vector<std::string>{"router output, iteration 0, micro-batch 0"});
}

TEST_CASE("errors of their own are listed apart") {
  Story story = forward(4);  // fc2
  story.saw(Kind::kInput, "block", true, 1).saw(Kind::kInput, "block.fc1", true, 1);
  story.saw(Kind::kOutput, "block.fc1", kWrong, 1).saw(Kind::kOutput, "block", kWrong, 1);
  CHECK(story.roots() == std::vector<std::string>{"block.fc2 output, iteration 0, micro-batch 0",
                                                  "block.fc1 output, iteration 0, micro-batch 1"});
}

TEST_CASE(
    "a parameter's gradient that is wrong beside right activations is a root; what the optimizer makes of it is not") {
  Story story;
  story.saw(Kind::kInput, "fc").saw(Kind::kOutput, "fc").saw(Kind::kGradOutput, "fc").saw(Kind::kGradInput, "fc");
  story.saw(Kind::kParamGrad, "fc.weight", kWrong).saw(Kind::kParamGrad, "fc.bias");
  story.saw(Kind::kMainGrad, "fc.weight", kWrong, kNoMicrobatch).saw(Kind::kMainGrad, "fc.bias", kWrong, kNoMicrobatch);
  story.saw(Kind::kParamDelta, "fc.weight", kWrong, kNoMicrobatch)
      .saw(Kind::kParamAfter, "fc.bias", kWrong, kNoMicrobatch);
  story.saw(Kind::kInput, "fc", true, 0, 1).saw(Kind::kOutput, "fc", true, 0, 1);
  const std::vector<Root> roots = find_roots(story.observations);
  CHECK(story.roots() ==
        std::vector<std::string>{"fc.weight param_grad, iteration 0, micro-batch 0", "fc.bias main_grad, iteration 0"});
  CHECK(roots[0].explained == std::vector<std::size_t>{6, 8});
  CHECK(roots[1].explained == std::vector<std::size_t>{9});
}

TEST_CASE("wrong parameters explain the next iteration") {
  Story story;
  story.saw(Kind::kMainGrad, "fc.weight", true, kNoMicrobatch)
      .saw(Kind::kParamAfter, "fc.weight", kWrong, kNoMicrobatch);
  story.saw(Kind::kParam, "fc.weight", kWrong, kNoMicrobatch, 1);
  story.saw(Kind::kInput, "fc", true, 0, 1).saw(Kind::kOutput, "fc", kWrong, 0, 1);
  story.saw(Kind::kGradOutput, "fc", kWrong, 0, 1);
  CHECK(story.roots() == std::vector<std::string>{"fc.weight param_after, iteration 0"});
}

TEST_CASE("two bugs in different modules are two roots, each with what follows from it") {
  Story story;
  story.saw(Kind::kInput, "a").saw(Kind::kOutput, "a").saw(Kind::kInput, "b").saw(Kind::kOutput, "b");
  story.saw(Kind::kGradOutput, "b").saw(Kind::kGradInput, "b").saw(Kind::kGradOutput, "a").saw(Kind::kGradInput, "a");
  story.saw(Kind::kParamGrad, "b.weight", kWrong).saw(Kind::kParamGrad, "a.weight");                          // 8, 9
  for (const char* name : {"a.weight", "b.weight"}) story.saw(Kind::kMainGrad, name, kWrong, kNoMicrobatch);  // 10, 11
  for (const char* name : {"a.weight", "b.weight"}) story.saw(Kind::kParamDelta, name, kWrong, kNoMicrobatch);
  for (const char* name : {"a.weight", "b.weight"}) story.saw(Kind::kParamAfter, name, kWrong, kNoMicrobatch);
  const std::vector<Root> roots = find_roots(story.observations);
  CHECK(story.roots() ==
        std::vector<std::string>{"b.weight param_grad, iteration 0, micro-batch 0", "a.weight main_grad, iteration 0"});
  CHECK(roots[0].explained == std::vector<std::size_t>{11, 13, 15});
  CHECK(roots[1].explained == std::vector<std::size_t>{12, 14});
}

TEST_CASE("an error that came in nearly as large is not made where it first exceeds what is allowed") {
  Story story;
  story.saw(Kind::kMainGrad, "x", kWrong, kNoMicrobatch);
  story.saw(Kind::kInput, "fc", true, 0, 1).saw(Kind::kOutput, "fc", kWrong, 0, 1);
  story.observations[1].ratio = 0.8;
  story.observations[2].ratio = 1.2;
  CHECK(story.roots() == std::vector<std::string>{"x main_grad, iteration 0"});
  story.observations[2].ratio = 12;
  CHECK(story.roots().size() == 2);
}

TEST_CASE("a tied weight is wrong under its other name, too") {
  Story story;
  story.saw(Kind::kMainGrad, "embedding.weight", kWrong, kNoMicrobatch);
  story.saw(Kind::kInput, "head", true, 0, 1).saw(Kind::kOutput, "head", kWrong, 0, 1);
  CHECK(story.roots().size() == 2);
  const TiedRule tied[] = {{"head.weight", "embedding.weight", {}}};
  CHECK(find_roots(story.observations, tied).size() == 1);
}

TEST_CASE("a recomputed output that differs from a wrong first one is no root beside it") {
  Story story;
  story.saw(Kind::kInput, "fc").saw(Kind::kOutput, "fc", kWrong);
  story.saw(Kind::kInput, "fc").saw(Kind::kOutput, "fc", kWrong);
  story.observations[2].id.pass = story.observations[3].id.pass = Pass::kRecompute;
  CHECK(story.roots() == std::vector<std::string>{"fc output, iteration 0, micro-batch 0"});
}

TEST_CASE("initial parameters that are wrong are roots each") {
  Story story;
  story.saw(Kind::kParam, "a", kWrong, kNoMicrobatch).saw(Kind::kParam, "b", kWrong, kNoMicrobatch);
  CHECK(story.roots().size() == 2);
}

TEST_CASE("every wrong tensor is a root or follows from one") {
  std::mt19937 engine(5);
  const auto random = [&](std::uint32_t n) { return engine() % n; };
  for (int round = 0; round < 300; ++round) {
    Story story;
    std::size_t wrong = 0;
    for (std::int32_t i = 0; i < 60; ++i) {
      const bool agrees = random(3) != 0;
      wrong += !agrees;
      story.saw(static_cast<Kind>(1 + random(10)), "m." + std::to_string(i), agrees,
                static_cast<std::int32_t>(random(3)) - 1, i / 20);
    }
    std::size_t accounted = 0;
    for (const Root& root : find_roots(story.observations)) accounted += 1 + root.explained.size();
    REQUIRE(accounted == wrong);
  }
}

TEST_CASE("in a rewritten run a wrong input explains no output") {
  Story story;
  story.saw(Kind::kInput, "a").saw(Kind::kOutput, "a", kWrong);
  story.saw(Kind::kInput, "b", kWrong).saw(Kind::kOutput, "b", kWrong).saw(Kind::kInput, "c", kWrong);
  CHECK(story.roots() == std::vector<std::string>{"a output, iteration 0, micro-batch 0"});
  const std::vector<Root> roots = find_roots(story.observations, {}, /*rewritten=*/true);
  REQUIRE(roots.size() == 2);
  CHECK(roots[0].explained == std::vector<std::size_t>{2});
  CHECK(story.observations[roots[1].observation].id.name == "b");
  CHECK(roots[1].made_here);
  CHECK(roots[1].explained == std::vector<std::size_t>{4});
}

TEST_CASE("in a rewritten run a module that passes on what it was given is no root, and one that computes is") {
  Story story;
  story.saw(Kind::kInput, "a").saw(Kind::kOutput, "a", kWrong);
  story.saw(Kind::kInput, "dropout", kWrong).saw(Kind::kOutput, "dropout", kWrong);
  REQUIRE(find_roots(story.observations, {}, /*rewritten=*/true).size() == 2);
  story.observations.back().passed_on = true;
  const std::vector<Root> roots = find_roots(story.observations, {}, /*rewritten=*/true);
  REQUIRE(roots.size() == 1);
  CHECK(roots[0].explained == std::vector<std::size_t>{2, 3});
}

TEST_CASE("in a rewritten run what a wrong module makes in backward is its own fault as well") {
  Story story;
  story.saw(Kind::kInput, "block.a").saw(Kind::kOutput, "block.a", kWrong).saw(Kind::kOutput, "block", kWrong);
  story.saw(Kind::kGradOutput, "block.a").saw(Kind::kParamGrad, "block.a.weight", kWrong);
  story.saw(Kind::kGradInput, "block.a", kWrong);
  const std::vector<Root> roots = find_roots(story.observations, {}, /*rewritten=*/true);
  REQUIRE(roots.size() == 1);
  CHECK(roots[0].explained.size() == 3);
}

TEST_SUITE_END();
