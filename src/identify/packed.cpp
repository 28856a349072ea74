#include "identify/packed.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor_name.h"
#include "identify/member_names.h"
#include "identify/microbatch.h"

namespace ttrace {
namespace {

constexpr std::size_t kMembers = 4;
enum Member : std::uint8_t { kRows, kSteps, kSorted, kUnsorted };

// The tensors of one packed sequence, as one side has them; null where it has none.
struct Recorded {
  std::array<Shape, kMembers> shapes;
  std::array<const std::byte*, kMembers> data{};  // none of the rows'
  std::array<bool, kMembers> is_there{};
};

// One side's packed sequence.
struct Packed {
  std::vector<std::int64_t> starts;   // the first row of each step
  std::vector<std::int64_t> samples;  // in order of their lengths
  std::vector<std::int64_t> places;   // by sample: where it stands in `samples`
  std::vector<std::int64_t> lengths;  // by sample
  std::int64_t rows = 0;
};

std::vector<std::int64_t> integers_of(const Recorded& recorded, Member member) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(recorded.shapes[member][0]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = integer_at(recorded.data[member], static_cast<std::int64_t>(i), Dtype::kInt64);
  }
  return values;
}

// The inverse of a permutation; nothing where it is none.
std::optional<std::vector<std::int64_t>> inverse_of(const std::vector<std::int64_t>& permutation) {
  std::vector<std::int64_t> inverse(permutation.size(), -1);
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    if (permutation[i] < 0 || permutation[i] >= std::ssize(permutation)) return std::nullopt;
    std::int64_t& place = inverse[static_cast<std::size_t>(permutation[i])];
    if (place >= 0) return std::nullopt;
    place = static_cast<std::int64_t>(i);
  }
  return inverse;
}

// Nothing where the tensors do not fit together as those of a packed sequence do.
std::optional<Packed> packed_of(const Recorded& recorded) {
  if (!recorded.is_there[kRows] || !recorded.is_there[kSteps]) return std::nullopt;
  Packed packed;
  packed.rows = recorded.shapes[kRows].empty() ? 0 : recorded.shapes[kRows][0];
  if (packed.rows == 0 || element_count(recorded.shapes[kRows]) < packed.rows) return std::nullopt;
  const std::vector<std::int64_t> steps = integers_of(recorded, kSteps);
  std::int64_t rows = 0;
  for (std::size_t step = 0; step < steps.size(); ++step) {
    const bool fits =
        steps[step] > 0 && steps[step] <= packed.rows - rows && (step == 0 || steps[step] <= steps[step - 1]);
    if (!fits) return std::nullopt;
    packed.starts.push_back(rows);
    rows += steps[step];
  }
  if (rows != packed.rows) return std::nullopt;
  packed.samples.resize(static_cast<std::size_t>(steps[0]));
  std::iota(packed.samples.begin(), packed.samples.end(), 0);
  if (recorded.is_there[kSorted]) packed.samples = integers_of(recorded, kSorted);
  const auto places = inverse_of(packed.samples);
  if (std::ssize(packed.samples) != steps[0] || !places) return std::nullopt;
  if (recorded.is_there[kUnsorted] && integers_of(recorded, kUnsorted) != *places) return std::nullopt;
  packed.places = *places;
  for (const std::int64_t place : packed.places) {
    packed.lengths.push_back(
        std::count_if(steps.begin(), steps.end(), [&](std::int64_t of_step) { return of_step > place; }));
  }
  return packed;
}

// The reference's samples, rank after rank, by what is known of them.
struct DealtSamples {
  Samples samples;
  bool told = false;
};

bool have_their_lengths(const Packed& whole, const std::vector<Packed>& parts, const Samples& samples) {
  auto next = samples.begin();
  for (const Packed& part : parts) {
    for (const std::int64_t length : part.lengths) {
      if (whole.lengths[static_cast<std::size_t>(*next++)] != length) return false;
    }
  }
  return true;
}

// The samples in turns: sample i is on rank i mod the number of ranks; nothing where the ranks have other numbers of them.
std::optional<Samples> in_turns(const std::vector<Packed>& parts, std::int64_t count) {
  Samples samples;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    for (std::size_t i = 0; i < parts[rank].samples.size(); ++i) {
      samples.push_back(static_cast<std::int64_t>(i * parts.size() + rank));
      if (samples.back() >= count) return std::nullopt;
    }
  }
  return samples;
}

