#include "identify/samples.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "base/tensor_name.h"
#include "identify/near_rows.h"
#include "identify/truncated.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

using Hashes = std::vector<std::uint64_t>;

// The samples in stretches, where all ranks hold their own.
std::optional<Samples> contiguous_order(const Hashes& whole, const std::vector<Hashes>& parts) {
  auto stretch = whole.begin();
  for (const Hashes& part : parts) {
    if (!std::equal(part.begin(), part.end(), stretch)) return std::nullopt;
    stretch += static_cast<std::ptrdiff_t>(part.size());
  }
  Samples samples(whole.size());
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

std::optional<Samples> striped_order(const Hashes& whole, const std::vector<Hashes>& parts) {
  Samples samples;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    for (std::size_t i = 0; i < parts[rank].size(); ++i) {
      const std::size_t sample = i * parts.size() + rank;
      if (sample >= whole.size() || whole[sample] != parts[rank][i]) return std::nullopt;
      samples.push_back(static_cast<std::int64_t>(sample));
    }
  }
  return samples;
}

// Any order, where no two samples are equal.
std::optional<Samples> own_order(const Hashes& whole, const std::vector<Hashes>& parts) {
  std::unordered_map<std::uint64_t, std::int64_t> numbers;
  for (std::size_t i = 0; i < whole.size(); ++i) numbers.emplace(whole[i], static_cast<std::int64_t>(i));
  if (numbers.size() < whole.size()) return std::nullopt;
  Samples samples;
  for (const Hashes& part : parts) {
    for (const std::uint64_t hash : part) {
      const auto found = numbers.find(hash);
      if (found == numbers.end()) return std::nullopt;
      samples.push_back(found->second);
      numbers.erase(found);
    }
  }
  return samples;
}

// How the ranks' parts differ from the reference's in shape: in one dimension, in which some are shorter and none is
// longer.
struct Padding {
  std::size_t dim = 0;
  std::vector<std::int64_t> lengths;
};

// Nothing where the parts have the reference's shape, but for the samples; `fits` is then whether they have.
std::optional<Padding> padding_of(const SlicedInput& input, bool& fits) {
  const Shape& whole = input.reference->shape;
  std::optional<Padding> padding;
  fits = true;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (d == input.dim) continue;
    std::vector<std::int64_t> lengths;
    for (const Entry* part : input.parts) lengths.push_back(part->shape[d]);
    const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
    if (*least == whole[d] && *most == whole[d]) continue;
    fits = fits && !padding && *most == whole[d];
    padding = Padding{d, std::move(lengths)};
  }
  return fits ? padding : std::nullopt;
}

// Elements, as their bytes, that may be the padding: with one of them ends each sample of the ranks that are shorter.
std::vector<std::string> possible_paddings(const std::byte* data, const SlicedInput& input, const Padding& padding) {
  const LogicalTensor& reference = *input.reference;
  const std::size_t size = size_of(reference.dtype);
  std::map<std::int64_t, std::set<std::string>> ends;  // by sample
  for (std::int64_t i = 0; i < element_count(reference.shape); ++i) {
    const Shape index = index_at(i, reference.shape);
    if (index[padding.dim] + 1 != reference.shape[padding.dim]) continue;
    const auto* element = reinterpret_cast<const char*>(data) + i * static_cast<std::int64_t>(size);
    ends[index[input.dim]].emplace(element, size);
  }
  std::map<std::string, std::int64_t> counts;
  for (const auto& [sample, values] : ends) {
    if (values.size() == 1) ++counts[*values.begin()];
  }
  std::int64_t shorter = 0;
  for (std::size_t rank = 0; rank < input.parts.size(); ++rank) {
    const bool is_shorter = padding.lengths[rank] < reference.shape[padding.dim];
    if (is_shorter) shorter += input.parts[rank]->shape[input.dim];
  }
  std::vector<std::string> possible;
  for (const auto& [value, count] : counts) {
    if (count >= shorter) possible.push_back(value);
  }
  return possible;
}

