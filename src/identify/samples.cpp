#include "identify/samples.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/tensor_name.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

using Hashes = std::vector<std::uint64_t>;

// One hash for each row along `dim` of a row-major tensor.
Hashes hashes_of_rows(const std::byte* data, const Shape& shape, std::size_t dim, Dtype dtype) {
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

// What one input tells: the order, and how many different samples it tells it by.
struct Telling {
  Samples samples;
  std::size_t different = 0;
};

// The samples in stretches, where all ranks hold their own; or some, if `some`: others then hold other samples, which a
// comparison shows.
std::optional<Samples> contiguous_order(const Hashes& whole, const std::vector<Hashes>& parts, bool some) {
  auto stretch = whole.begin();
  std::size_t right = 0;
  for (const Hashes& part : parts) {
    right += std::equal(part.begin(), part.end(), stretch) ? 1 : 0;
    stretch += static_cast<std::ptrdiff_t>(part.size());
  }
  if (right < (some ? 1 : parts.size())) return std::nullopt;
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

std::optional<Telling> telling_of(const SlicedInput& input) {
  const LogicalTensor& reference = *input.reference;
  const std::vector<Piece> pieces = reference.pieces();
  // Copies of the whole; a reference whose inputs are split themselves is not looked at.
  const bool is_whole = !pieces.empty() && pieces[0].logical == whole_box(reference.shape) &&
                        pieces[0].strides == row_major_strides(reference.shape);
  if (!is_whole || reference.sketched) return std::nullopt;
  const std::byte* first =
      pieces[0].elements() + pieces[0].offset * static_cast<std::int64_t>(size_of(reference.dtype));
  const Hashes whole = hashes_of_rows(first, reference.shape, input.dim, reference.dtype);
  const std::size_t different = std::set<std::uint64_t>(whole.begin(), whole.end()).size();
  if (different < 2) return std::nullopt;
  std::vector<Hashes> parts;
  for (std::size_t i = 0; i < input.parts.size(); ++i) {
    const Entry* entry = input.parts[i];
    if (entry == nullptr || entry->dtype != reference.dtype || entry->sketch != nullptr) return std::nullopt;
    Shape shape = entry->shape;
    shape[input.dim] = reference.shape[input.dim];
    if (shape != reference.shape) return std::nullopt;
    parts.push_back(hashes_of_rows(input.ranks[i]->bytes_of(*entry), entry->shape, input.dim, entry->dtype));
  }
  auto samples = contiguous_order(whole, parts, false);
  if (!samples) samples = striped_order(whole, parts);
  if (!samples) samples = own_order(whole, parts);
  if (!samples) samples = contiguous_order(whole, parts, true);
  if (!samples) return std::nullopt;
  return Telling{std::move(*samples), different};
}

}  // namespace

const Samples* SampleOrders::find(const TensorId& id, std::int64_t extent) const {
  const auto of_microbatch = told.find({id.iteration, id.microbatch});
  if (of_microbatch == told.end()) return nullptr;
  for (auto order = of_microbatch->second.rbegin(); order != of_microbatch->second.rend(); ++order) {
    if (extent % order->first == 0) return &order->second;
  }
  return nullptr;
}

SampleOrders sample_orders(const std::map<TensorId, SlicedInput>& inputs) {
  SampleOrders orders;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int64_t>, std::size_t> different;
  for (const auto& [id, input] : inputs) {
    if (is_floating(input.reference->dtype) && TensorName(id.name).path != kRootModule) continue;
    auto telling = telling_of(input);
    if (!telling) continue;
    const auto samples = static_cast<std::int64_t>(telling->samples.size());
    std::size_t& most = different[{id.iteration, id.microbatch, samples}];
    if (telling->different <= most) continue;
    most = telling->different;
    orders.told[{id.iteration, id.microbatch}][samples] = std::move(telling->samples);
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
