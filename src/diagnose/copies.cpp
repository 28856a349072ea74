#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/describe.h"
#include "base/lookup.h"
#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostPartsTried = 64;  // each is held against each other one
constexpr std::size_t kMostPartsNamed = 4;

// The values at the elements of a rank's part, in its own order; 0 where it is padding.
Values values_at(const Values& values, const LocalTensor& part) {
  Values some;
  some.reserve(part.positions.size());
  for (const std::int64_t place : part.positions)
    some.push_back(place < 0 ? 0 : values[static_cast<std::size_t>(place)]);
  return some;
}

bool is_varied(const Values& values) {
  return std::any_of(values.begin(), values.end(), [&](double value) { return value != values.front(); });
}

// Where a part's values come from.
struct SourceOfPart {
  Values values;
  std::int32_t rank = 0;
  std::string what;
};

// Finds what the candidate's ranks hold in place of their parts of the reference.
class PartFinder {
 public:
  explicit PartFinder(const Suspect& suspect) : suspect_(suspect) {
    for (const LocalTensor& part : suspect.parts) right_.push_back(values_at(suspect.reference_values, part));
  }

  bool is_right(std::size_t part) const { return is_met(wrong_values(part), right_[part]); }

  std::optional<SourceOfPart> source_of(std::size_t part) {
    const Values wrong = wrong_values(part);
    if (wrong.size() < kFewestValues || !is_varied(wrong)) return std::nullopt;
    const std::string own = describe_part(part);
    for (std::size_t other = 0; other < right_.size(); ++other) {
      if (other == part || suspect_.parts[other].shape != suspect_.parts[part].shape || !is_met(wrong, right_[other]))
        continue;
      return SourceOfPart{right_[other], suspect_.parts[other].rank,
                          fmt::format("the part of {} is that of {}", own, describe_part(other))};
    }
    for (const auto& [time, values] : other_times()) {
      const Values then = values_at(values, suspect_.parts[part]);
      if (!is_met(wrong, then)) continue;
      return SourceOfPart{then, suspect_.parts[part].rank, fmt::format("the part of {} is that of {}", own, time)};
    }
    return std::nullopt;
  }

 private:
  // Names the micro-batch, too, where a rank has parts of several.
  std::string describe_part(std::size_t part) const {
    const LocalTensor& local = suspect_.parts[part];
    const bool is_of_several = std::ranges::any_of(
        suspect_.parts, [&](const LocalTensor& other) { return other.microbatch != suspect_.parts[0].microbatch; });
    return is_of_several ? fmt::format("micro-batch {} of rank {}", local.microbatch, local.rank)
                         : fmt::format("rank {}", local.rank);
  }

  Values wrong_values(std::size_t part) const { return values_at(suspect_.candidate_values, suspect_.parts[part]); }
  bool is_met(const Values& values, const Values& predicted) const {
    return values == predicted || relative_distance(values, predicted) <= suspect_.bound;
  }

  // The reference's values of the tensor in what came before, and in other micro-batches of its iteration.
  const std::vector<std::pair<std::string, Values>>& other_times() {
    if (times_) return *times_;
    times_.emplace();
    const TensorId& id = suspect_.reference.id;
    for (const auto& [other, tensor] : suspect_.evidence.reference.tensors) {
      const bool is_other_time = other.iteration != id.iteration || other.microbatch != id.microbatch;
      const bool is_of_it = other.kind == id.kind && other.name == id.name && other.iteration <= id.iteration;
      if (!is_other_time || !is_of_it || !is_small(tensor) || tensor.shape != suspect_.reference.shape) continue;
      times_->emplace_back(describe_time(other), values_of(tensor));
    }
    return *times_;
  }

  const Suspect& suspect_;
  std::vector<Values> right_;  // by part
  std::optional<std::vector<std::pair<std::string, Values>>> times_;
};

}  // namespace

std::optional<Diagnosis> other_part(const Suspect& suspect) {
  const std::size_t count = suspect.parts.size();
  if (count == 0 || count > kMostPartsTried) return std::nullopt;
  PartFinder finder(suspect);
  Values prediction = suspect.reference_values;
  std::vector<std::string> words;
  std::multiset<std::int32_t> holders, sources;
  bool some_are_of_others = false;
  for (std::size_t i = 0; i < count; ++i) {
    const LocalTensor& part = suspect.parts[i];
    holders.insert(part.rank);
    if (finder.is_right(i)) {
      sources.insert(part.rank);
      continue;
    }
    const std::optional<SourceOfPart> source = finder.source_of(i);
    if (!source) return std::nullopt;
    sources.insert(source->rank);
    some_are_of_others = some_are_of_others || source->rank != part.rank;
    words.push_back(source->what);
    for (std::size_t k = 0; k < part.positions.size(); ++k) {
      if (part.positions[k] >= 0) prediction[static_cast<std::size_t>(part.positions[k])] = source->values[k];
    }
  }
  // Parts that are all there, in another order, are blocks in another order.
  if (words.empty() || (some_are_of_others && holders == sources)) return std::nullopt;
  const std::size_t left_out = words.size() > kMostPartsNamed ? words.size() - kMostPartsNamed : 0;
  words.resize(words.size() - left_out);
  return suspect.explained_by(
      some_are_of_others ? Cause::kOtherTensor : Cause::kStale, prediction,
      fmt::format("{}{}", fmt::join(words, "; "), left_out > 0 ? fmt::format("; and so {} more", left_out) : ""));
}

}  // namespace ttrace
