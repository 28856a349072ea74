#include "diagnose/other_microbatches.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/lookup.h"
#include "base/tensor_name.h"

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

}  // namespace ttrace
