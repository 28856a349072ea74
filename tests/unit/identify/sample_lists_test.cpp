// Lists of which each element is of one sample, and each rank numbers its own samples from 0.
#include "identify/sample_lists.h"

#include <doctest/doctest.h>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

struct Dealt {
  std::vector<std::int64_t> samples;  // of which the rank has targets
  std::vector<std::int64_t> labels;   // and labels
  std::int64_t error = 0;             // of what is found for the first
};

TensorId element(Kind kind, const std::string& list, std::size_t number, const std::string& inside) {
  return tensor_id(kind, list + std::to_string(number) + inside, 0);
}

// Adds what a rank records of a criterion that is given the targets of its samples, and whose matcher finds a list of as
// many. A sample's box is ten times its number and 1, 2; what is found for it is one number, which no other has.
void add_matched(Trace& trace, std::size_t rank, const Dealt& dealt, bool are_alike = false) {
  std::vector<std::int64_t> all;
  for (std::size_t i = 0; i < dealt.samples.size(); ++i) {
    const std::int64_t sample = dealt.samples[i], label = dealt.labels[i];
    all.push_back(sample);
    const auto box = are_alike ? 1.0F : static_cast<float>(10 * sample + 1);
    add_tensor(trace, rank, element(Kind::kInput, "criterion:1.", i, ".boxes"), {2}, {box, box + 1});
    add_int64(trace, rank, element(Kind::kInput, "criterion:1.", i, ".labels"), {1}, {are_alike ? 7 : 70 + label});
    add_int64(trace, rank, element(Kind::kOutput, "criterion:", i, ""), {1}, {sample * 3 + (i == 0 ? dealt.error : 0)});
  }
  // What says that the ranks have slices, and not which.
  add_int64(trace, rank, tensor_id(Kind::kInput, "(model)", 0), {std::ssize(all)},
            std::vector<std::int64_t>(all.size(), 5));
}

Trace matched_whole(bool are_alike = false) {
  Trace trace = mesh_trace("", 1);
  add_matched(trace, 0, {{0, 1, 2, 3}, {0, 1, 2, 3}}, are_alike);
  return trace;
}

Trace matched(const Dealt& first, const Dealt& second, bool are_alike = false) {
  Trace trace = mesh_trace("dp=2", 2);
  add_matched(trace, 0, first, are_alike);
  add_matched(trace, 1, second, are_alike);
  return trace;
}

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("elements of lists are held against those of the same samples, however these are dealt out") {
  for (const auto& [first, second] : {std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>{{0, 1}, {2, 3}},
                                      {{0, 2}, {1, 3}},
                                      {{3, 0}, {2, 1}},
                                      {{3}, {2, 1, 0}}}) {
    const Report report = checked(matched_whole(), matched({first, first}, {second, second}), "");
    CHECK(findings_in(report).empty());
    CHECK(report.totals.counts.pass == 13);
  }
}

TEST_CASE("an element of another sample is different, at the tensor that is the other's") {
  const auto found = [](const Dealt& first, const Dealt& second) {
    return findings_in(checked(matched_whole(), matched(first, second), ""));
  };
  // Labels of one image with the boxes of another.
  const auto labels = found({{0, 2}, {0, 2}}, {{1, 3}, {3, 1}});
  REQUIRE(labels.size() == 2);
  CHECK(has(labels[0], "criterion:1.1.labels input"));
  CHECK(has(labels[1], "criterion:1.3.labels input"));
  // One rank has the samples of the other.
  const auto samples = found({{0, 2}, {0, 2}}, {{0, 2}, {0, 2}});
  REQUIRE(samples.size() == 6);
  CHECK(has(samples[0], "criterion:1.1.boxes input"));
  // What is found for a sample is wrong, in a list whose own bytes tell nothing.
  const auto output = found({{0, 2}, {0, 2}}, {{1, 3}, {1, 3}, 1});
  REQUIRE(output.size() == 1);
  CHECK(has(output[0], "criterion:1 output"));
}

TEST_CASE("lists of which no bytes say whose samples they are stay open") {
  const auto report = checked(matched_whole(true), matched({{0, 2}, {0, 2}}, {{1, 3}, {1, 3}}, true), "");
  REQUIRE(!report.findings.empty());
  for (const Finding& finding : report.findings) CHECK(finding.guessed);
}

TEST_SUITE_END();