// The part as long as the reference, with `value` behind its own end.
std::vector<std::byte> padded(const std::byte* data, const Entry& part, std::size_t dim, std::int64_t length,
                              const std::string& value) {
  Shape shape = part.shape;
  shape[dim] = length;
  std::int64_t outer = 1, inner = std::ssize(value);
  for (std::size_t d = 0; d < dim; ++d) outer *= shape[d];
  for (std::size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  std::vector<std::byte> bytes;
  const auto* padding = reinterpret_cast<const std::byte*>(value.data());
  for (std::int64_t block = 0; block < outer; ++block) {
    const std::byte* own = data + block * part.shape[dim] * inner;
    bytes.insert(bytes.end(), own, own + part.shape[dim] * inner);
    for (std::int64_t i = 0; i < (length - part.shape[dim]) * inner; i += std::ssize(value)) {
      bytes.insert(bytes.end(), padding, padding + value.size());
    }
  }
  return bytes;
}

std::optional<Samples> exact_order(const Hashes& whole, const std::vector<Hashes>& parts) {
  auto samples = contiguous_order(whole, parts);
  if (!samples) samples = striped_order(whole, parts);
  if (!samples) samples = own_order(whole, parts);
  return samples;
}

// The numbers of the samples that a rank holds, as a sampler deals them out.
using Deal = std::function<std::int64_t(std::size_t rank, std::size_t sample)>;

// The samples as dealt, and by how many ranks they are held so; no samples where it deals out others than there are.
std::pair<Samples, std::size_t> dealt_by(const Deal& deal, const Hashes& whole, const std::vector<Hashes>& parts) {
  Samples samples;
  std::size_t right = 0;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    bool is_right = true;
    for (std::size_t i = 0; i < parts[rank].size(); ++i) {
      const std::int64_t sample = deal(rank, i);
      if (sample >= std::ssize(whole)) return {};
      samples.push_back(sample);
      is_right = is_right && whole[static_cast<std::size_t>(sample)] == parts[rank][i];
    }
    right += is_right ? 1 : 0;
  }
  return {std::move(samples), right};
}

// The samples in an order of their own, where some ranks hold samples of the reference that no other rank does, and no
// two are equal; the other ranks are taken to hold what is left, in order.
std::optional<Samples> own_order_of_some(const Hashes& whole, const std::vector<Hashes>& parts) {
  std::unordered_map<std::uint64_t, std::int64_t> numbers;
  for (std::size_t i = 0; i < whole.size(); ++i) numbers.emplace(whole[i], static_cast<std::int64_t>(i));
  if (numbers.size() < whole.size()) return std::nullopt;
  std::vector<Samples> of_ranks;
  std::set<std::int64_t> left;
  for (const auto& [hash, number] : numbers) left.insert(number);
  bool any = false;
  for (const Hashes& part : parts) {
    Samples& samples = of_ranks.emplace_back();
    for (const std::uint64_t hash : part) {
      const auto found = numbers.find(hash);
      if (found != numbers.end() && left.contains(found->second)) samples.push_back(found->second);
    }
    if (std::set<std::int64_t>(samples.begin(), samples.end()).size() < part.size()) samples.clear();
    for (const std::int64_t sample : samples) left.erase(sample);
    any = any || !samples.empty();
  }
  if (!any) return std::nullopt;
  Samples all;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    Samples& samples = of_ranks[rank];
    while (samples.size() < parts[rank].size()) samples.push_back(left.extract(left.begin()).value());
    all.insert(all.end(), samples.begin(), samples.end());
  }
  return all;
}

// The samples in stretches or in turns, where some ranks hold their own so: others then hold other samples, which a
// comparison shows. Of the two, the one by which more ranks do.
std::optional<Samples> order_of_some(const Hashes& whole, const std::vector<Hashes>& parts) {
  std::vector<std::size_t> starts(parts.size(), 0);
  for (std::size_t rank = 1; rank < parts.size(); ++rank) starts[rank] = starts[rank - 1] + parts[rank - 1].size();
  const auto in_stretches =
      dealt_by([&](std::size_t rank, std::size_t sample) { return static_cast<std::int64_t>(starts[rank] + sample); },
               whole, parts);
  const auto in_turns = dealt_by(
      [&](std::size_t rank, std::size_t sample) { return static_cast<std::int64_t>(sample * parts.size() + rank); },
      whole, parts);
  const auto& best = in_turns.second > in_stretches.second ? in_turns : in_stretches;
  return best.second > 0 ? std::optional(best.first) : std::nullopt;
}

