#include "identify/stacked_samples.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "identify/near_rows.h"

namespace ttrace {
namespace {

// The rows of an input, in the reference and on each rank.
struct RowsOfInput {
  std::vector<std::uint64_t> whole;
  std::vector<std::vector<std::uint64_t>> held;
};

// Nothing where the ranks have not all recorded the reference's elements of the dimension, in its dtype and shape.
std::optional<RowsOfInput> rows_of(const SlicedInput& input) {
  const LogicalTensor& reference = *input.reference;
  const std::byte* first = elements_of(reference);
  if (first == nullptr) return std::nullopt;
  std::vector<HashedRows> parts;
  for (std::size_t rank = 0; rank < input.parts.size(); ++rank) {
    const Entry* part = input.parts[rank];
    if (part == nullptr || part->dtype != reference.dtype || part->sketch) return std::nullopt;
    Shape shape = part->shape;
    shape[input.dim] = reference.shape[input.dim];
    if (shape != reference.shape) return std::nullopt;
    const std::byte* own = input.ranks[rank]->bytes_of(*part);
    parts.push_back({own, part->shape, part->dtype, hashes_of_rows(own, part->shape, input.dim, part->dtype)});
  }
  RowsOfInput rows;
  rows.whole = hashes_of_rows(first, reference.shape, input.dim, reference.dtype);
  take_hashes_of_near_rows({first, reference.shape, reference.dtype, rows.whole}, parts, input.dim);
  for (HashedRows& part : parts) rows.held.push_back(std::move(part.hashes));
  return rows;
}

// How the rows of the samples lie: one of each sample in each of `blocks` blocks, or all of a sample together.
struct PossibleOrders {
  Samples stacked, together;
};

// Nothing where a rank does not hold as many blocks of its samples.
std::optional<PossibleOrders> possible_orders(const Samples& samples, const SlicedInput& input) {
  const auto count = std::ssize(samples);
  const std::int64_t blocks = input.reference->shape[input.dim] / count;
  PossibleOrders orders;
  std::int64_t start = 0;
  for (const Entry* part : input.parts) {
    const std::int64_t rows = part->shape[input.dim];
    const std::int64_t own = rows / blocks;
    if (rows % blocks != 0 || start + own > count) return std::nullopt;
    for (std::int64_t row = 0; row < rows; ++row) {
      orders.stacked.push_back(row / own * count + samples[static_cast<std::size_t>(start + row % own)]);
      orders.together.push_back(samples[static_cast<std::size_t>(start + row / blocks)] * blocks + row % blocks);
    }
    start += own;
  }
  return start == count ? std::optional(std::move(orders)) : std::nullopt;
}

// How many ranks hold the reference's rows in this order.
std::ptrdiff_t count_of_ranks(const RowsOfInput& rows, const Samples& order) {
  auto next = order.begin();
  return std::count_if(rows.held.begin(), rows.held.end(), [&](const std::vector<std::uint64_t>& held) {
    const auto start = std::exchange(next, next + std::ssize(held));
    return std::equal(held.begin(), held.end(), start, [&](std::uint64_t hash, std::int64_t row) {
      return hash == rows.whole[static_cast<std::size_t>(row)];
    });
  });
}

}  // namespace

void add_stacked_orders(const std::map<TensorId, SlicedInput>& inputs, SampleOrders& orders) {
  for (const auto& [id, input] : inputs) {
    const std::int64_t extent = input.reference->shape[input.dim];
    const Samples* samples = orders.find(id, extent);
    if (samples == nullptr || std::ssize(*samples) == extent) continue;
    SampleOrders::OfMicrobatches& of_model = orders.stacked[further_model_of(id.name.get())];
    auto& of_microbatch = of_model[{id.iteration, id.microbatch}];
    if (of_microbatch.contains(extent)) continue;
    const auto rows = rows_of(input);
    if (!rows) continue;
    auto possible = possible_orders(*samples, input);
    if (!possible) continue;
    if (count_of_ranks(*rows, possible->stacked) <= count_of_ranks(*rows, possible->together)) continue;
    of_microbatch.emplace(extent, std::move(possible->stacked));
  }
}

}  // namespace ttrace
