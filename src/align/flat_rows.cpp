#include "align/flat_rows.h"

#include <numeric>

namespace ttrace {
namespace {

// How many samples each rank has, of `lengths` each; nothing where its rows are no whole number of them, or all together
// are not `samples`.
std::optional<std::vector<std::int64_t>> counts_of(const std::vector<std::int64_t>& own,
                                                   const std::vector<std::int64_t>& lengths, std::int64_t samples) {
  std::vector<std::int64_t> counts;
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    if (lengths[rank] <= 0 || own[rank] < 0 || own[rank] % lengths[rank] != 0) return std::nullopt;
    counts.push_back(own[rank] / lengths[rank]);
  }
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  return all == samples ? std::optional(counts) : std::nullopt;
}

FlatRows rows_of(const Samples& samples, const std::vector<std::int64_t>& counts,
                 const std::vector<std::int64_t>& lengths, std::int64_t positions) {
  FlatRows flat;
  auto sample = samples.begin();
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    for (std::int64_t i = 0; i < counts[rank]; ++i, ++sample) {
      for (std::int64_t position = 0; position < lengths[rank]; ++position) {
        flat.rows.push_back(*sample * positions + position);
      }
    }
  }
  std::vector<std::int64_t> kept(samples.size() * static_cast<std::size_t>(positions), -1);
  for (const std::int64_t row : flat.rows) kept[static_cast<std::size_t>(row)] = 0;
  std::int64_t next = 0;
  for (std::size_t row = 0; row < kept.size(); ++row) {
    if (kept[row] == 0) {
      kept[row] = next++;
    } else {
      flat.dropped.push_back(static_cast<std::int64_t>(row));
    }
  }
  for (std::int64_t& row : flat.rows) row = kept[static_cast<std::size_t>(row)];
  return flat;
}

}  // namespace

std::optional<FlatRows> flat_rows(const SampleOrders& orders, const TensorId& id, std::int64_t rows,
                                  const std::vector<std::int64_t>& own) {
  const auto told = orders.told.find({id.iteration, id.microbatch});
  const auto lengths = orders.lengths.find({id.iteration, id.microbatch});
  if (told == orders.told.end() || lengths == orders.lengths.end()) return std::nullopt;
  for (const auto& [count, samples] : told->second) {
    const std::int64_t positions = count > 0 && rows % count == 0 ? rows / count : 0;
    if (positions == 0) continue;
    for (const auto& [length, of_ranks] : lengths->second) {
      for (std::vector<std::int64_t> own_lengths : of_ranks) {
        if (length < positions || own_lengths.size() != own.size()) continue;
        for (std::int64_t& own_length : own_lengths) own_length -= length - positions;
        const auto counts = counts_of(own, own_lengths, count);
        if (!counts) continue;
        FlatRows flat = rows_of(samples, *counts, own_lengths, positions);
        if (!flat.dropped.empty()) return flat;
      }
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