std::optional<Samples> order_of_padded(const std::byte* reference, const Hashes& whole, const SlicedInput& input,
                                       const Padding& padding) {
  const std::int64_t length = input.reference->shape[padding.dim];
  for (const std::string& value : possible_paddings(reference, input, padding)) {
    std::vector<Hashes> parts;
    for (std::size_t i = 0; i < input.parts.size(); ++i) {
      const Entry& part = *input.parts[i];
      const auto bytes = padded(input.ranks[i]->bytes_of(part), part, padding.dim, length, value);
      Shape shape = part.shape;
      shape[padding.dim] = length;
      parts.push_back(hashes_of_rows(bytes.data(), shape, input.dim, part.dtype));
    }
    if (auto samples = exact_order(whole, parts)) return samples;
  }
  return std::nullopt;
}

// What a rank's numbers are less than the reference's, and the largest of them.
struct OwnNumbers {
  std::int64_t offset = 0, largest = 0;
};

// Where a rank's rows lie in the reference: one behind the other from `start`, in this order of the rows where there is one.
struct OwnRows {
  std::size_t dim = 0;
  std::int64_t start = 0;
  const Samples* order = nullptr;
};

// Nothing where a rank's integers are not the reference's less one number. Those of a `line`, an index of the first
// dimension, alone, where one is asked for.
std::optional<OwnNumbers> own_numbers(const LogicalTensor& reference, const std::byte* own, const Entry& part,
                                      const OwnRows& rows, std::optional<std::int64_t> line) {
  const std::byte* whole = elements_of(reference);
  const Shape strides = row_major_strides(reference.shape);
  std::optional<OwnNumbers> numbers;
  for (std::int64_t i = 0; i < element_count(part.shape); ++i) {
    Shape index = index_at(i, part.shape);
    if (line && index[0] != *line) continue;
    index[rows.dim] += rows.start;
    if (rows.order != nullptr) index[rows.dim] = rows.order->at(static_cast<std::size_t>(index[rows.dim]));
    std::int64_t there = 0;
    for (std::size_t d = 0; d < index.size(); ++d) there += index[d] * strides[d];
    const std::int64_t number = integer_at(own, i, part.dtype);
    std::int64_t less = 0;
    if (__builtin_sub_overflow(integer_at(whole, there, part.dtype), number, &less)) return std::nullopt;
    if (numbers && numbers->offset != less) return std::nullopt;
    numbers = {less, std::max(number, numbers ? numbers->largest : 0)};
  }
  return numbers;
}

// True where the first rank has the reference's, and each further one these less one number, which is beyond all numbers
// of the ranks before.
bool begin_anew(const std::vector<OwnNumbers>& of_ranks) {
  std::int64_t beyond = 0;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const auto& [offset, largest] = of_ranks[rank];
    if (offset < beyond || (rank == 0 && offset != 0)) return false;
    if (__builtin_add_overflow(offset, largest, &beyond) || __builtin_add_overflow(beyond, 1, &beyond)) return false;
  }
  return !of_ranks.empty() && of_ranks.back().offset > 0;
}

// True where each rank has a part of the reference's dtype, and of its shape in all but the dimension that is divided.
bool have_stretches(const SlicedInput& input) {
  const LogicalTensor& reference = *input.reference;
  return std::ranges::all_of(input.parts, [&](const Entry* part) {
    if (part == nullptr || part->dtype != reference.dtype || part->sketch != nullptr) return false;
    Shape shape = part->shape;
    shape[input.dim] = reference.shape[input.dim];
    return shape == reference.shape;
  });
}

// Asks of each rank's part, and of where it begins in the reference, for its numbers; returns nothing where one has none.
template <typename NumbersOf>
std::optional<std::vector<OwnNumbers>> numbers_of_ranks(const SlicedInput& input, const NumbersOf& numbers_of) {
  std::vector<OwnNumbers> of_ranks;
  std::int64_t start = 0;
  for (std::size_t rank = 0; rank < input.parts.size(); ++rank) {
    const Entry& part = *input.parts[rank];
    const std::optional<OwnNumbers> own = numbers_of(input.ranks[rank]->bytes_of(part), part, start);
    if (!own) return std::nullopt;
    of_ranks.push_back(*own);
    start += part.shape[input.dim];
  }
  return of_ranks;
}

}  // namespace

