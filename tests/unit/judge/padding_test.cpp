#include "judge/padding.h"

#include <doctest/doctest.h>

#include "base/alignment.h"

namespace ttrace {
namespace {

TensorId id_of(Kind kind, const char* name) {
  TensorId id;
  id.kind = kind;
  id.name = std::string(name);
  id.iteration = 0;
  id.microbatch = 0;
  return id;
}

Finding wrong_output(const char* name, std::vector<std::int32_t> ranks) {
  Finding finding;
  finding.id = id_of(Kind::kOutput, name);
  finding.verdict = Verdict::kFail;
  finding.reason = Reason::kExceedsTolerance;
  finding.ranks = std::move(ranks);
  return finding;
}

Alignment recurrent_network() {
  Alignment reference;
  for (const TensorId& id : {id_of(Kind::kOutput, "rnn:0"), id_of(Kind::kOutput, "rnn:1"),
                             id_of(Kind::kGradOutput, "rnn:0"), id_of(Kind::kOutput, "head")}) {
    reference.tensors[id].id = id;
  }
  return reference;
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("an output that nothing takes is set aside on ranks that pad to fewer positions, and nowhere else") {
  const Alignment reference = recurrent_network();
  const auto verdict_of = [&](const char* name, const std::vector<std::int32_t>& ranks) {
    std::vector<Finding> findings = {wrong_output(name, ranks)};
    std::vector<std::string> notes;
    set_ends_of_padding_aside({{{0, 0}, {1}}}, reference, findings, notes);
    CHECK((findings[0].verdict == Verdict::kUntrusted) == (notes.size() == 1));
    return findings[0].verdict;
  };
  CHECK(verdict_of("rnn:1", {1}) == Verdict::kUntrusted);
  CHECK(verdict_of("rnn:1", {0}) == Verdict::kFail);  // has the reference's padding
  CHECK(verdict_of("rnn:1", {0, 1}) == Verdict::kFail);
  CHECK(verdict_of("rnn:0", {1}) == Verdict::kFail);  // has a gradient
  CHECK(verdict_of("head", {1}) == Verdict::kFail);   // no gradient comes back to the module at all
}

TEST_SUITE_END();

}  // namespace ttrace
