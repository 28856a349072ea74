// Rows of samples of unlike lengths, one behind the other, on ranks that are dealt the samples out in turns.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

using Integers = std::vector<std::int64_t>;
using Fill = std::function<void(Trace&, std::size_t rank, const Integers& samples)>;

const TensorId kReturned = tensor_id(Kind::kOutput, "(model)", 0);
const Integers kWords = {3, 1, 2, 4};

std::int64_t count_of_words(std::int64_t sample) { return kWords[static_cast<std::size_t>(sample)]; }

// A row of the output is of a sample and a word, and so is a word's number.
void add_output(Trace& trace, std::size_t rank, const Integers& samples, float factor = 1) {
  std::vector<float> rows;
  for (const std::int64_t sample : samples) {
    for (std::int64_t word = 0; word < count_of_words(sample); ++word) {
      rows.push_back(static_cast<float>(10 * sample + word + 1) * factor);
      rows.push_back(static_cast<float>(word - sample));
    }
  }
  add_tensor(trace, rank, kReturned, {std::ssize(rows) / 2, 2}, rows);
}

Integers words_of(std::int64_t sample) {
  Integers words;
  for (std::int64_t word = 0; word < count_of_words(sample); ++word) words.push_back(10 * sample + word);
  return words;
}

void add_list(Trace& trace, std::size_t rank, const Integers& samples) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const TensorId id = tensor_id(Kind::kInput, "(model):0." + std::to_string(i), 0);
    add_int64(trace, rank, id, {count_of_words(samples[i])}, words_of(samples[i]));
  }
}

void add_jagged(Trace& trace, std::size_t rank, const Integers& samples) {
  Integers words, ends = {0};
  for (const std::int64_t sample : samples) {
    for (const std::int64_t word : words_of(sample)) words.push_back(word);
    ends.push_back(std::ssize(words));
  }
  add_int64(trace, rank, tensor_id(Kind::kInput, "(model):0", 0), {std::ssize(words)}, words);
  add_int64(trace, rank, tensor_id(Kind::kInput, "(model):1", 0), {std::ssize(ends)}, ends);
}

void add_masked(Trace& trace, std::size_t rank, const Integers& samples) {
  Integers words, mask;
  for (const std::int64_t sample : samples) {
    for (std::int64_t position = 0; position < 5; ++position) {
      words.push_back(10 * sample + position);
      mask.push_back(position > 4 - count_of_words(sample) ? 1 : 0);
    }
  }
  add_int64(trace, rank, tensor_id(Kind::kInput, "(model):0", 0), {std::ssize(samples), 5}, words);
  add_int64(trace, rank, tensor_id(Kind::kInput, "(model):1", 0), {std::ssize(samples), 5}, mask);
}

void add_lengths(Trace& trace, std::size_t rank, const Integers& samples) {
  Integers lengths, ids;
  for (const std::int64_t sample : samples) {
    lengths.push_back(count_of_words(sample));
    ids.push_back(std::int64_t{1} << (40 + sample));  // no lengths
  }
  add_int64(trace, rank, tensor_id(Kind::kInput, "(model):0", 0), {std::ssize(samples)}, ids);
  add_int64(trace, rank, tensor_id(Kind::kInput, "(model):1", 0), {std::ssize(samples)}, lengths);
}

std::vector<std::string> found_in(const Fill& fill, const Integers& first, const Integers& second, float factor = 1) {
  Trace one = mesh_trace("", 1), two = mesh_trace("dp=2", 2);
  fill(one, 0, {0, 1, 2, 3});
  add_output(one, 0, {0, 1, 2, 3});
  fill(two, 0, first);
  add_output(two, 0, first);
  fill(two, 1, second);
  add_output(two, 1, second, factor);
  return findings_in(checked(one, two, ""));
}

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("rows of the samples' words lie as the samples do, by whatever tells how long these are") {
  for (const Fill& fill : {Fill(add_list), Fill(add_jagged), Fill(add_masked), Fill(add_lengths)}) {
    CHECK(found_in(fill, {0, 1}, {2, 3}).empty());
    CHECK(found_in(fill, {0, 2}, {1, 3}).empty());  // five rows each, of two samples
    CHECK(found_in(fill, {3, 0}, {2, 1}).empty());
    CHECK(found_in(fill, {3}, {2, 1, 0}).empty());
    CHECK(found_in(fill, {0, 2}, {1, 3}, 1.01F) == std::vector<std::string>{"(model) output: exceeds-tolerance"});
  }
}

TEST_SUITE_END();