bool begins_anew(const SlicedInput& input, const Samples* order) {
  const LogicalTensor& reference = *input.reference;
  if (elements_of(reference) == nullptr || !have_stretches(input)) return false;
  if (reference.dtype != Dtype::kInt64 && reference.dtype != Dtype::kInt32) return false;
  const auto begins = [&](std::optional<std::int64_t> line) {
    const auto of_ranks = numbers_of_ranks(input, [&](const std::byte* own, const Entry& part, std::int64_t start) {
      return own_numbers(reference, own, part, {input.dim, start, order}, line);
    });
    return of_ranks && begin_anew(*of_ranks);
  };
  const bool are_pairs = reference.shape.size() == 2 && input.dim == 1 && reference.shape[0] == 2;
  return begins(std::nullopt) || (are_pairs && begins(0) && begins(1));
}

namespace {

// The whole number that an element of a table is, which floats hold exactly up to 2^24; nothing where it is none.
std::optional<std::int64_t> whole_number_at(const std::byte* data, std::int64_t index, Dtype dtype) {
  constexpr double kMost = 1 << 24;
  double value = 0;
  if (dtype == Dtype::kFloat32) {
    float element = 0;
    std::memcpy(&element, data + index * static_cast<std::int64_t>(sizeof element), sizeof element);
    value = element;
  } else if (dtype == Dtype::kFloat64) {
    std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof value), sizeof value);
  } else {
    return std::nullopt;
  }
  if (!(std::fabs(value) <= kMost) || value != std::trunc(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

// The one column of the table in which ranks have other bits than the reference; nothing where they have the same, or
// others in several.
std::optional<std::int64_t> only_differing_column(const std::byte* whole, const SlicedInput& input) {
  const std::int64_t columns = input.reference->shape[1];
  std::optional<std::int64_t> found;
  for (std::size_t rank = 0; rank < input.parts.size(); ++rank) {
    const Entry& part = *input.parts[rank];
    const std::byte* own = input.ranks[rank]->bytes_of(part);
    const std::int64_t size = size_of(part.dtype);
    for (std::int64_t i = 0; i < element_count(part.shape); ++i) {
      if (std::equal(own + i * size, own + (i + 1) * size, whole + i * size)) continue;
      if (found.value_or(i % columns) != i % columns) return std::nullopt;
      found = i % columns;
    }
    whole += element_count(part.shape) * size;
  }
  return found;
}

// What the numbers in a column of a rank's rows are less than the reference's from `start` on; nothing where that is not
// one number.
std::optional<OwnNumbers> numbers_in_column(const std::byte* whole, const std::byte* own, const Entry& part,
                                            std::int64_t start, std::int64_t column) {
  const std::int64_t columns = part.shape[1];
  std::optional<OwnNumbers> numbers;
  for (std::int64_t i = column; i < element_count(part.shape); i += columns) {
    const auto wanted = whole_number_at(whole, start * columns + i, part.dtype);
    const auto held = whole_number_at(own, i, part.dtype);
    if (!wanted || !held || (numbers && *wanted - *held != numbers->offset)) return std::nullopt;
    numbers = OwnNumbers{*wanted - *held, std::max(*held, numbers ? numbers->largest : 0)};
  }
  return numbers;
}

// True where the numbers in one column of a table of floats begin anew, and all else in it is the reference's: those of
// the images that regions of interest lie in, as torchvision's RoIAlign takes them.
bool begins_anew_in_a_column(const SlicedInput& input) {
  const LogicalTensor& reference = *input.reference;
  const std::byte* whole = elements_of(reference);
  if (whole == nullptr || reference.shape.size() != 2 || input.dim != 0 || reference.shape[1] < 2) return false;
  if (reference.dtype != Dtype::kFloat32 && reference.dtype != Dtype::kFloat64) return false;
  if (!have_stretches(input)) return false;
  const std::optional<std::int64_t> column = only_differing_column(whole, input);
  if (!column) return false;
  const auto of_ranks = numbers_of_ranks(input, [&](const std::byte* own, const Entry& part, std::int64_t start) {
    return numbers_in_column(whole, own, part, start, *column);
  });
  return of_ranks && begin_anew(*of_ranks);
}

// The order of rows that the program has computed, as a discriminator's of what was made, beside others that are data.
std::optional<Samples> order_of_computed(const std::byte* reference, const Hashes& whole,
                                         const std::vector<Hashes>& parts, const SlicedInput& input) {
  std::vector<HashedRows> rows;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Entry& part = *input.parts[i];
    rows.push_back({input.ranks[i]->bytes_of(part), part.shape, part.dtype, parts[i]});
  }
  take_hashes_of_near_rows({reference, input.reference->shape, input.reference->dtype, whole}, rows, input.dim);
  std::vector<Hashes> near;
  for (HashedRows& part : rows) near.push_back(std::move(part.hashes));
  return exact_order(whole, near);
}

std::size_t count_different(const Hashes& hashes) {
  return std::set<std::uint64_t>(hashes.begin(), hashes.end()).size();
}

// What ranks tell of which some hold their own.
std::optional<Telling> telling_of_some(const Hashes& whole, const std::vector<Hashes>& parts, bool are_numbers) {
  auto samples = order_of_some(whole, parts);
  if (!samples && !are_numbers) samples = own_order_of_some(whole, parts);
  if (!samples) return std::nullopt;
  return Telling{std::move(*samples), count_different(whole), false, 0, {}};
}

std::optional<Telling> telling_of(const SlicedInput& input) {
  const LogicalTensor& reference = *input.reference;
  const std::byte* first = elements_of(reference);
  if (first == nullptr) return std::nullopt;
  const Hashes whole = hashes_of_rows(first, reference.shape, input.dim, reference.dtype);
  const std::size_t different = count_different(whole);
  if (different < 2) return std::nullopt;
  for (const Entry* entry : input.parts) {
    if (entry == nullptr || entry->dtype != reference.dtype || entry->sketch != nullptr) return std::nullopt;
  }
  bool fits = false;
  const auto padding = padding_of(input, fits);
  if (!fits) return std::nullopt;
  if (padding) {
    auto samples = order_of_padded(first, whole, input, *padding);
    if (!samples) return std::nullopt;
    return Telling{std::move(*samples), different, true, reference.shape[padding->dim], padding->lengths};
  }
  std::vector<Hashes> parts;
  for (std::size_t i = 0; i < input.parts.size(); ++i) {
    const Entry& entry = *input.parts[i];
    parts.push_back(hashes_of_rows(input.ranks[i]->bytes_of(entry), entry.shape, input.dim, entry.dtype));
  }
  if (auto samples = exact_order(whole, parts)) return Telling{std::move(*samples), different, true, 0, {}};
  const bool are_numbers = element_count(reference.shape) == reference.shape[input.dim];
  if (!are_numbers) {
    if (auto samples = order_of_computed(first, whole, parts, input)) {
      return Telling{std::move(*samples), different, true, 0, {}};
    }
  }
  return telling_of_some(whole, parts, are_numbers);
}

using Fits = std::function<bool(std::int64_t samples)>;

// The order, of the tensor's micro-batch, of the most samples that fit; null where there is none.
const Samples* longest(const SampleOrders::OfMicrobatches& orders, const TensorId& id, const Fits& fits) {
  const auto of_microbatch = orders.find({id.iteration, id.microbatch});
  if (of_microbatch == orders.end()) return nullptr;
  for (auto order = of_microbatch->second.rbegin(); order != of_microbatch->second.rend(); ++order) {
    if (fits(order->first)) return &order->second;
  }
  return nullptr;
}

// That of the tensor's own model before the first one's.
const Samples* find_told(const SampleOrders& orders, const TensorId& id, const Fits& fits) {
  const auto own = orders.of_further_models.find(further_model_of(id.name.get()));
  const Samples* samples = own == orders.of_further_models.end() ? nullptr : longest(own->second, id, fits);
  return samples != nullptr ? samples : longest(orders.told, id, fits);
}

}  // namespace

