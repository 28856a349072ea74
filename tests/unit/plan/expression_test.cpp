#include "ttrace/plan/expression.h"

#include <doctest/doctest.h>

#include "ttrace/error.h"

namespace {

using namespace ttrace;

const PlanValues kValues = {
    {"tp", std::int64_t{2}}, {"pp", std::int64_t{4}}, {"dtype", std::string("bf16")}, {"none", std::string()}};

std::int64_t number(std::string_view expression) { return std::get<std::int64_t>(evaluate(expression, kValues)); }

}  // namespace

TEST_SUITE_BEGIN("plan");

TEST_CASE("arithmetic and conditions bind as everywhere") {
  CHECK(number("2 + 3 * 4") == 14);
  CHECK(number("(2 + 3) * 4") == 20);
  CHECK(number("10 - 3 - 2") == 5);
  CHECK(number("-tp * -pp") == 8);
  CHECK(number("7 / 2 * 2 + 7 % 2") == 7);
  CHECK(number("-7 / 2") == -3);
  CHECK(number("tp*pp<=8 and tp > 1") == 1);
  CHECK(number("tp == 1 or pp == 4 and tp == 3") == 0);
  CHECK(number("not tp == 1 and not (pp != 4)") == 1);
  CHECK(number("dtype == 'bf16'") == 1);
  CHECK(number("dtype != 'bf16'") == 0);
  CHECK(number("dtype == tp") == 0);
  CHECK(number("none == ''") == 1);
  CHECK(number("9223372036854775807 - 1 + 1") == INT64_MAX);
}

TEST_CASE("what makes no sense is refused with the expression") {
  const std::pair<std::string, std::string> cases[] = {
      {"", "'': it ends too early"},
      {"tp *", "'tp *': it ends too early"},
      {"tp tp", "'tp tp': 'tp' was not expected"},
      {"(tp", "'(tp': no ) for its ("},
      {"'tp", "''tp': no closing '"},
      {"tp / (pp - 4)", "'tp / (pp - 4)': a division by zero"},
      {"dtype + 1", "'dtype + 1': 'bf16' is no number; expected one"},
      {"dtype or 1", "'dtype or 1': 'bf16' is no number; expected one"},
      {"1 or dp", "'1 or dp': there is no 'dp'; expected one of dtype, none, pp, tp"},
      {"tp = 2", "'tp = 2': '= 2' was not expected"},
      {"1 < tp < 3 and $", "'1 < tp < 3 and $': '< 3 and $' was not expected"},
      {"9223372036854775807 + 1", "'9223372036854775807 + 1': a number beyond 64 bits"},
      {"9223372036854775807 * 2", "'9223372036854775807 * 2': a number beyond 64 bits"},
      {"(-9223372036854775807 - 1) / -1", "'(-9223372036854775807 - 1) / -1': a number beyond 64 bits"},
      {"9223372036854775808", "'9223372036854775808': a number beyond 64 bits"},
  };
  for (const auto& [expression, message] : cases) {
    CAPTURE(expression);
    CHECK_THROWS_WITH_AS(evaluate(expression, kValues), message.c_str(), InputError);
  }
  CHECK_THROWS_AS(evaluate(std::string(500'000, '('), kValues), InputError);
  CHECK_THROWS_AS(holds("dtype", kValues), InputError);
  CHECK((std::get<std::int64_t>(evaluate("(-9223372036854775807 - 1) % -1", {})) == 0));
}

TEST_CASE("braces are replaced, doubled ones are braces") {
  CHECK(substitute("-n {tp * pp} --dtype {dtype}{none}", kValues) == "-n 8 --dtype bf16");
  CHECK(substitute("{{\"tp\": {tp}}}", kValues) == "{\"tp\": 2}");
  CHECK(substitute("as it is", {}) == "as it is");
  CHECK_THROWS_AS(substitute("{tp", kValues), InputError);
  CHECK_THROWS_AS(substitute("tp}", kValues), InputError);
  CHECK_THROWS_AS(substitute("{}", kValues), InputError);
}

TEST_SUITE_END();
