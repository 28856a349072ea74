#include "identify/told_microbatches.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/tensor_name.h"
#include "identify/given_inputs.h"
#include "identify/member_names.h"
#include "identify/microbatch.h"

namespace ttrace {
namespace {

// What the model was given in a micro-batch: shapes and checksums, by name.
using ModelInputs = std::map<std::string, std::pair<Shape, std::uint64_t>>;
using InputsByCoordinate =
    std::map<std::pair<std::int64_t, std::int32_t>, ModelInputs>;  // and number of the micro-batch there

// The path of the module whose inputs tell: the whole model, or, of a program that calls functions, the first that the
// reference calls.
std::string path_that_tells(const Alignment& reference) {
  const LogicalTensor* first = nullptr;
  for (const auto& [id, tensor] : reference.tensors) {
    if (id.kind != Kind::kInput || id.microbatch < 0) continue;
    if (is_of_whole_model(id)) return std::string(TensorName(id.name).path);
    if (first == nullptr || tensor.order < first->order) first = &tensor;
  }
  return first == nullptr ? "" : std::string(TensorName(first->id.name).path);
}

std::map<std::int32_t, InputsByCoordinate> given_to_ranks(const RankTable& table, const Census& census,
                                                          const Microbatches& microbatches, const ModelLayout& layout,
                                                          const std::string& path) {
  std::map<std::int32_t, InputsByCoordinate> given;
  for_each_entry(census, is_first_input, [&](const PresentRank& rank, const Entry& entry) {
    const TensorId id = id_in_reference(entry.id, layout, microbatches.are_stages);
    if (id.microbatch < 0 || TensorName(id.name).path != path || entry.sketch) return;
    const std::int64_t coordinate = coordinate_on(rank, table, microbatches);
    given[id.iteration][{coordinate, id.microbatch}].try_emplace(id.name.get(), entry.shape.get(), entry.checksum);
  });
  return given;
}

// The reference's, by iteration, then what was given: the numbers of its micro-batches, ascending.
std::map<std::int32_t, std::map<ModelInputs, std::vector<std::int32_t>>> given_to_reference(const Alignment& reference,
                                                                                            const std::string& path) {
  std::map<std::pair<std::int32_t, std::int32_t>, ModelInputs> given;
  for (const auto& [id, tensor] : reference.tensors) {
    const bool is_given = id.kind == Kind::kInput && id.pass == Pass::kForward && id.microbatch >= 0;
    if (!is_given || TensorName(id.name).path != path || tensor.sketched) continue;
    const std::vector<Piece> pieces = tensor.pieces();
    const bool is_whole = !pieces.empty() && pieces[0].entry->shape == tensor.shape;
    if (is_whole)
      given[{id.iteration, id.microbatch}].try_emplace(id.name.get(), tensor.shape, pieces[0].entry->checksum);
  }
  std::map<std::int32_t, std::map<ModelInputs, std::vector<std::int32_t>>> numbers;
  for (const auto& [id, inputs] : given) numbers[id.first][inputs].push_back(id.second);
  return numbers;
}

// True where the parts make up each of the inputs along a dimension.
bool make_up(const std::vector<const ModelInputs*>& parts, const ModelInputs& whole) {
  for (const auto& [name, input] : whole) {
    const Shape& shape = input.first;
    bool fits = false;
    for (std::size_t d = 0; d < shape.size() && !fits; ++d) {
      std::int64_t sum = 0;
      for (const ModelInputs* part : parts) {
        const auto found = part->find(name);
        if (found == part->end() || found->second.first.size() != shape.size()) return false;
        sum += found->second.first[d];
      }
      fits = sum == shape[d];
    }
    if (!fits) return false;
  }
  return !whole.empty();
}

// Numbers the micro-batches without one (-1), if any, as the reference's that no coordinate ran whole, where each
// coordinate has as many of them as these are, and they are slices of these; returns false elsewhere.
bool number_slices(const InputsByCoordinate& given,
                   const std::map<ModelInputs, std::vector<std::int32_t>>& of_reference, ToldNumbers& told) {
  std::map<std::int32_t, const ModelInputs*> left;
  for (const auto& [inputs, numbers] : of_reference) {
    for (const std::int32_t number : numbers) left[number] = &inputs;
  }
  for (const auto& numbers : told.numbers) {
    for (const std::int32_t number : numbers) left.erase(number);
  }
  std::vector<std::vector<std::size_t>> open(told.numbers.size());  // places of those without a number, by coordinate
  for (std::size_t i = 0; i < open.size(); ++i) {
    for (std::size_t local = 0; local < told.numbers[i].size(); ++local) {
      if (told.numbers[i][local] < 0) open[i].push_back(local);
    }
  }
  if (std::ranges::all_of(open, [](const auto& places) { return places.empty(); })) return true;
  if (std::ranges::any_of(open, [&](const auto& places) { return places.size() != left.size(); })) return false;
  std::size_t place = 0;
  for (const auto& [number, whole] : left) {
    std::vector<const ModelInputs*> parts;
    for (std::size_t i = 0; i < open.size(); ++i) {
      parts.push_back(&given.at({static_cast<std::int64_t>(i), static_cast<std::int32_t>(open[i][place])}));
      told.numbers[i][open[i][place]] = number;
    }
    if (!make_up(parts, *whole)) return false;
    told.sliced.insert(number);
    ++place;
  }
  return true;
}

// Returns which of the reference's micro-batches each coordinate ran in an iteration: those that it was given, and slices
// of what is left. None where two coordinates were given the same, or what is left makes up nothing of the reference's.
ToldNumbers numbers_told_by(const InputsByCoordinate& given,
                            const std::map<ModelInputs, std::vector<std::int32_t>>& numbers,
                            const std::vector<std::int64_t>& counts) {
  ToldNumbers result;
  std::vector<std::vector<std::int32_t>>& told = result.numbers;
  told.resize(counts.size());
  std::map<ModelInputs, std::size_t> taken;
  std::map<ModelInputs, std::int64_t> owners;
  for (const auto& [place, inputs] : given) {
    const auto found = numbers.find(inputs);
    const auto coordinate = static_cast<std::size_t>(place.first);
    if (place.second != std::ssize(told[coordinate])) return {};
    if (found == numbers.end()) {
      told[coordinate].push_back(-1);
      continue;
    }
    if (owners.try_emplace(inputs, place.first).first->second != place.first) return {};
    const std::size_t at = taken[inputs]++;
    if (at >= found->second.size()) return {};
    told[coordinate].push_back(found->second[at]);
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (std::ssize(told[i]) != counts[i]) return {};
  }
  return number_slices(given, numbers, result) ? result : ToldNumbers();
}

// Of an iteration, of which no inputs were recorded, what the first one tells: the same where as many were run; of one
// that ran slices beside others, slices where each coordinate ran as many as the reference.
ToldNumbers numbers_as_in_first(const Microbatches& microbatches, std::int32_t iteration, const ToldNumbers& first,
                                std::int64_t of_reference) {
  const std::vector<std::int64_t>& counts = microbatches.counts.at(iteration);
  const auto is_count = [](std::int64_t count, const auto& numbers) { return count == std::ssize(numbers); };
  if (std::ranges::equal(counts, first.numbers, is_count)) return first;
  const auto is_references = [&](std::int64_t count) { return count == of_reference; };
  if (first.sliced.empty() || !std::ranges::all_of(counts, is_references)) return {};
  ToldNumbers told;
  told.numbers.resize(counts.size());
  for (std::int32_t number = 0; number < of_reference; ++number) {
    for (auto& numbers : told.numbers) numbers.push_back(number);
    told.sliced.insert(number);
  }
  return told;
}

}  // namespace

std::map<std::int32_t, ToldNumbers> told_numbers(const RankTable& table, const Census& census,
                                                 const Microbatches& microbatches, const ModelLayout& layout) {
  const std::string path = path_that_tells(*layout.reference);
  const auto numbers = given_to_reference(*layout.reference, path);
  const auto given = given_to_ranks(table, census, microbatches, layout, path);
  std::map<std::int32_t, ToldNumbers> told;
  for (const auto& [iteration, counts] : microbatches.counts) {
    const auto of_ranks = given.find(iteration);
    const auto of_reference = numbers.find(iteration);
    if (of_ranks == given.end() || of_reference == numbers.end()) {
      const auto count = layout.microbatches.find(iteration);
      if (told.empty() || count == layout.microbatches.end()) return {};
      told[iteration] = numbers_as_in_first(microbatches, iteration, told.begin()->second, count->second);
    } else {
      told[iteration] = numbers_told_by(of_ranks->second, of_reference->second, counts);
    }
    if (told[iteration].numbers.empty()) return {};
  }
  return told;
}

}  // namespace ttrace
