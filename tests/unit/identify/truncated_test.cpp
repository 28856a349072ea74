// Samples that end on a rank before the reference's do.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const TensorId kTokens = tensor_id(Kind::kInput, "(model)", 0);
const TensorId kMask = tensor_id(Kind::kInput, "(model):mask", 0);

using TokenRows = std::vector<std::vector<std::int64_t>>;

void add_token_rows(Trace& trace, std::size_t rank, const TensorId& id, const TokenRows& rows) {
  std::vector<std::int64_t> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  add_int64(trace, rank, id, {std::ssize(rows), std::ssize(rows.front())}, all);
}

std::vector<std::string> messages_in(const Report& report) {
  std::vector<std::string> messages;
  for (const Finding& finding : report.findings) messages.push_back(finding.message);
  return messages;
}

std::vector<std::string> found_in_tokens(const TokenRows& whole, const TokenRows& first, const TokenRows& second) {
  Trace reference = mesh_trace("", 1), candidate = mesh_trace("dp=2", 2);
  add_token_rows(reference, 0, kTokens, whole);
  add_token_rows(candidate, 0, kTokens, first);
  add_token_rows(candidate, 1, kTokens, second);
  return messages_in(checked(reference, candidate, ""));
}

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("samples that a rank truncates are named, in stretches and in turns") {
  const TokenRows whole = {{1, 2, 3, 4, 5}, {6, 7, 0, 0, 0}, {8, 9, 1, 2, 3}, {4, 5, 6, 7, 8}};
  const auto in_stretches = found_in_tokens(whole, {whole[0], whole[1]}, {{8, 9, 1}, {4, 5, 6}});
  REQUIRE(in_stretches.size() == 1);
  CHECK(has(in_stretches[0], "(model) input"));
  CHECK(has(in_stretches[0], "5 elements along dimension 1; on rank 1 they end behind 3"));
  const auto in_turns = found_in_tokens(whole, {whole[0], whole[2]}, {{6, 7, 0}, {4, 5, 6}});
  REQUIRE(in_turns.size() == 1);
  CHECK(has(in_turns[0], "on rank 1 they end behind 3"));
}

TEST_CASE("samples that all ranks truncate are named") {
  const TokenRows whole = {{1, 2, 3, 4, 5}, {6, 7, 0, 0, 0}, {8, 9, 1, 2, 3}, {4, 5, 6, 7, 8}};
  const auto found = found_in_tokens(whole, {{1, 2, 3}, {6, 7, 0}}, {{8, 9, 1}, {4, 5, 6}});
  REQUIRE(found.size() == 1);
  CHECK(has(found[0], "on ranks 0, 1 they end behind 3"));
}

TEST_CASE("what lies behind a rank's own end may be padding") {
  SUBCASE("of one value") {
    CHECK(found_in_tokens({{1, 2, 3}, {4, 5, 6}, {7, 8, 0}, {9, 0, 0}}, {{1, 2, 3}, {4, 5, 6}}, {{7, 8}, {9, 0}})
              .empty());
  }
  SUBCASE("of each sample's last value") {
    const auto found =
        found_in_tokens({{1, 2, 3}, {4, 5, 6}, {7, 8, 8}, {9, 1, 1}}, {{1, 2, 3}, {4, 5, 6}}, {{7, 8}, {9, 1}});
    for (const std::string& text : found) CHECK_FALSE(has(text, "they end behind"));
  }
  SUBCASE("and one token more, which is a label alone") {
    CHECK(found_in_tokens({{1, 2, 3, 4, 5}, {4, 5, 6, 7, 8}, {7, 8, 9, 0, 0}, {9, 0, 0, 0, 0}},
                          {{1, 2, 3, 4, 5}, {4, 5, 6, 7, 8}}, {{7, 8}, {9, 0}})
              .empty());
  }
  SUBCASE("as another input says") {
    Trace reference = mesh_trace("", 1), candidate = mesh_trace("dp=2", 2);
    const TokenRows tokens = {{1, 2, 3}, {4, 5, 6}, {7, 8, 0}, {9, 1, 0}},
                    places = {{0, 1, 2}, {1, 2, 3}, {2, 3, 5}, {0, 2, 7}};
    add_token_rows(reference, 0, kTokens, tokens);
    add_token_rows(candidate, 0, kTokens, {tokens[0], tokens[1]});
    add_token_rows(candidate, 1, kTokens, {{7, 8}, {9, 1}});
    add_token_rows(reference, 0, kMask, places);
    add_token_rows(candidate, 0, kMask, {places[0], places[1]});
    add_token_rows(candidate, 1, kMask, {{2, 3}, {0, 2}});
    for (const std::string& text : messages_in(checked(reference, candidate, ""))) {
      CHECK_FALSE(has(text, "they end behind"));
    }
  }
}

TEST_CASE("one token that a rank lacks is a mistake where what is wrong is what it would have added") {
  const TokenRows whole = {{1, 2, 3, 4}, {4, 5, 6, 7}, {7, 8, 9, 0}, {9, 1, 0, 0}};
  const auto found = [&](float loss, float comes_back, float gradient) {
    Trace reference = mesh_trace("", 1), candidate = mesh_trace("dp=2", 2);
    add_token_rows(reference, 0, kTokens, whole);
    add_token_rows(candidate, 0, kTokens, {whole[0], whole[1]});
    add_token_rows(candidate, 1, kTokens, {{7, 8}, {9, 1}});
    const auto add = [](Trace& trace, std::size_t rank, float of_loss, const std::vector<float>& back, float of_step) {
      add_tensor(trace, rank, tensor_id(Kind::kScalar, "loss", 0), {}, {of_loss});
      add_tensor(trace, rank, tensor_id(Kind::kGradOutput, "(model)", 0), {std::ssize(back)}, back);
      add_tensor(trace, rank, tensor_id(Kind::kMainGrad, "w"), {1}, {of_step});
    };
    add(reference, 0, 2, {1, 2, 3, 4}, 5);
    add(candidate, 0, loss, {1, 2}, gradient);
    add(candidate, 1, loss, {comes_back, 4}, gradient);
    std::vector<std::string> named;
    for (const std::string& text : messages_in(checked(reference, candidate, ""))) {
      if (has(text, "they end behind 2")) named.push_back(text);
    }
    return named.size();
  };
  // Each rank's loss is a term of the reference's.
  CHECK(found(0.75, 3, 4) == 1);
  CHECK(found(1, 3, 5) == 0);     // training is right: the token is there for a label alone
  CHECK(found(1, 3, 4) == 0);     // a gradient that is not reduced
  CHECK(found(0.75, 3, 5) == 0);  // a loss that is logged otherwise
  CHECK(found(0.75, 2, 4) == 0);  // a loss that is computed otherwise
}

TEST_SUITE_END();
