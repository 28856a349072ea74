#include "judge/zero_gradients.h"

#include <doctest/doctest.h>

#include "support/mesh_trace.h"

using namespace ttrace;

namespace {

using Doubts = std::map<TensorId, std::string>;

void add(Doubts& doubts, const std::string& name, bool zero, std::int32_t iteration = 0, Kind kind = Kind::kMainGrad) {
  TensorId id = test::tensor_id(kind, name, kind == Kind::kMainGrad ? kNoMicrobatch : 0);
  id.iteration = iteration;
  doubts[id] = zero ? std::string(name_of(Reason::kAllZero)) : "";
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a family of parameters with gradients of zero alone proves nothing, however many others there are") {
  Doubts doubts;
  for (const char* layer : {"0", "1"}) {
    add(doubts, std::string("layers.") + layer + ".lora_A.weight", true);
    add(doubts, std::string("layers.") + layer + ".lora_B.weight", false);
    add(doubts, std::string("layers.") + layer + ".bias", layer[0] == '0');
  }
  add(doubts, "scale", true);
  std::vector<std::string> notes;
  const auto found = find_zero_gradients(doubts, notes);
  REQUIRE(found.has_value());
  CHECK(found->families == std::vector<std::string>{"layers.#.lora_A.weight", "scale"});
  CHECK((found->first == 0 && found->last == 0));
  CHECK(notes.empty());
}

TEST_CASE("a family proves something where one gradient of any kind, micro-batch or iteration is not zero") {
  std::vector<std::string> notes;
  for (const auto& [kind, iteration] : {std::pair(Kind::kParamGrad, 0), std::pair(Kind::kMainGrad, 1)}) {
    Doubts doubts;
    add(doubts, "layers.0.weight", true);
    add(doubts, "layers.1.weight", false, iteration, kind);
    CHECK(!find_zero_gradients(doubts, notes).has_value());
  }
  Doubts others;
  add(others, "layers.0", true, 0, Kind::kOutput);
  add(others, "layers.0.weight", true, 0, Kind::kParam);
  CHECK(!find_zero_gradients(others, notes).has_value());
  CHECK(notes.empty());
}

TEST_CASE("gradients that are zero in three iterations are zero by design, which is said") {
  Doubts doubts;
  std::vector<std::string> notes;
  for (const std::int32_t iteration : {0, 1}) add(doubts, "unused.0.weight", true, iteration);
  const auto found = find_zero_gradients(doubts, notes);
  REQUIRE(found.has_value());
  CHECK((found->first == 0 && found->last == 1));
  add(doubts, "unused.0.weight", true, 2);
  CHECK(!find_zero_gradients(doubts, notes).has_value());
  CHECK(notes == std::vector<std::string>{"the gradients of unused.#.weight are zero on both sides in all iterations "
                                          "that were recorded: nothing is proved of them"});
}
