#include "identify/given_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "identify/member_names.h"
#include "identify/microbatch.h"
#include "numeric/convert.h"

namespace ttrace {
namespace {

// The dimension of the reference's tensor that is the sum of the ranks' parts along the micro-batch axes, and is larger
// than each; nothing where there is none.
std::optional<std::size_t> sliced_dimension(const Shape& reference, const std::vector<const Entry*>& parts) {
  for (std::size_t d = 0; d < reference.size(); ++d) {
    std::int64_t sum = 0;
    bool smaller = true;
    for (const Entry* part : parts) {
      if (part == nullptr || part->shape.size() != reference.size()) return std::nullopt;
      sum += part->shape[d];
      smaller = smaller && part->shape[d] < reference[d];
    }
    if (smaller && sum == reference[d]) return d;
  }
  return std::nullopt;
}

// True where the model was given lists, of which each rank has some elements.
bool are_parts_of_list(const std::vector<std::set<TensorId>>& given, const Alignment& reference) {
  const auto whole = std::count_if(reference.tensors.begin(), reference.tensors.end(), [](const auto& item) {
    const TensorId& id = item.first;
    return id.kind == Kind::kInput && id.pass == Pass::kForward && id.microbatch >= 0 && is_of_whole_model(id);
  });
  std::ptrdiff_t sum = 0;
  for (const std::set<TensorId>& of_rank : given) {
    if (std::ssize(of_rank) >= whole || of_rank.empty()) return false;
    sum += std::ssize(of_rank);
  }
  return sum == whole;
}

// True where each rank that has the input was given as much as the reference.
bool are_whole(const SlicedInput& input) {
  return std::all_of(input.parts.begin(), input.parts.end(),
                     [&](const Entry* part) { return part == nullptr || part->shape == input.reference->shape; });
}

// True where each rank was given the reference's elements.
bool are_the_references(const SlicedInput& input) {
  for (std::size_t i = 0; i < input.parts.size(); ++i) {
    const Entry* part = input.parts[i];
    if (part == nullptr || part->sketch || input.reference->sketched || part->shape != input.reference->shape ||
        part->dtype != input.reference->dtype || !has_elements_of(*part, *input.ranks[i], *input.reference)) {
      return false;
    }
  }
  return true;
}

// True where each rank was given all that the reference was: of what the whole model is given everything to the bit, and
// most of the integers that modules inside are given. Floating-point ones of these may differ by rounding.
bool are_given_all(const std::map<TensorId, SlicedInput>& inputs) {
  std::ptrdiff_t equal = 0, unequal = 0;
  for (const auto& [id, input] : inputs) {
    const bool must_equal = is_of_whole_model(id);
    if (!must_equal && is_floating(input.reference->dtype)) continue;
    const bool is_equal = are_the_references(input);
    if (must_equal && !is_equal) return false;
    ++(is_equal ? equal : unequal);
  }
  return equal > unequal;
}

// The tensor's only element, where it is a whole number above 0; else 0.
std::int64_t count_in(const std::byte* data, Dtype dtype) {
  if (dtype == Dtype::kInt64 || dtype == Dtype::kInt32) return std::max<std::int64_t>(integer_at(data, 0, dtype), 0);
  if (!is_floating(dtype)) return 0;
  constexpr double kMost = 1e15;  // whole numbers of fp64
  double value = 0;
  widen(data, dtype, 1, &value);
  return value >= 1 && value <= kMost && value == std::floor(value) ? static_cast<std::int64_t>(value) : 0;
}

// True for a number that the ranks' add up to: of samples, or of tokens. Ranks that all have the reference's do not add
// up.
bool are_own_counts(const SlicedInput& input) {
  const LogicalTensor& reference = *input.reference;
  if (element_count(reference.shape) != 1) return false;
  const std::byte* whole = elements_of(reference);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < input.parts.size(); ++i) {
    const Entry* part = input.parts[i];
    if (part == nullptr || part->dtype != reference.dtype || part->shape != reference.shape || part->sketch)
      return false;
    const std::int64_t own = count_in(input.ranks[i]->bytes_of(*part), part->dtype);
    if (own == 0 || __builtin_add_overflow(sum, own, &sum)) return false;
  }
  return whole != nullptr && sum == count_in(whole, reference.dtype);
}

// The tensors of all lists, as the reference and the ranks number them. A module that is called fewer times on each rank may
// be given slices, where no bytes say otherwise.
std::set<TensorId> tensors_of(const std::vector<DividedList>& lists) {
  std::set<TensorId> elements;
  for (const DividedList& list : lists) {
    if (list.are_calls && !list.tells()) continue;
    const std::vector<TensorId> all = list.elements();
    elements.insert(all.begin(), all.end());
  }
  return elements;
}

// Adds what a rank holds of a tensor that the reference has, by its name there.
void put(std::map<TensorId, SlicedInput>& tensors, const TensorId& id, const PresentRank& rank, const Entry& entry,
         std::size_t coordinate, const Microbatches& microbatches, const ModelLayout& layout) {
  const LogicalTensor* reference = find_tensor(*layout.reference, id);
  if (reference == nullptr) return;
  SlicedInput& tensor = tensors[id];
  tensor.reference = reference;
  tensor.ranks.resize(static_cast<std::size_t>(microbatches.ranks));
  tensor.parts.resize(static_cast<std::size_t>(microbatches.ranks));
  if (const Entry* part = tensor.parts[coordinate]; part != nullptr) {
    tensor.is_shared = tensor.is_shared && part->shape == entry.shape && part->checksum == entry.checksum;
    return;
  }
  tensor.ranks[coordinate] = rank.trace;
  tensor.parts[coordinate] = &entry;
}

}  // namespace

