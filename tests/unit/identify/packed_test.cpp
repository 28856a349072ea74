// Packed sequences of slices of a batch: rows that lie step by step among those of the rank's own samples.
#include "identify/packed.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const TensorId kIds = tensor_id(Kind::kInput, "(model)", 0);
const TensorId kRows = tensor_id(Kind::kInput, "rnn:0.0", 0);
const TensorId kGradRows = tensor_id(Kind::kGradInput, "rnn:0.0", 0);

// By sample.
const std::vector<std::int64_t> kLengths = {3, 1, 2, 4};

// Adds what a rank records of a module that is given these samples packed. An element of the rows is ten times the
// sample's number and the step's.
void add_packed(Trace& trace, std::size_t rank, const std::vector<std::int64_t>& samples,
                std::vector<std::int64_t> lengths = kLengths) {
  std::vector<std::int64_t> sorted(samples.size()), unsorted(samples.size()), steps;
  for (std::size_t i = 0; i < samples.size(); ++i) sorted[i] = static_cast<std::int64_t>(i);
  const auto sample_at = [&](std::int64_t place) { return samples[static_cast<std::size_t>(place)]; };
  const auto length_of = [&](std::int64_t place) { return lengths[static_cast<std::size_t>(sample_at(place))]; };
  std::stable_sort(sorted.begin(), sorted.end(), [&](auto a, auto b) { return length_of(a) > length_of(b); });
  std::vector<float> rows;
  for (std::int64_t step = 0; step < length_of(sorted[0]); ++step) {
    steps.push_back(0);
    for (const std::int64_t place : sorted) {
      if (length_of(place) <= step) continue;
      ++steps.back();
      rows.push_back(static_cast<float>(10 * sample_at(place) + step + 1));
    }
  }
  for (std::size_t i = 0; i < sorted.size(); ++i)
    unsorted[static_cast<std::size_t>(sorted[i])] = static_cast<std::int64_t>(i);
  const std::int64_t count = std::ssize(rows);
  for (const TensorId& id : {kRows, kGradRows}) add_tensor(trace, rank, id, {count, 1}, rows);
  add_int64(trace, rank, tensor_id(Kind::kInput, "rnn:0.1", 0), {std::ssize(steps)}, steps);
  add_int64(trace, rank, tensor_id(Kind::kInput, "rnn:0.2", 0), {std::ssize(sorted)}, sorted);
  add_int64(trace, rank, tensor_id(Kind::kInput, "rnn:0.3", 0), {std::ssize(unsorted)}, unsorted);
}

// The same with an input of the model that tells the samples.
void add_told(Trace& trace, std::size_t rank, const std::vector<std::int64_t>& samples) {
  std::vector<std::int64_t> ids;
  for (const std::int64_t sample : samples) ids.push_back(100 + sample);
  add_int64(trace, rank, kIds, {std::ssize(ids)}, ids);
  add_packed(trace, rank, samples);
}

Trace whole(bool is_told) {
  Trace trace = mesh_trace("", 1);
  (is_told ? add_told(trace, 0, {0, 1, 2, 3}) : add_packed(trace, 0, {0, 1, 2, 3}));
  return trace;
}

Trace told(const std::vector<std::int64_t>& first, const std::vector<std::int64_t>& second) {
  Trace trace = mesh_trace("dp=2", 2);
  add_told(trace, 0, first);
  add_told(trace, 1, second);
  return trace;
}

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("packed sequences are the reference's, whichever samples a rank has, and its numbers of them are its own") {
  for (const auto& [first, second] : {std::pair{std::vector<std::int64_t>{0, 1}, std::vector<std::int64_t>{2, 3}},
                                      {{0, 2}, {1, 3}},
                                      {{3, 0}, {2, 1}},
                                      {{3, 2, 0}, {1}}}) {
    const Report report = checked(whole(true), told(first, second), "");
    CHECK(findings_in(report).empty());
    CHECK(report.totals.counts.pass == 3);
    CHECK(report.totals.waived == 3);
  }
}

TEST_CASE("a wrong row of a packed sequence is found, at the reference's row of its sample and step") {
  Trace candidate = mesh_trace("dp=2", 2);
  add_told(candidate, 0, {0, 2});
  add_int64(candidate, 1, kIds, {2}, {101, 103});
  add_packed(candidate, 1, {1, 3});
  auto& bytes =
      std::const_pointer_cast<MemoryFile>(std::static_pointer_cast<const MemoryFile>(candidate.ranks[1].file))->bytes;
  for (Entry& entry : candidate.ranks[1].entries) {
    if (entry.id != kRows) continue;
    reinterpret_cast<float*>(bytes.data() + entry.offset)[4] *= 2;  // of sample 3, the last step
    entry.checksum += 1;
  }
  const Report report = checked(whole(true), candidate, "");
  REQUIRE(findings_in(report).size() == 1);
  CHECK(findings_in(report)[0] == "rnn:0.0 input: exceeds-tolerance");
  CHECK(report.findings[0].ranks == std::vector<std::int32_t>{1});
  CHECK(report.findings[0].difference->worst_index == Shape{9, 0});
  CHECK_FALSE(report.findings[0].guessed);
}

TEST_CASE("sequences that a rank packs by lengths of another sample are wrong") {
  Trace candidate = mesh_trace("dp=2", 2);
  add_told(candidate, 0, {0, 1});
  add_int64(candidate, 1, kIds, {2}, {102, 103});
  add_packed(candidate, 1, {2, 3}, {3, 1, 4, 2});
  CHECK(checked(whole(true), candidate, "").totals.counts.fail > 0);
}

TEST_CASE(
    "where nothing but lengths tells the samples, their order is a guess, and where not even these do, it is open") {
  Trace candidate = mesh_trace("dp=2", 2);
  add_packed(candidate, 0, {0, 2});
  add_packed(candidate, 1, {1, 3});
  CHECK(findings_in(checked(whole(false), candidate, "")).empty());
  Trace open = mesh_trace("dp=2", 2);
  add_packed(open, 0, {3, 0});
  add_packed(open, 1, {2, 1});
  const Report report = checked(whole(false), open, "");
  REQUIRE(report.findings.size() == 2);
  for (const Finding& finding : report.findings) {
    CHECK(finding.reason == Reason::kShapeMismatch);
    CHECK(finding.guessed);
    CHECK(has(finding.message, "nothing tells which of the reference's samples these are"));
  }
}

TEST_SUITE_END();