const std::byte* elements_of(const LogicalTensor& reference) {
  if (reference.sketched) return nullptr;
  const std::vector<Piece> pieces = reference.pieces();  // copies of the whole
  const bool is_whole = !pieces.empty() && pieces[0].logical == whole_box(reference.shape) &&
                        pieces[0].strides == row_major_strides(reference.shape);
  if (!is_whole) return nullptr;
  return pieces[0].elements() + pieces[0].offset * static_cast<std::int64_t>(size_of(reference.dtype));
}

std::int64_t integer_at(const std::byte* data, std::int64_t index, Dtype dtype) {
  if (dtype == Dtype::kInt32) {
    std::int32_t narrow = 0;
    std::memcpy(&narrow, data + index * 4, 4);
    return narrow;
  }
  std::int64_t wide = 0;
  std::memcpy(&wide, data + index * 8, 8);
  return wide;
}

std::vector<std::uint64_t> hashes_of_rows(const std::byte* data, const Shape& shape, std::size_t dim, Dtype dtype) {
  const std::int64_t rows = shape[dim];
  std::int64_t outer = 1, bytes = size_of(dtype);
  for (std::size_t d = 0; d < dim; ++d) outer *= shape[d];
  for (std::size_t d = dim + 1; d < shape.size(); ++d) bytes *= shape[d];
  Hashes hashes(static_cast<std::size_t>(rows), 0);
  for (std::int64_t block = 0; block < outer; ++block) {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::uint64_t& hash = hashes[static_cast<std::size_t>(row)];
      hash = XXH3_64bits_withSeed(data + (block * rows + row) * bytes, static_cast<std::size_t>(bytes), hash);
    }
  }
  return hashes;
}

