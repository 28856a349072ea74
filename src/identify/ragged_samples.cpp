#include "identify/ragged_samples.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <set>
#include <string>

#include "base/lookup.h"
#include "identify/given_inputs.h"
#include "identify/microbatch.h"
#include "identify/near_rows.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

using Microbatch = std::pair<std::int32_t, std::int32_t>;

using Lengths = std::vector<std::int64_t>;

bool is_integer(Dtype dtype) { return dtype == Dtype::kInt64 || dtype == Dtype::kInt32; }

// The lengths of stretches whose ends are listed behind a 0, ascending; empty for other numbers.
Lengths lengths_between(const std::byte* data, const Shape& shape, Dtype dtype) {
  Lengths lengths;
  for (std::int64_t i = 1; data != nullptr && i < shape[0]; ++i) {
    const std::int64_t before = integer_at(data, i - 1, dtype), length = integer_at(data, i, dtype) - before;
    if ((i == 1 && before != 0) || length < 0) return {};
    lengths.push_back(length);
  }
  return lengths;
}

std::int64_t sum_of(const Lengths& lengths) { return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}); }

bool have_one_length(const Lengths& lengths) {
  return std::ranges::adjacent_find(lengths, std::ranges::not_equal_to()) == lengths.end();
}

// A hash of each stretch of rows, and of how many there are.
std::vector<std::uint64_t> hashes_of_stretches(const std::byte* data, const Shape& shape, Dtype dtype,
                                               const Lengths& lengths) {
  const std::int64_t row = element_count(shape) / shape[0] * size_of(dtype);
  std::vector<std::uint64_t> hashes;
  for (const std::int64_t length : lengths) {
    const std::int64_t bytes = length * row;
    hashes.push_back(XXH3_64bits_withSeed(data, static_cast<std::size_t>(bytes), static_cast<std::uint64_t>(length)));
    data += bytes;
  }
  return hashes;
}

std::optional<Telling> telling_of(const OwnEnds& ends, const SlicedInput& input) {
  const LogicalTensor& reference = *input.reference;
  const std::byte* first = elements_of(reference);
  if (first == nullptr || input.dim != 0 || reference.shape[0] != sum_of(ends.lengths)) return std::nullopt;
  std::vector<std::vector<std::uint64_t>> parts;
  for (std::size_t rank = 0; rank < input.parts.size(); ++rank) {
    const Entry* part = input.parts[rank];
    if (part == nullptr || part->sketch || part->dtype != reference.dtype) return std::nullopt;
    if (part->shape[0] != sum_of(ends.own[rank]) || part->shape[0] == 0) return std::nullopt;
    parts.push_back(hashes_of_stretches(input.ranks[rank]->bytes_of(*part), part->shape, part->dtype, ends.own[rank]));
  }
  return telling_of_hashes(hashes_of_stretches(first, reference.shape, reference.dtype, ends.lengths), parts, false);
}

// The rows one sample behind the other, and how many of the samples each rank has.
RaggedRows rows_behind_each_other(const Samples& samples, const Lengths& lengths, const Lengths& counts) {
  Lengths starts(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), std::int64_t{0});
  RaggedRows ragged;
  ragged.samples = std::ssize(samples);
  ragged.counts = counts;
  auto next = samples.begin();
  for (const std::int64_t count : counts) {
    const std::size_t before = ragged.rows.size();
    for (std::int64_t i = 0; i < count; ++i, ++next) {
      const auto sample = static_cast<std::size_t>(*next);
      for (std::int64_t row = 0; row < lengths[sample]; ++row) ragged.rows.push_back(starts[sample] + row);
    }
    ragged.own.push_back(std::ssize(ragged.rows) - static_cast<std::int64_t>(before));
  }
  return ragged;
}

// How long the elements of the list are along their first dimension, by a tensor within each; nothing where some lack it.
std::optional<Lengths> lengths_of(const DividedList& list, const std::string& inside, const Alignment& reference) {
  Lengths lengths;
  for (std::int64_t number = 0; number < list.extent(); ++number) {
    const LogicalTensor* element = find_tensor(reference, list.element(number, inside));
    if (element == nullptr || element->shape.empty()) return std::nullopt;
    lengths.push_back(element->shape[0]);
  }
  return lengths;
}

