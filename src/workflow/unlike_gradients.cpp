#include "workflow/unlike_gradients.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compare/compare.h"

namespace ttrace {
namespace {

constexpr std::int64_t kLeastEntries = 16;  // elements of a gradient whose norm tells of more than one sample
constexpr std::size_t kMostRead = 16;       // gradients of a rank
constexpr int kAlikeIn = 2;
constexpr double kAlike = 2, kUnlike = 5;  // powers of 2

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

bool is_smaller(const Entry* one, const Entry* other) {
  return std::tie(one->bytes, one->id) < std::tie(other->bytes, other->id);
}

// Returns the norms, where they are neither zero nor infinite, of the rank's smallest gradients, as its samples made
// them.
std::map<TensorId, double> norms_of(const RankTrace& rank) {
  std::vector<const Entry*> gradients;
  for (const Entry& entry : rank.entries) {
    const bool counts = entry.id.kind == Kind::kParamGrad && !entry.sketch && is_floating(entry.dtype);
    if (counts && element_count(entry.shape) >= kLeastEntries) gradients.push_back(&entry);
  }
  std::ranges::sort(gradients, is_smaller);
  if (gradients.size() > kMostRead) gradients.resize(kMostRead);
  std::map<TensorId, double> norms;
  for (const Entry* entry : gradients) {
    const double norm = statistics_of(rank.bytes_of(*entry), entry->dtype, element_count(entry->shape)).norm;
    if (norm > 0 && std::isfinite(norm)) norms.emplace(entry->id, norm);
  }
  return norms;
}

// Returns of each rank the powers of 2 between its norms and the median of those that several ranks have.
std::map<std::int32_t, double> distances(const Trace& trace) {
  std::map<TensorId, std::map<std::int32_t, double>> norms;
  for (const RankTrace& rank : trace.ranks) {
    for (const auto& [id, norm] : norms_of(rank)) norms[id][rank.rank] = std::log2(norm);
  }
  std::map<std::int32_t, std::vector<double>> by_rank;
  for (const auto& [id, ranks] : norms) {
    if (ranks.size() < 2) continue;
    std::vector<double> values;
    for (const auto& [rank, norm] : ranks) values.push_back(norm);
    const double of_all = median(std::move(values));
    for (const auto& [rank, norm] : ranks) by_rank[rank].push_back(norm - of_all);
  }
  std::map<std::int32_t, double> result;
  for (auto& [rank, values] : by_rank) result[rank] = median(std::move(values));
  return result;
}

}  // namespace

std::optional<UnlikeGradients> GradientWatch::look_at(const Trace& trace) {
  const std::map<std::int32_t, double> by_rank = distances(trace);
  if (by_rank.empty()) return std::nullopt;
  const auto farthest = std::ranges::max_element(
      by_rank, [](const auto& left, const auto& right) { return std::abs(left.second) < std::abs(right.second); });
  const double distance = std::abs(farthest->second);
  if (distance <= kAlike) ++alike_;
  if (distance < kUnlike || alike_ < kAlikeIn) return std::nullopt;
  return UnlikeGradients{farthest->first, std::exp2(farthest->second)};
}

}  // namespace ttrace