std::optional<Telling> telling_of_hashes(const Hashes& whole, const std::vector<Hashes>& parts, bool are_numbers) {
  const std::size_t different = count_different(whole);
  if (different < 2) return std::nullopt;
  if (auto samples = exact_order(whole, parts)) return Telling{std::move(*samples), different, true, 0, {}};
  return telling_of_some(whole, parts, are_numbers);
}

const Samples* SampleOrders::find(const TensorId& id, std::int64_t extent) const {
  return find_told(*this, id, [&](std::int64_t samples) { return extent % samples == 0; });
}

const Samples* SampleOrders::find_exactly(const TensorId& id, std::int64_t samples) const {
  return find_told(*this, id, [&](std::int64_t told_of) { return told_of == samples; });
}

const Samples* SampleOrders::find_stacked(const TensorId& id, std::int64_t extent) const {
  const auto own = stacked.find(further_model_of(id.name.get()));
  if (own == stacked.end()) return nullptr;
  return longest(own->second, id, [&](std::int64_t rows) { return extent % rows == 0; });
}

const Samples* SampleOrders::find_ragged(const TensorId& id, std::int64_t extent,
                                         const std::vector<std::int64_t>& own) const {
  const auto found = ragged.find({id.iteration, id.microbatch});
  if (found == ragged.end()) return nullptr;
  for (const auto& [rows, order] : found->second) {
    const auto are_its_rows = [&](std::int64_t elements, std::int64_t of_rank) {
      return elements * rows == of_rank * extent;
    };
    if (order.samples == 0) {
      if (extent == rows && own == order.own) return &order.rows;
      continue;
    }
    const bool fits = extent % rows == 0 && std::ranges::equal(own, order.own, are_its_rows);
    // As many of each sample are no ragged rows.
    const auto are_its_samples = [&](std::int64_t elements, std::int64_t count) {
      return elements * order.samples == count * extent;
    };
    const bool are_alike = extent % order.samples == 0 && std::ranges::equal(own, order.counts, are_its_samples);
    if (fits && !are_alike) return &order.rows;
  }
  return nullptr;
}

namespace {

// True where one stride s and one number c make each `after` of what was `before`: floor((before + c) / s), as a
// convolution or a pool with some kernel, padding and dilation does.
bool are_strided(const std::vector<std::int64_t>& before, const std::vector<std::int64_t>& after) {
  constexpr std::int64_t kMostStride = 64;
  for (std::int64_t stride = 2; stride <= kMostStride; ++stride) {
    // floor((b + c) / s) = a means s a - b <= c < s a - b + s
    std::int64_t least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < before.size(); ++i) {
      least = std::max(least, stride * after[i] - before[i]);
      most = std::min(most, stride * after[i] - before[i] + stride - 1);
    }
    if (least <= most) return true;
  }
  return false;
}

}  // namespace