// What the rows, which tell where each of them is in the reference, say of the samples: that of the first step.
Samples samples_by_rows(const Samples& rows, const Packed& whole, const std::vector<Packed>& parts) {
  Samples samples;
  std::size_t start = 0;
  for (const Packed& part : parts) {
    for (const std::int64_t place : part.places) {
      const std::int64_t row = rows[start + static_cast<std::size_t>(place)];
      if (row >= std::ssize(whole.samples)) return {};
      samples.push_back(whole.samples[static_cast<std::size_t>(row)]);
    }
    start += static_cast<std::size_t>(part.rows);
  }
  return inverse_of(samples) ? samples : Samples{};
}

// The order that a rule or the inputs tell; without one, stretches or turns of samples of the right lengths. No samples
// where nothing tells it.
DealtSamples dealt_samples(const TensorId& id, const Packed& whole, const std::vector<Packed>& parts,
                           const Microbatches& microbatches) {
  const std::int64_t count = std::ssize(whole.samples);
  Samples stretches(whole.samples.size());
  std::iota(stretches.begin(), stretches.end(), 0);
  const auto turns = in_turns(parts, count);
  if (microbatches.layout == "contiguous") return {stretches, true};
  if (microbatches.layout == "striped" && turns) return {*turns, true};
  if (!microbatches.layout.empty()) return {};
  if (const Samples* told = microbatches.samples.find(id, count); told != nullptr && std::ssize(*told) == count) {
    return {*told, true};
  }
  const Samples* rows = microbatches.samples.find(id, whole.rows);
  if (rows != nullptr && std::ssize(*rows) == whole.rows) {
    if (Samples samples = samples_by_rows(*rows, whole, parts); !samples.empty()) return {std::move(samples), true};
  }
  if (have_their_lengths(whole, parts, stretches)) return {stretches, false};
  if (turns && have_their_lengths(whole, parts, *turns)) return {*turns, false};
  return {};
}

Samples rows_of(const Packed& whole, const std::vector<Packed>& parts, const Samples& samples) {
  Samples rows;
  std::size_t first = 0;  // the rank's first sample
  for (const Packed& part : parts) {
    for (std::size_t step = 0; step < part.starts.size(); ++step) {
      const std::int64_t end = step + 1 < part.starts.size() ? part.starts[step + 1] : part.rows;
      for (std::int64_t row = part.starts[step]; row < end; ++row) {
        const auto own = static_cast<std::size_t>(part.samples[static_cast<std::size_t>(row - part.starts[step])]);
        const auto sample = static_cast<std::size_t>(samples[first + own]);
        rows.push_back(whole.starts[step] + whole.places[sample]);
      }
    }
    first += part.samples.size();
  }
  return rows;
}

// Nothing where the sequences are not known to be those of the reference's samples.
std::optional<PackedRows> packed_rows(const TensorId& id, const Packed& whole, const std::vector<Packed>& parts,
                                      const Microbatches& microbatches) {
  std::size_t samples = 0;
  std::int64_t rows = 0;
  for (const Packed& part : parts) {
    samples += part.samples.size();
    rows += part.rows;
  }
  if (samples != whole.samples.size() || rows != whole.rows) return std::nullopt;
  DealtSamples dealt = dealt_samples(id, whole, parts, microbatches);
  if (dealt.samples.empty()) return PackedRows{};
  if (!have_their_lengths(whole, parts, dealt.samples)) return std::nullopt;
  PackedRows packed;
  packed.rows = rows_of(whole, parts, dealt.samples);
  packed.told = dealt.told;
  packed.samples = std::move(dealt.samples);
  packed.steps = std::ssize(whole.starts);
  packed.lengths = whole.lengths;
  for (const Packed& part : parts) {
    packed.own_steps.push_back(std::ssize(part.starts));
    packed.counts.push_back(std::ssize(part.samples));
  }
  return packed;
}

// The number of the tensor among those of a packed sequence, by the last component of its member's name.
std::optional<Member> member_of(const TensorId& id) {
  const std::string_view member = TensorName(id.name).member;
  if (member.size() < 2 || member.back() < '0' || member.back() > '3') return std::nullopt;
  if (member[member.size() - 2] != '.' && member[member.size() - 2] != ':') return std::nullopt;
  return static_cast<Member>(member.back() - '0');
}

TensorId with_member(TensorId id, Member member) {
  const TensorName name(id.name);
  std::string text(name.member);
  text.back() = static_cast<char>('0' + member);
  id.name = name.with_member(text);
  return id;
}

bool is_number(Dtype dtype, const Shape& shape) { return dtype == Dtype::kInt64 && shape.size() == 1; }