// How long each sample is by an input with an element, or a row, for each: its length itself, or how many of its
// positions count. Nothing for other inputs.
std::optional<Lengths> lengths_of(const SlicedInput& input) {
  constexpr std::int64_t kIgnored = -100;  // by torch's losses
  const LogicalTensor& reference = *input.reference;
  const std::byte* data = elements_of(reference);
  const bool is_mask = reference.dtype == Dtype::kBool;
  if (data == nullptr || input.dim != 0 || reference.shape.size() > 2) return std::nullopt;
  if (!is_mask && !is_integer(reference.dtype)) return std::nullopt;
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < element_count(reference.shape); ++i) {
    values.push_back(is_mask ? static_cast<std::int64_t>(data[i] != std::byte{0})
                             : integer_at(data, i, reference.dtype));
  }
  if (reference.shape.size() == 1) {
    const bool may_be_lengths = !is_mask && std::ranges::none_of(values, [](std::int64_t v) { return v < 0; });
    return may_be_lengths ? std::optional(values) : std::nullopt;
  }
  const bool are_flags = std::ranges::all_of(values, [](std::int64_t v) { return v == 0 || v == 1; });
  if (!are_flags && std::ranges::find(values, kIgnored) == values.end()) return std::nullopt;
  const std::int64_t positions = reference.shape[1];
  Lengths lengths;
  for (auto row = values.begin(); row != values.end() && positions > 0; row += positions) {
    const auto counts = [&](std::int64_t v) { return are_flags ? v == 1 : v != kIgnored; };
    lengths.push_back(std::count_if(row, row + positions, counts));
  }
  return lengths;
}

// False for numbers that are no lengths of rows that anyone has recorded, such as ids of users.
bool are_few_rows(const Lengths& lengths) {
  constexpr std::int64_t kMostRows = std::int64_t{1} << 22;
  std::int64_t rows = 0;
  return std::ranges::all_of(lengths, [&](std::int64_t length) {
    rows += std::min(length, kMostRows + 1);
    return rows <= kMostRows;
  });
}

// Adds the rows of samples that lie one behind the other, where the order of the samples is told.
void add(SampleOrders& orders, const TensorId& id, const Lengths& lengths, const Lengths& counts) {
  const Samples* samples = orders.find_exactly(id, std::ssize(lengths));
  if (samples == nullptr || have_one_length(lengths) || !are_few_rows(lengths)) return;
  if (sum_of(counts) != std::ssize(lengths)) return;
  RaggedRows ragged = rows_behind_each_other(*samples, lengths, counts);
  const auto rows = std::ssize(ragged.rows);
  if (rows > 0) orders.ragged[{id.iteration, id.microbatch}].try_emplace(rows, std::move(ragged));
}

void add_rows_of_lists(const std::vector<DividedList>& lists, const Alignment& reference, SampleOrders& orders) {
  for (const DividedList& list : lists) {
    if (!list.tells()) continue;
    for (const auto& [inside, column] : list.columns) {
      if (const auto lengths = lengths_of(list, inside, reference)) add(orders, list.id, *lengths, list.counts);
    }
  }
}

void add_rows_of_inputs(const CommonInputs& inputs, SampleOrders& orders) {
  for (const OwnEnds& ends : inputs.ends) {
    Lengths counts;
    for (const Lengths& own : ends.own) counts.push_back(std::ssize(own));
    add(orders, ends.id, ends.lengths, counts);
  }
  for (const auto& [id, input] : inputs.sliced) {
    if (orders.find_exactly(id, input.reference->shape[0]) == nullptr) continue;  // of no use, and long to look at
    const auto lengths = lengths_of(input);
    if (!lengths) continue;
    Lengths counts;
    for (const Entry* part : input.parts) counts.push_back(part->shape[0]);
    add(orders, id, *lengths, counts);
  }
}

// Both orders of the rows of sequences that are packed as well.
struct PossibleRows {
  RaggedRows behind_each_other, packed;
};

