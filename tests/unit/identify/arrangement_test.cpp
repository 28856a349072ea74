// How ranks are arranged, as the bytes of parameters and inputs tell it beside a reference of one process.
#include "identify/arrangement.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/mesh_trace.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

using Floats = std::vector<float>;

const Floats kWeight = {1, 2, 3, 4, 5, 6, 7, 8}, kBias = {9, 10};  // of shapes {4, 2} and {2}
const Floats kBatch = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};     // two samples of three places with two features

class Job {
 public:
  explicit Job(std::int32_t ranks) : trace(mesh_trace(ranks == 1 ? "" : "dp=" + std::to_string(ranks), ranks)) {
    trace.mesh = {};
  }

  Job& param(std::size_t rank, const std::string& name, Shape shape, const Floats& values) {
    add_tensor(trace, rank, tensor_id(Kind::kParam, name), std::move(shape), values);
    return *this;
  }
  Job& given(std::size_t rank, Shape shape, const Floats& values) {
    add_tensor(trace, rank, tensor_id(Kind::kInput, "(model)", 0), std::move(shape), values);
    return *this;
  }
  Job& loss(std::size_t rank, float value = 1) {
    add_tensor(trace, rank, tensor_id(Kind::kScalar, "loss", 0), {}, {value});
    return *this;
  }

  Trace trace;
};

Job reference() {
  Job job(1);
  return job.param(0, "0.weight", {4, 2}, kWeight).param(0, "1.bias", {2}, kBias).given(0, {2, 3, 2}, kBatch).loss(0);
}

std::string told(const Job& candidate) { return axes_told_by(reference().trace, candidate.trace).axes; }

