#include "diagnose/other_microbatches.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/count_of.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "identify/samples.h"
#include "merge/elements.h"

namespace ttrace {
namespace {

// What a model was given under one name in an iteration: the extents of the first dimension, by micro-batch.
using ExtentsGiven = std::map<std::pair<std::int32_t, std::string>, std::vector<std::int64_t>>;

ExtentsGiven given_to_models(const Alignment& alignment) {
  ExtentsGiven given;
  for (const auto& [id, tensor] : alignment.tensors) {
    const bool is_given = id.kind == Kind::kInput && id.pass == Pass::kForward && id.microbatch != kNoMicrobatch;
    if (!is_given || tensor.shape.empty()) continue;
    const TensorName name(id.name.get());
    if (last_component(name.path) == kRootModule) given[{id.iteration, id.name}].push_back(tensor.shape[0]);
  }
  return given;
}

std::int64_t sum_of(const std::vector<std::int64_t>& samples) {
  return std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
}

// 0 where they are not equal.
std::int64_t common(const std::vector<std::int64_t>& samples) {
  return std::ranges::all_of(samples, [&](std::int64_t other) { return other == samples[0]; }) ? samples[0] : 0;
}

bool are_cut_otherwise(const std::vector<std::int64_t>& reference, const std::vector<std::int64_t>& candidate) {
  const auto has = [&](std::int64_t samples) { return std::ranges::find(reference, samples) != reference.end(); };
  return sum_of(reference) == sum_of(candidate) && std::ranges::none_of(candidate, has);
}

// The tensors that a model was given under one name in an iteration, by micro-batch.
std::vector<const LogicalTensor*> given_in(const Alignment& alignment, TensorId id) {
  std::vector<const LogicalTensor*> given;
  for (id.microbatch = 0;; ++id.microbatch) {
    const LogicalTensor* tensor = find_tensor(alignment, id);
    if (tensor == nullptr || tensor->rows || tensor->kept || tensor->sketched) return given;
    given.push_back(tensor);
  }
}

std::vector<std::uint64_t> samples_in(const LogicalTensor& tensor) {
  return hashes_of_rows(bytes_of(tensor).data(), tensor.shape, 0, tensor.dtype);
}

// True where one side's could be the other's by their kind.
bool are_alike(const LogicalTensor& a, const LogicalTensor& b) {
  return a.dtype == b.dtype && a.shape.size() == b.shape.size() && !a.shape.empty() &&
         std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
}

// True where several ranks were given the same in each micro-batch.
bool have_ranks_the_same(const std::vector<const LogicalTensor*>& given) {
  return !given.empty() && std::ranges::all_of(given, [](const LogicalTensor* tensor) {
    const std::vector<Piece> pieces = tensor->pieces();
    return pieces.size() > 1 && std::ranges::all_of(pieces, [&](const Piece& piece) {
             return piece.entry->checksum == pieces[0].entry->checksum && piece.entry->shape == pieces[0].entry->shape;
           });
  });
}

}  // namespace

std::map<std::int32_t, CutOfBatch> other_numbers_of_microbatches(const Evidence& evidence) {
  std::map<std::int32_t, CutOfBatch> numbers;
  for (const auto& [iteration, counts] : other_microbatch_counts(evidence.reference, evidence.candidate)) {
    numbers[iteration] = {counts.reference, counts.candidate, false};
  }
  return numbers;
}

std::map<std::int32_t, CutOfBatch> batches_cut_otherwise(const Evidence& evidence) {
  std::map<std::int32_t, CutOfBatch> cut = other_numbers_of_microbatches(evidence);
  if (cut.empty()) return cut;
  const ExtentsGiven reference = given_to_models(evidence.reference), candidate = given_to_models(evidence.candidate);
  for (const auto& [key, samples] : reference) {
    const auto other = candidate.find(key);
    if (!cut.contains(key.first) || other == candidate.end() || !are_cut_otherwise(samples, other->second)) continue;
    for (auto& [iteration, numbers] : cut) {
      numbers.is_same_batch = true;
      numbers.reference_samples = common(samples);
      numbers.candidate_samples = common(other->second);
    }
    return cut;
  }
  return {};
}

std::string describe_other_batch(const Evidence& evidence, std::int32_t iteration) {
  const ExtentsGiven reference = given_to_models(evidence.reference), candidate = given_to_models(evidence.candidate);
  for (const auto& [key, samples] : reference) {
    const auto other = candidate.find(key);
    if (key.first != iteration || other == candidate.end() || sum_of(samples) == sum_of(other->second)) continue;
    const TensorId input{.iteration = iteration, .microbatch = 0, .kind = Kind::kInput, .name = key.second};
    const bool lacks_some = sum_of(other->second) < sum_of(samples);
    return fmt::format(
        "the candidate's model is given {} in the iteration, and the reference's {} (dimension 0 of {}){}",
        count_of(sum_of(other->second), "sample"), sum_of(samples), printable(key.second),
        lacks_some && have_ranks_the_same(given_in(evidence.candidate, input)) ? "; its ranks were given the same ones"
                                                                               : "");
  }
  return "";
}

std::string OtherSamples::sentence() const {
  return fmt::format(
      "{} of the {} samples that its model is given ({}) have the bits of none of the reference's: they are others, or "
      "made otherwise",
      others, all, printable(input.name.get()));
}

std::optional<OtherSamples> other_samples(const Evidence& evidence, std::int32_t iteration) {
  if (!other_microbatch_counts(evidence.reference, evidence.candidate).contains(iteration)) return std::nullopt;
  for (const auto& [key, extents] : given_to_models(evidence.reference)) {
    if (key.first != iteration) continue;
    OtherSamples found{{.iteration = iteration, .microbatch = 0, .kind = Kind::kInput, .name = key.second}};
    const auto reference = given_in(evidence.reference, found.input),
               candidate = given_in(evidence.candidate, found.input);
    if (reference.empty() || candidate.empty()) continue;
    std::set<std::uint64_t> known;
    for (const LogicalTensor* tensor : reference) {
      const auto samples = samples_in(*tensor);
      known.insert(samples.begin(), samples.end());
    }
    for (const LogicalTensor* tensor : candidate) {
      if (!are_alike(*tensor, *reference[0])) return std::nullopt;
      for (const std::uint64_t sample : samples_in(*tensor)) {
        found.others += known.contains(sample) ? 0 : 1;
        ++found.all;
      }
    }
    if (found.others > 0) return found;
  }
  return std::nullopt;
}

}  // namespace ttrace