void put(Recorded& recorded, Member member, const Entry& entry, const RankTrace& rank) {
  if (recorded.is_there[member]) return;
  if (entry.sketch != nullptr || (member != kRows && !is_number(entry.dtype, entry.shape))) return;
  recorded.shapes[member] = entry.shape;
  recorded.is_there[member] = true;
  if (member != kRows) recorded.data[member] = rank.bytes_of(entry);
}

Recorded recorded_in(const Alignment& reference, const TensorId& rows) {
  Recorded recorded;
  for (const Member member : {kRows, kSteps, kSorted, kUnsorted}) {
    const auto found = reference.tensors.find(with_member(rows, member));
    if (found == reference.tensors.end() || found->second.sketched) continue;
    const LogicalTensor& tensor = found->second;
    if (member != kRows && !is_number(tensor.dtype, tensor.shape)) continue;
    recorded.data[member] = member == kRows ? nullptr : elements_of(tensor);
    if (member != kRows && recorded.data[member] == nullptr) continue;
    recorded.shapes[member] = tensor.shape;
    recorded.is_there[member] = true;
  }
  return recorded;
}

bool is_of_call(const Entry& entry) {
  const bool is_value = entry.id.kind == Kind::kInput || entry.id.kind == Kind::kOutput;
  return is_value && entry.id.pass == Pass::kForward && entry.id.microbatch >= 0 && member_of(entry.id);
}

}  // namespace

const PackedRows* PackedSequences::find(TensorId id) const {
  if (rows.empty()) return nullptr;
  if (id.kind == Kind::kGradInput) id.kind = Kind::kInput;
  if (id.kind == Kind::kGradOutput) id.kind = Kind::kOutput;
  id.pass = Pass::kForward;
  const auto found = rows.find(id);
  return found == rows.end() ? nullptr : &found->second;
}

bool PackedSequences::has_own_numbers(TensorId id) const {
  id.pass = Pass::kForward;
  return own_numbers.contains(id);
}

std::optional<TensorId> rows_of_packed(const TensorId& steps) {
  if (member_of(steps) != kSteps) return std::nullopt;
  return with_member(steps, kRows);
}

PackedSequences packed_sequences_of(const RankTable& table, const Census& census, const Microbatches& microbatches,
                                    const ModelLayout& layout) {
  std::map<TensorId, std::vector<Recorded>> found;  // by the rows' tensor, by coordinate
  for_each_entry(census, is_of_call, [&](const PresentRank& rank, const Entry& entry) {
    TensorId id = entry.id;
    id.chunk = 0;
    id.name = name_of_member(id.name, id.kind, layout);
    const auto member = member_of(id);
    if (!member) return;
    std::vector<Recorded>& of_ranks = found[with_member(id, kRows)];
    of_ranks.resize(static_cast<std::size_t>(microbatches.ranks));
    put(of_ranks[static_cast<std::size_t>(coordinate_on(rank, table, microbatches))], *member, entry, *rank.trace);
  });
  PackedSequences sequences;
  for (const auto& [id, of_ranks] : found) {
    const auto whole = packed_of(recorded_in(*layout.reference, id));
    if (!whole) continue;
    std::vector<Packed> parts;
    for (const Recorded& recorded : of_ranks) {
      if (auto part = packed_of(recorded)) parts.push_back(std::move(*part));
    }
    if (parts.size() != of_ranks.size()) continue;
    auto rows = packed_rows(id, *whole, parts, microbatches);
    if (!rows) continue;
    sequences.rows.emplace(id, std::move(*rows));
    for (const Member member : {kSteps, kSorted, kUnsorted}) {
      const TensorId numbers = with_member(id, member);
      if (layout.reference->tensors.contains(numbers)) sequences.own_numbers.insert(numbers);
    }
  }
  return sequences;
}

void add_orders(const PackedSequences& packed, SampleOrders& orders) {
  for (const auto& [id, sequences] : packed.rows) {
    if (sequences.rows.empty() || !sequences.told) continue;
    const std::pair microbatch(id.iteration, id.microbatch);
    orders.told[microbatch].try_emplace(std::ssize(sequences.samples), sequences.samples);
    const std::vector<std::int64_t>& own = sequences.own_steps;
    const bool are_padded = std::count(own.begin(), own.end(), sequences.steps) < std::ssize(own);
    if (are_padded) orders.lengths[microbatch][sequences.steps].insert(own);
  }
}

}  // namespace ttrace