Floats rows_of(const Floats& values, std::size_t begin, std::size_t end) {
  return {values.begin() + static_cast<std::ptrdiff_t>(begin), values.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("ranks with the model and samples of their own are data parallel, with parts of it as well") {
  Job copies(2), owners(2);
  for (const std::size_t rank : {0, 1}) {
    copies.param(rank, "0.weight", {4, 2}, kWeight).param(rank, "1.bias", {2}, kBias);
    for (Job* job : {&copies, &owners}) job->given(rank, {1, 3, 2}, rows_of(kBatch, 6 * rank, 6 * rank + 6)).loss(rank);
  }
  owners.param(0, "0.weight", {4, 2}, kWeight).param(1, "1.bias", {2}, kBias);
  CHECK(told(copies) == "dp=2");
  CHECK(told(owners) == "dp=2");
}

TEST_CASE("ranks of which one leaves samples out are data parallel, others' samples are told by none") {
  Job short_of_some(2), others(2);  // of the three samples that the reference is given
  Job whole(1);
  whole.param(0, "0.weight", {4, 2}, kWeight).param(0, "1.bias", {2}, kBias).given(0, {3, 4}, kBatch);
  for (const std::size_t rank : {0, 1}) {
    for (Job* job : {&short_of_some, &others}) {
      job->param(rank, "0.weight", {4, 2}, kWeight).param(rank, "1.bias", {2}, kBias);
    }
    short_of_some.given(rank, {1, 4}, rows_of(kBatch, 4 * rank, 4 * rank + 4));
    others.given(rank, {1, 4}, rows_of(kBatch, 3 * rank + 1, 3 * rank + 5));
  }
  CHECK(axes_told_by(whole.trace, short_of_some.trace).axes == "dp=2");
  CHECK(axes_told_by(whole.trace, others.trace).axes.empty());
}

TEST_CASE("experts that each rank numbers from 0 are told by their bytes") {
  Job trusted(1), job(2);
  trusted.given(0, {2, 3, 2}, kBatch).param(0, "1.bias", {2}, kBias);
  for (const std::size_t expert : {0, 1, 2, 3}) {
    const Floats values = rows_of(kWeight, 2 * expert, 2 * expert + 2);
    trusted.param(0, "experts." + std::to_string(expert), {2}, values);
    job.param(expert / 2, "experts." + std::to_string(expert % 2), {2}, values);
  }
  for (const std::size_t rank : {0, 1}) {
    job.param(rank, "1.bias", {2}, kBias).given(rank, {1, 3, 2}, rows_of(kBatch, 6 * rank, 6 * rank + 6));
  }
  CHECK(axes_told_by(trusted.trace, job.trace).axes == "dp=2");
}

TEST_CASE("ranks with the model and stripes of the images are data parallel") {
  Job whole(1), stripes(2), others(2);  // one image of one channel and 4 by 3 places
  whole.param(0, "0.weight", {4, 2}, kWeight).param(0, "1.bias", {2}, kBias).given(0, {1, 1, 4, 3}, kBatch).loss(0);
  for (const std::size_t rank : {0, 1}) {
    for (Job* job : {&stripes, &others}) {
      job->param(rank, "0.weight", {4, 2}, kWeight).param(rank, "1.bias", {2}, kBias).loss(rank);
    }
    stripes.given(rank, {1, 1, 2, 3}, rows_of(kBatch, 6 * rank, 6 * rank + 6));
    others.given(rank, {1, 1, 2, 3}, {0, 0, 0, 1, 1, static_cast<float>(rank)});
  }
  CHECK(axes_told_by(whole.trace, stripes.trace).axes == "dp=2");
  CHECK(axes_told_by(whole.trace, others.trace).axes.empty());
}

TEST_CASE("ranks with the model and stretches of a signal are data parallel") {
  Job whole(1), stretches(2);  // a signal of two channels and six places
  whole.param(0, "0.weight", {4, 2}, kWeight).param(0, "1.bias", {2}, kBias).given(0, {1, 2, 6}, kBatch).loss(0);
  for (const std::size_t rank : {0, 1}) {
    Floats places = rows_of(kBatch, 3 * rank, 3 * rank + 3);
    for (const float value : rows_of(kBatch, 6 + 3 * rank, 6 + 3 * rank + 3)) places.push_back(value);
    stretches.param(rank, "0.weight", {4, 2}, kWeight).param(rank, "1.bias", {2}, kBias).given(rank, {1, 2, 3}, places);
  }
  CHECK(axes_told_by(whole.trace, stretches.trace).axes == "dp=2");
}

TEST_CASE("ranks that are given nothing and hold stretches of parameters are tensor parallel") {
  Job whole(1), parts(2), others(2);
  whole.param(0, "users", {4, 2}, kWeight).param(0, "items", {2}, kBias).loss(0);
  for (const std::size_t rank : {0, 1}) {
    parts.param(rank, "users", {2, 2}, rows_of(kWeight, 4 * rank, 4 * rank + 4)).param(rank, "items", {2}, kBias);
    others.param(rank, "users", {2, 2}, rows_of(kWeight, 4 - 4 * rank, 8 - 4 * rank)).param(rank, "items", {2}, kBias);
  }
  CHECK(axes_told_by(whole.trace, parts.trace).axes == "tp=2");
  CHECK(axes_told_by(whole.trace, others.trace).axes.empty());  // the order of the ranks is not known
}

TEST_CASE("ranks with parts of parameters and of each sequence are tensor parallel, and sequence parallel") {
  Job parts(2);
  Job whole(1);
  whole.param(0, "0.weight", {4, 2}, kWeight).param(0, "1.bias", {2}, kBias).given(0, {2, 2, 3}, kBatch).loss(0);
  for (const std::size_t rank : {0, 1}) {
    Floats places = rows_of(kBatch, 3 * rank, 3 * rank + 3);
    for (const float value : rows_of(kBatch, 6 + 3 * rank, 6 + 3 * rank + 3)) places.push_back(value);
    parts.param(rank, "0.weight", {2, 2}, rows_of(kWeight, 4 * rank, 4 * rank + 4));
    parts.param(rank, "1.bias", {2}, kBias).given(rank, {2, 1, 3}, places).loss(rank);
  }
  CHECK(axes_told_by(whole.trace, parts.trace).axes == "tp=2,sp=tp");
}

TEST_CASE("ranks that are given all are data parallel where their losses add up to the reference's") {
  const auto with_losses = [](float first, float second) {
    Job job(2);
    for (const std::size_t rank : {0, 1}) {
      job.param(rank, "0.weight", {4, 2}, kWeight).param(rank, "1.bias", {2}, kBias).given(rank, {2, 3, 2}, kBatch);
      job.loss(rank, rank == 0 ? first : second);
    }
    return told(job);
  };
  CHECK(with_losses(0.25F, 0.75F) == "dp=2");
  CHECK(with_losses(0.5F, 1.52F) == "dp=2");  // a mean, which is a little wrong
  CHECK(with_losses(1, 1).empty());
  CHECK(with_losses(0.5F, 3).empty());
}

TEST_CASE("ranks with the model and parts of each sequence are context parallel") {
  Job job(3);
  for (const std::size_t rank : {0, 1, 2}) {
    Floats places = rows_of(kBatch, 2 * rank, 2 * rank + 2);
    for (const float value : rows_of(kBatch, 6 + 2 * rank, 6 + 2 * rank + 2)) places.push_back(value);
    job.param(rank, "0.weight", {4, 2}, kWeight).param(rank, "1.bias", {2}, kBias).given(rank, {2, 1, 2}, places);
  }
  CHECK(told(job) == "cp=3");
}

TEST_CASE(
    "ranks with the same samples and stretches of parameters are tensor parallel, beside others with other ones") {
  const auto job_of = [](std::size_t copies, bool is_swapped, std::size_t padding) {
    Job job(static_cast<std::int32_t>(2 * copies));
    for (std::size_t rank = 0; rank < 2 * copies; ++rank) {
      const std::size_t part = is_swapped ? 1 - rank % 2 : rank % 2, samples = copies == 1 ? 12 : 6;
      Floats rows = rows_of(kWeight, 4 * part, 4 * part + 4);
      rows.resize(4 + 2 * padding);
      job.param(rank, "0.weight", {static_cast<std::int64_t>(2 + padding), 2}, rows).param(rank, "1.bias", {2}, kBias);
      const std::size_t first = copies == 1 ? 0 : rank / 2 * 6;
      job.given(rank, {static_cast<std::int64_t>(samples / 6), 3, 2}, rows_of(kBatch, first, first + samples))
          .loss(rank);
    }
    return job;
  };
  CHECK(told(job_of(1, false, 0)) == "tp=2");
  CHECK(told(job_of(2, false, 0)) == "tp=2,dp=2");
  CHECK(told(job_of(1, true, 0)) == "");   // no stretches of the reference's: the order of the ranks is not known
  CHECK(told(job_of(1, false, 1)) == "");  // what lies between the parts is not the reference's
}

TEST_CASE("a parameter that is padded to be cut is told by what is not padding") {
  Job job(2);
  job.param(0, "0.weight", {3, 2}, rows_of(kWeight, 0, 6)).param(1, "0.weight", {3, 2}, {7, 8, 0, 0, 0, 0});
  for (const std::size_t rank : {0, 1}) job.param(rank, "1.bias", {2}, kBias).given(rank, {2, 3, 2}, kBatch);
  CHECK(told(job) == "tp=2");
}

TEST_CASE("ranks with parameters of their own, of which the last alone has a loss, are stages") {
  Job job(2);
  job.param(0, "0.weight", {4, 2}, kWeight).param(1, "1.bias", {2}, kBias).given(0, {2, 3, 2}, kBatch);
  job.given(1, {2, 2}, {1, 1, 2, 2}).loss(1);
  CHECK(told(job) == "pp=2");
  Job backwards(2);
  backwards.param(1, "0.weight", {4, 2}, kWeight).param(0, "1.bias", {2}, kBias).given(1, {2, 3, 2}, kBatch).loss(0);
  CHECK(told(backwards) == "");
  Job other_model(2);
  other_model.param(0, "0.weight", {4, 2}, Floats(8, 1))
      .param(1, "1.bias", {2}, kWeight)
      .given(0, {2, 3, 2}, kBatch)
      .loss(1);
  CHECK(told(other_model) == "");
}

TEST_CASE("stages of which several ranks hold each are pipeline parallel beside data parallel") {
  const auto job_of = [](bool are_in_a_row, bool has_own_bias) {
    Job job(4);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const std::size_t stage = are_in_a_row ? rank / 2 : rank % 2, copy = are_in_a_row ? rank % 2 : rank / 2;
      if (stage == 0) {
        job.param(rank, "0.weight", {4, 2}, kWeight).given(rank, {1, 3, 2}, rows_of(kBatch, 6 * copy, 6 * copy + 6));
      } else {
        job.param(rank, "1.bias", {2}, has_own_bias && copy == 1 ? Floats{9, 11} : kBias);
        job.given(rank, {1, 2}, {1, 2}).loss(rank);
      }
    }
    return job;
  };
  CHECK(told(job_of(true, false)) == "dp=2,pp=2");
  CHECK(told(job_of(false, false)) == "pp=2,dp=2");
  CHECK(axes_to_propose(job_of(true, false).trace) == "dp=2,pp=2");
  CHECK(told(job_of(true, true)) == "");  // the last two are no copies
}

TEST_CASE("ranks with the model and blocks of samples and places are context parallel beside data parallel") {
  Job whole(1);
  const Floats batch = {1, 2, 3, 4, 5, 6, 7, 8};  // two samples of four places
  whole.param(0, "0.weight", {4, 2}, kWeight).given(0, {2, 4, 1}, batch);
  const auto job_of = [&](bool are_places_first) {
    Job job(4);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const std::size_t sample = are_places_first ? rank / 2 : rank % 2, half = are_places_first ? rank % 2 : rank / 2;
      const std::size_t begin = 4 * sample + 2 * half;
      job.param(rank, "0.weight", {4, 2}, kWeight).given(rank, {1, 2, 1}, rows_of(batch, begin, begin + 2));
    }
    return job;
  };
  CHECK(axes_told_by(whole.trace, job_of(true).trace).axes == "cp=2,dp=2");
  CHECK(axes_told_by(whole.trace, job_of(false).trace).axes == "dp=2,cp=2");
}

TEST_CASE(
    "nothing is told of ranks that hold other parameters than the reference, or of samples that are not its own") {
  Job lacks(2), other_samples(2);
  for (const std::size_t rank : {0, 1}) {
    lacks.param(rank, "0.weight", {4, 2}, kWeight).given(rank, {1, 3, 2}, rows_of(kBatch, 6 * rank, 6 * rank + 6));
    other_samples.param(rank, "0.weight", {4, 2}, kWeight).param(rank, "1.bias", {2}, kBias);
    other_samples.given(rank, {1, 3, 2}, Floats(6, static_cast<float>(20 + rank)));
  }
  CHECK(told(lacks) == "");
  CHECK(told(other_samples) == "");
}

TEST_SUITE_END();