using OfSides = std::map<std::pair<Microbatch, std::int64_t>, PossibleRows>;  // by the number of rows

// Decides by the rows of tensors beside the packed ones, of which the first that tells counts.
void decide_by(const std::map<TensorId, SlicedInput>& tensors, const PackedSequences& packed_ones, OfSides& open,
               SampleOrders& orders) {
  for (const auto& [id, tensor] : tensors) {
    if (open.empty()) return;
    if (packed_ones.find(id) != nullptr) continue;
    const Microbatch microbatch(id.iteration, id.microbatch);
    const auto possible = open.find({microbatch, tensor.reference->shape[tensor.dim]});
    if (possible == open.end() || tensor.dim != 0) continue;
    const auto rows = held_rows(tensor);
    if (!rows) continue;
    const auto behind = count_of_ranks(*rows, possible->second.behind_each_other.rows);
    const auto packed = count_of_ranks(*rows, possible->second.packed.rows);
    if (behind == packed) continue;
    auto& of_microbatch = orders.ragged[microbatch];
    of_microbatch.insert_or_assign(
        possible->first.second,
        std::move(behind > packed ? possible->second.behind_each_other : possible->second.packed));
    open.erase(possible);
  }
}

// How many rows each rank has of the input; empty where some rank has none of it.
Lengths rows_of_ranks(const SlicedInput& input) {
  Lengths rows;
  for (const Entry* part : input.parts) {
    if (part == nullptr || part->shape.get().empty()) return {};
    rows.push_back(part->shape[0]);
  }
  return rows;
}

// The rows of two kinds that each rank has one behind the other, of `first` and `second` many, where the reference has all
// of the first kind, rank after rank, before those of the second.
RaggedRows rows_of_two_kinds(const Lengths& first, const Lengths& second) {
  RaggedRows ragged;
  std::int64_t next_first = 0, next_second = sum_of(first);
  for (std::size_t rank = 0; rank < first.size(); ++rank) {
    for (std::int64_t i = 0; i < first[rank]; ++i) ragged.rows.push_back(next_first++);
    for (std::int64_t i = 0; i < second[rank]; ++i) ragged.rows.push_back(next_second++);
    ragged.own.push_back(first[rank] + second[rank]);
  }
  return ragged;
}

// Adds the order of rows that all ranks hold so, but for rounding: as many of one kind as models were given, before or
// behind all others.
void add_two_kinds(const SlicedInput& tensor, const std::set<Lengths>& known, const Microbatch& microbatch,
                   SampleOrders& orders) {
  const Lengths own = rows_of_ranks(tensor);
  const std::int64_t all = tensor.reference->shape[0];
  if (tensor.dim != 0 || own.empty() || known.contains(own) || !are_few_rows(own)) return;
  if (const auto of = orders.ragged.find(microbatch); of != orders.ragged.end() && of->second.contains(all)) return;
  for (const Lengths& some : known) {
    Lengths others(own.size());
    std::ranges::transform(own, some, others.begin(), std::minus());
    if (std::ranges::any_of(others, [](std::int64_t rows) { return rows <= 0; })) continue;
    for (RaggedRows& ragged : std::array{rows_of_two_kinds(others, some), rows_of_two_kinds(some, others)}) {
      if (!holds_rows_so(tensor, ragged.rows)) continue;
      orders.ragged[microbatch].try_emplace(all, std::move(ragged));
      return;
    }
  }
}