bool is_first_input(const Entry& entry) { return entry.id.kind == Kind::kInput && entry.id.pass == Pass::kForward; }

bool is_of_whole_model(const TensorId& id) { return TensorName(id.name).path == kRootModule; }

bool has_elements_of(const Entry& entry, const RankTrace& rank, const LogicalTensor& reference) {
  const std::vector<Piece> pieces = reference.pieces();
  const Shape strides = row_major_strides(entry.shape);
  const bool is_whole = !pieces.empty() && pieces[0].logical == whole_box(entry.shape) && pieces[0].strides == strides;
  if (is_whole && pieces[0].entry->shape == entry.shape && pieces[0].entry->checksum == entry.checksum) return true;
  const auto bytes = static_cast<std::int64_t>(size_of(entry.dtype));
  const std::byte* own = rank.bytes_of(entry);
  for (const Piece& piece : pieces) {
    if (piece.replica != 0) break;  // copies of what was looked at
    if (piece.term != 0) return false;
    for (std::int64_t i = 0; i < element_count(piece.logical.size); ++i) {
      const Shape index = index_at(i, piece.logical.size);
      std::int64_t there = piece.offset, here = 0;
      for (std::size_t d = 0; d < index.size(); ++d) {
        there += index[d] * piece.strides[d];
        here += (piece.logical.start[d] + index[d]) * strides[d];
      }
      const auto size = static_cast<std::size_t>(bytes);
      if (std::memcmp(piece.elements() + there * bytes, own + here * bytes, size) != 0) return false;
    }
  }
  return true;
}

bool CommonInputs::are_slices() const {
  if (are_lists || !tellings.empty()) return true;  // bytes say of a list which elements are whose
  const auto is_integer = [](const auto& item) { return !is_floating(item.second.reference->dtype); };
  const auto is_of_batch = [](const auto& item) {
    return item.second.dim == 0 && TensorName(item.first.name).path == kRootModule;
  };
  if (any_integer && are_integers_whole && std::any_of(sliced.begin(), sliced.end(), is_of_batch)) return true;
  return any_integer ? std::any_of(sliced.begin(), sliced.end(), is_integer) : !sliced.empty();
}

std::map<TensorId, SlicedInput> sliced_tensors(const std::function<bool(const Entry&)>& is_wanted,
                                               const RankTable& table, const Census& census,
                                               const Microbatches& microbatches, const ModelLayout& layout) {
  std::map<TensorId, SlicedInput> tensors;
  for_each_entry(census, is_wanted, [&](const PresentRank& rank, const Entry& entry) {
    if (entry.id.microbatch < 0) return;
    const auto coordinate = static_cast<std::size_t>(coordinate_on(rank, table, microbatches));
    put(tensors, id_in_reference(entry.id, layout, microbatches.are_stages), rank, entry, coordinate, microbatches,
        layout);
  });
  std::map<TensorId, SlicedInput> sliced;
  for (auto& [id, tensor] : tensors) {
    const auto dim = sliced_dimension(tensor.reference->shape, tensor.parts);
    if (!dim) continue;
    tensor.dim = *dim;
    sliced.emplace(id, std::move(tensor));
  }
  return sliced;
}

CommonInputs common_inputs(const RankTable& table, const Census& census, const Microbatches& microbatches,
                           const ModelLayout& layout) {
  std::map<TensorId, SlicedInput> inputs;
  std::vector<std::set<TensorId>> given(static_cast<std::size_t>(microbatches.ranks));
  for_each_entry(census, is_first_input, [&](const PresentRank& rank, const Entry& entry) {
    if (entry.id.microbatch < 0) return;
    TensorId id = id_in_reference(entry.id, layout, microbatches.are_stages);
    const auto coordinate = static_cast<std::size_t>(coordinate_on(rank, table, microbatches));
    if (is_of_whole_model(id)) given[coordinate].insert(id);
    put(inputs, id, rank, entry, coordinate, microbatches, layout);
  });
  CommonInputs common;
  common.are_integers_whole = std::ssize(table.ranks) <= microbatches.ranks;  // other axes may split the rest
  common.are_lists = are_parts_of_list(given, *layout.reference);
  common.lists = divided_lists_of(table, census, microbatches, layout);
  common.tellings = tellings_of(common.lists, microbatches.ranks);
  common.are_whole = are_given_all(inputs);
  const std::set<TensorId> elements = tensors_of(common.lists);  // under the reference's numbers, of other samples
  for (auto& [id, input] : inputs) {
    const bool is_integer = !is_floating(input.reference->dtype);
    common.any_integer = common.any_integer || is_integer;
    common.are_integers_whole = common.are_integers_whole && (!is_integer || are_whole(input));
    if (elements.contains(id)) continue;
    auto ends = own_ends(id, input);
    if (are_own_counts(input) || ends) common.own_counts.insert(id);
    if (ends) common.ends.push_back(std::move(*ends));
    const auto dim = sliced_dimension(input.reference->shape, input.parts);
    if (!dim) continue;
    input.dim = *dim;
    common.sliced.emplace(id, std::move(input));
  }
  std::ranges::move(tellings_of(common.ends, common.sliced), std::back_inserter(common.tellings));
  return common;
}

}  // namespace ttrace
