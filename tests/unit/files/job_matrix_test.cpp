#include "files/job_matrix.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace {

using namespace ttrace;
using Combinations = std::vector<Combination>;

const JobMatrix kSquare = {{{"tp", {"1", "2"}}, {"dp", {"1", "2"}}}, {}, {}, 3};

Combinations combinations(JobMatrix matrix, const Combinations& exclude, const Combinations& include) {
  for (const Combination& values : exclude) matrix.exclude.push_back({values, 7});
  for (const Combination& values : include) matrix.include.push_back({values, 8});
  return combinations_of(matrix, "t.yaml");
}

}  // namespace

TEST_SUITE_BEGIN("files");

TEST_CASE("a matrix has each combination, the last variable fastest, and without variables one") {
  CHECK(combinations(kSquare, {}, {}) == Combinations{{{"tp", "1"}, {"dp", "1"}},
                                                      {{"tp", "1"}, {"dp", "2"}},
                                                      {{"tp", "2"}, {"dp", "1"}},
                                                      {{"tp", "2"}, {"dp", "2"}}});
  CHECK(combinations({}, {}, {}) == Combinations{{}});
}

TEST_CASE("exclude removes what has all of its values") {
  CHECK(combinations(kSquare, {{{"tp", "1"}, {"dp", "1"}}, {{"dp", "2"}}}, {}) ==
        Combinations{{{"tp", "2"}, {"dp", "1"}}});
  // Two entries may remove one and the same combination.
  CHECK(combinations(kSquare, {{{"tp", "1"}}, {{"dp", "1"}}}, {}) == Combinations{{{"tp", "2"}, {"dp", "2"}}});
}

TEST_CASE("include adds values where it contradicts no variable, and combinations where it contradicts all") {
  // The example of GitHub's documentation.
  const JobMatrix fruits = {{{"fruit", {"apple", "pear"}}, {"animal", {"cat", "dog"}}}, {}, {}, 3};
  CHECK(combinations(fruits, {},
                     {{{"color", "green"}},
                      {{"color", "pink"}, {"animal", "cat"}},
                      {{"fruit", "apple"}, {"shape", "circle"}},
                      {{"fruit", "banana"}},
                      {{"fruit", "banana"}, {"animal", "cat"}}}) ==
        Combinations{{{"fruit", "apple"}, {"animal", "cat"}, {"color", "pink"}, {"shape", "circle"}},
                     {{"fruit", "apple"}, {"animal", "dog"}, {"color", "green"}, {"shape", "circle"}},
                     {{"fruit", "pear"}, {"animal", "cat"}, {"color", "pink"}},
                     {{"fruit", "pear"}, {"animal", "dog"}, {"color", "green"}},
                     {{"fruit", "banana"}},
                     {{"fruit", "banana"}, {"animal", "cat"}}});
}

TEST_CASE("include comes after exclude, and makes combinations without variables") {
  CHECK(combinations({{{"tp", {"1"}}}, {}, {}, 3}, {{{"tp", "1"}}}, {{{"tp", "1"}}}) == Combinations{{{"tp", "1"}}});
  CHECK(combinations({}, {}, {{{"tp", "1"}}, {{"tp", "2"}}}) == Combinations{{{"tp", "1"}}, {{"tp", "2"}}});
}

TEST_CASE("an exclude that removes nothing, and a matrix with nothing left, are refused") {
  const auto refused = [](const JobMatrix& matrix, const Combinations& exclude, const char* message) {
    CHECK_THROWS_WITH_AS(combinations(matrix, exclude, {}), message, InputError);
  };
  refused(kSquare, {{{"tpp", "1"}}}, "t.yaml:7: exclude: 'tpp' is no variable of the matrix [tp, dp]; expected one");
  refused(kSquare, {{{"tp", "1"}, {"dp", "3"}}},
          "t.yaml:7: exclude: no combination has {dp: 3, tp: 1}; expected values of the matrix");
  refused(kSquare, {{{"tp", "1"}}, {{"tp", "2"}}},
          "t.yaml:3: exclude: removes every combination; expected one that is left");
  JobMatrix large = {{}, {}, {}, 3};
  for (int i = 0; i < 14; ++i) large.variables.push_back({std::string(1, static_cast<char>('a' + i)), {"0", "1"}});
  refused(large, {}, "t.yaml:3: a matrix of more than 10000 combinations; expected fewer");
}

TEST_CASE("braces are replaced, doubled ones are braces") {
  const Combination values = {{"tp", "2"}, {"none", ""}};
  CHECK(substitute("--tp {tp}{none}", values, "t.yaml:3") == "--tp 2");
  CHECK(substitute("{{\"tp\": {tp}}}", values, "t.yaml:3") == "{\"tp\": 2}");
  CHECK(substitute("as it is", {}, "t.yaml:3") == "as it is");
  for (const char* text : {"{tp", "tp}"}) CHECK_THROWS_AS(substitute(text, values, "t.yaml:3"), InputError);
  CHECK_THROWS_WITH_AS(substitute("{}", values, "t.yaml:3"),
                       "t.yaml:3: '{}' is none of [none, tp]; expected one, or {{ and }} for braces", InputError);
}

TEST_SUITE_END();
