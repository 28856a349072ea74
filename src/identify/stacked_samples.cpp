#include "identify/stacked_samples.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "identify/near_rows.h"

namespace ttrace {
namespace {

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

}  // namespace

void add_stacked_orders(const std::map<TensorId, SlicedInput>& tensors, SampleOrders& orders) {
  for (const auto& [id, input] : tensors) {
    const std::int64_t extent = input.reference->shape[input.dim];
    const Samples* samples = orders.find(id, extent);
    if (samples == nullptr || std::ssize(*samples) == extent) continue;
    SampleOrders::OfMicrobatches& of_model = orders.stacked[further_model_of(id.name.get())];
    auto& of_microbatch = of_model[{id.iteration, id.microbatch}];
    if (of_microbatch.contains(extent)) continue;
    const auto rows = held_rows(input);
    if (!rows) continue;
    auto possible = possible_orders(*samples, input);
    if (!possible) continue;
    if (count_of_ranks(*rows, possible->stacked) <= count_of_ranks(*rows, possible->together)) continue;
    of_microbatch.emplace(extent, std::move(possible->stacked));
  }
}

}  // namespace ttrace