// Graphs of a batch are numbered one behind the other, and what is added to all of them, such as an edge from each node to
// itself, is behind the edges of them all.
void add_rows_of_graphs(const RankTable& table, const Census& census, const Microbatches& microbatches,
                        const ModelLayout& layout, const CommonInputs& inputs, SampleOrders& orders) {
  std::map<Microbatch, std::set<Lengths>> known;
  for (const TensorId& id : orders.begin_anew) known[{id.iteration, id.microbatch}];
  if (known.empty()) return;
  for (const auto& [id, input] : inputs.sliced) {
    const auto of = known.find({id.iteration, id.microbatch});
    if (of == known.end() || input.dim != 0 || !is_of_whole_model(id)) continue;
    if (Lengths rows = rows_of_ranks(input); !rows.empty()) of->second.insert(std::move(rows));
  }
  const auto is_wanted = [](const Entry& entry) {
    return entry.id.pass == Pass::kForward && (entry.id.kind == Kind::kInput || entry.id.kind == Kind::kOutput);
  };
  const auto tensors = sliced_tensors(is_wanted, table, census, microbatches, layout);
  for (const auto& [id, tensor] : tensors) {
    const Microbatch microbatch(id.iteration, id.microbatch);
    const auto of = known.find(microbatch);
    if (of != known.end()) add_two_kinds(tensor, of->second, microbatch, orders);
  }
  for (const auto& [id, tensor] : tensors) {
    if (tensor.dim != 0 || !is_integer(tensor.reference->dtype)) continue;
    const Samples* rows = orders.find_ragged(id, tensor.reference->shape[0], rows_of_ranks(tensor));
    if (rows != nullptr && begins_anew(tensor, rows)) orders.begin_anew.insert(id);
  }
}

}  // namespace

std::optional<OwnEnds> own_ends(const TensorId& id, const SlicedInput& input) {
  const LogicalTensor& reference = *input.reference;
  if (!is_integer(reference.dtype) || reference.shape.size() != 1) return std::nullopt;
  OwnEnds ends{id, lengths_between(elements_of(reference), reference.shape, reference.dtype), {}};
  std::multiset<std::int64_t> lengths;
  for (std::size_t i = 0; i < input.parts.size(); ++i) {
    const Entry* part = input.parts[i];
    const bool fits =
        part != nullptr && !part->sketch && part->dtype == reference.dtype && part->shape.get().size() == 1;
    if (!fits) return std::nullopt;
    ends.own.push_back(lengths_between(input.ranks[i]->bytes_of(*part), part->shape, part->dtype));
    if (ends.own.back().empty()) return std::nullopt;
    lengths.insert(ends.own.back().begin(), ends.own.back().end());
  }
  const bool are_its = lengths == std::multiset<std::int64_t>(ends.lengths.begin(), ends.lengths.end());
  return are_its && lengths.size() > 1 ? std::optional(std::move(ends)) : std::nullopt;
}

std::vector<std::pair<TensorId, Telling>> tellings_of(const std::vector<OwnEnds>& ends,
                                                      const std::map<TensorId, SlicedInput>& inputs) {
  std::vector<std::pair<TensorId, Telling>> tellings;
  for (const OwnEnds& of_input : ends) {
    for (const auto& [id, input] : inputs) {
      if (id.iteration != of_input.id.iteration || id.microbatch != of_input.id.microbatch) continue;
      if (auto telling = telling_of(of_input, input)) tellings.emplace_back(of_input.id, std::move(*telling));
    }
  }
  return tellings;
}

void add_ragged_orders(const RankTable& table, const Census& census, const Microbatches& microbatches,
                       const ModelLayout& layout, const CommonInputs& inputs, SampleOrders& orders) {
  add_rows_of_lists(inputs.lists, *layout.reference, orders);
  add_rows_of_inputs(inputs, orders);
  OfSides open;
  for (const auto& [id, packed] : microbatches.packed.rows) {
    if (!packed.told || packed.rows.empty()) continue;
    RaggedRows behind = rows_behind_each_other(packed.samples, packed.lengths, packed.counts);
    RaggedRows as_packed = behind;
    as_packed.rows = packed.rows;
    open.try_emplace({Microbatch(id.iteration, id.microbatch), std::ssize(packed.rows)},
                     PossibleRows{std::move(behind), std::move(as_packed)});
  }
  for (const Kind kind : {Kind::kInput, Kind::kOutput}) {
    if (open.empty()) break;
    const auto is_wanted = [&](const Entry& entry) { return entry.id.kind == kind && entry.id.pass == Pass::kForward; };
    decide_by(sliced_tensors(is_wanted, table, census, microbatches, layout), microbatches.packed, open, orders);
  }
  add_rows_of_graphs(table, census, microbatches, layout, inputs, orders);
}

}  // namespace ttrace