bool SampleOrders::is_truncated(std::int32_t iteration, std::int32_t microbatch) const {
  return std::ranges::any_of(truncated, [&](const auto& item) {
    return !item.second.by_one && item.first.iteration == iteration && item.first.microbatch == microbatch;
  });
}

bool SampleOrders::are_own_lengths(const TensorId& id, std::int64_t extent,
                                   const std::vector<std::int64_t>& own) const {
  const auto of_microbatch = lengths.find({id.iteration, id.microbatch});
  if (of_microbatch == lengths.end()) return false;
  const auto of_extent = of_microbatch->second.find(extent);
  if (of_extent != of_microbatch->second.end() && of_extent->second.contains(own)) return true;
  // Where all ranks have the reference's length, nothing shows that it is one.
  if (std::ranges::all_of(own, [&](std::int64_t length) { return length == extent; })) return false;
  std::vector<std::int64_t> after = own;
  after.push_back(extent);
  const auto follows_from = [&](std::int64_t whole, std::vector<std::int64_t> before) {
    before.push_back(whole);
    return before.size() == after.size() && are_strided(before, after);
  };
  return std::ranges::any_of(of_microbatch->second, [&](const auto& of_input) {
    return std::ranges::any_of(of_input.second,
                               [&](const auto& before) { return follows_from(of_input.first, before); });
  });
}

SampleOrders sample_orders(const std::map<TensorId, SlicedInput>& inputs,
                           const std::vector<std::pair<TensorId, Telling>>& lists) {
  SampleOrders orders;
  // Of what told, whether all ranks hold the samples so, and how many are different.
  std::map<std::tuple<std::string, std::int32_t, std::int32_t, std::int64_t>, std::pair<bool, std::size_t>> best;
  const auto is_of_whole_model = [](const TensorId& id) {  // or of a further one
    return last_component(TensorName(id.name).path) == kRootModule;
  };
  const auto take = [&](const TensorId& id, Telling telling) {
    if (!telling.lengths.empty()) {
      orders.lengths[{id.iteration, id.microbatch}][telling.whole_length].insert(telling.lengths);
    }
    const auto samples = static_cast<std::int64_t>(telling.samples.size());
    const std::string model = is_of_whole_model(id) ? further_model_of(id.name.get()) : "";
    auto& known = best[{model, id.iteration, id.microbatch, samples}];
    const std::pair evidence(telling.exact, telling.different);
    if (evidence <= known) return;
    known = evidence;
    SampleOrders::OfMicrobatches& told_of = model.empty() ? orders.told : orders.of_further_models[model];
    told_of[{id.iteration, id.microbatch}][samples] = std::move(telling.samples);
  };
  std::vector<TensorId> silent;  // that tell nothing
  for (const auto& [id, input] : inputs) {
    if (begins_anew(input) || begins_anew_in_a_column(input)) {
      orders.begin_anew.insert(id);
      continue;
    }
    if (is_floating(input.reference->dtype) && !is_of_whole_model(id)) continue;
    if (auto telling = telling_of(input)) {
      take(id, std::move(*telling));
    } else {
      silent.push_back(id);
    }
  }
  for (const auto& [id, telling] : lists) take(id, telling);
  std::vector<std::pair<TensorId, TruncatedTelling>> truncated;
  for (const TensorId& id : silent) {
    auto found = truncated_telling_of(inputs.at(id));
    const bool is_padding = found && orders.are_own_lengths(id, found->telling.whole_length, found->telling.lengths);
    if (found && !is_padding) truncated.emplace_back(id, std::move(*found));
  }
  for (auto& [id, found] : truncated) {
    if (!found.truncation.coordinates.empty()) orders.truncated.emplace(id, std::move(found.truncation));
    take(id, std::move(found.telling));
  }
  return orders;
}

bool are_contiguous(const Samples& samples) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

bool are_striped(const Samples& samples, std::int64_t ranks) {
  std::size_t next = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (auto sample = rank; sample < static_cast<std::int64_t>(samples.size()); sample += ranks) {
      if (samples[next++] != sample) return false;
    }
  }
  return true;
}

}  // namespace ttrace
