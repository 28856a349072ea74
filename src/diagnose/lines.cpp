// Tests whether a rank's part is the reference's times a number, plus another: of all of it, or of each channel. So it is
// where each rank shifts and scales its part by what it has taken of that part alone: a mean and a standard deviation, the
// least and the largest.
//
// Two numbers that are fitted to n values of an unrelated error explain the share 2 / n of its square on average, and so
// each line has kFewestValues or more.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/describe.h"
#include "diagnose/hypothesis.h"
#include "diagnose/slices.h"

namespace ttrace {
namespace {

struct Line {
  double slope = 0, offset = 0;
};

// What a line is fitted to, and the mean and the deviation of the values.
struct LineSums {
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;

  void add(double reference, double candidate) {
    n += 1;
    x += reference;
    y += candidate;
    xx += reference * reference;
    yy += candidate * candidate;
    xy += reference * candidate;
  }
  void add(const LineSums& other) {
    n += other.n;
    x += other.x;
    xx += other.xx;
  }
  double spread() const { return std::max(0.0, xx - x * x / n); }  // of the reference's: a sum of squares
  double wrong_spread() const { return std::max(0.0, yy - y * y / n); }
  Line fit() const {
    const double slope = (xy - x * y / n) / spread();
    return {slope, (y - slope * x) / n};
  }
};

// True for values whose mean is 0 and whose standard deviation, by n or by n - 1, is 1.
bool is_standard(double n, double sum, double squares) {
  constexpr double kNearStandard = 1e-3;  // an eps beside the deviation
  const double mean = sum / n, deviation = std::sqrt(std::max(0.0, squares / n - mean * mean));
  const double unbiased = deviation * std::sqrt(n / std::max(1.0, n - 1));
  return std::abs(mean) <= kNearStandard && std::min(std::abs(deviation - 1), std::abs(unbiased - 1)) <= kNearStandard;
}

using LineKey = std::pair<std::int32_t, std::int64_t>;  // rank, channel

class LinesOfParts {
 public:
  // Of each rank, or of its channels along a dimension.
  LinesOfParts(const Suspect& suspect, std::optional<std::size_t> dim) : suspect_(suspect), dim_(dim) {
    for (const LocalTensor& part : suspect.parts) {
      for (const std::int64_t place : part.positions) {
        if (place < 0) continue;
        const auto at = static_cast<std::size_t>(place);
        sums_[key_of(part.rank, place)].add(suspect.reference_values[at], suspect.candidate_values[at]);
      }
    }
  }

  // True where every part has enough values, and is nothing but its line: what that leaves is little beside what the part
  // varies by, and beside its norm.
  bool tell() const {
    constexpr double kLeastSpread = 1e-12;  // of its square: values that are all one tell no line
    return std::ranges::all_of(sums_, [&](const auto& item) {
      const LineSums& sums = item.second;
      if (sums.n < static_cast<double>(kFewestValues) || sums.spread() <= kLeastSpread * sums.xx ||
          sums.wrong_spread() <= kLeastSpread * sums.yy) {
        return false;
      }
      const double left = std::max(0.0, sums.wrong_spread() - sums.fit().slope * (sums.xy - sums.x * sums.y / sums.n));
      return left <= kLargestShareLeft * kLargestShareLeft * sums.wrong_spread() &&
             left <= suspect_.bound * suspect_.bound * sums.yy;
    });
  }

  // The candidate's values as the lines make them.
  Values prediction() const {
    Values predicted = suspect_.reference_values;
    for (const LocalTensor& part : suspect_.parts) {
      for (const std::int64_t place : part.positions) {
        if (place < 0) continue;
        const Line line = sums_.at(key_of(part.rank, place)).fit();
        const auto at = static_cast<std::size_t>(place);
        predicted[at] = line.slope * suspect_.reference_values[at] + line.offset;
      }
    }
    return predicted;
  }

  // True where ranks have other lines than the first.
  bool are_several() const {
    const std::int32_t first_rank = sums_.begin()->first.first;
    return std::ranges::any_of(sums_, [&](const auto& item) {
      const auto of_first = sums_.find({first_rank, item.first.second});
      if (of_first == sums_.end()) return true;
      const Line line = item.second.fit(), first = of_first->second.fit();
      const double size = std::sqrt(item.second.yy / item.second.n);
      return std::abs(line.slope - first.slope) > suspect_.bound * std::abs(first.slope) ||
             std::abs(line.offset - first.offset) > suspect_.bound * size;
    });
  }

  // True where every part is standardised by itself, and the reference is, channel by channel, over all ranks.
  bool are_standardised() const {
    std::map<std::int64_t, LineSums> whole;
    for (const auto& [key, sums] : sums_) {
      if (!is_standard(sums.n, sums.y, sums.yy)) return false;
      whole[key.second].add(sums);
    }
    return std::ranges::all_of(
        whole, [](const auto& item) { return is_standard(item.second.n, item.second.x, item.second.xx); });
  }

  std::string describe() const {
    std::vector<std::string> words;
    for (const auto& [key, sums] : sums_) {
      const Line line = sums.fit();
      words.push_back(fmt::format("{:.4g} times it and {:.4g} on rank {}", line.slope, line.offset, key.first));
    }
    return comma_list(words);
  }

 private:
  LineKey key_of(std::int32_t rank, std::int64_t place) const {
    if (!dim_) return {rank, 0};
    const Slices slices(suspect_.reference.shape, *dim_);
    return {rank, place / slices.inner % slices.extent};
  }

  const Suspect& suspect_;
  const std::optional<std::size_t> dim_;
  std::map<LineKey, LineSums> sums_;
};

std::optional<Diagnosis> explain_by_lines(const Suspect& suspect, std::optional<std::size_t> dim) {
  const LinesOfParts lines(suspect, dim);
  if (!lines.tell() || !lines.are_several()) return std::nullopt;
  if (lines.are_standardised()) {
    const std::string channels =
        dim ? fmt::format(", in each of the {} channels of dimension {}", suspect.reference.shape[*dim], *dim) : "";
    return suspect.explained_by(
        Cause::kOwnSamples, lines.prediction(),
        fmt::format("each rank's part is standardised by itself{}: its mean is 0 and its standard deviation 1 on every "
                    "rank, and in the reference over all: the mean and the deviation are those of each rank's own "
                    "samples, in place of all",
                    channels));
  }
  // A linear with another input has a bias that stays: lines of channels are no mistake of their own.
  if (dim) return std::nullopt;
  return suspect.explained_by(
      Cause::kRankFactor, lines.prediction(),
      fmt::format("each rank's part is a multiple of the reference's, and a number: {}", lines.describe()));
}

}  // namespace

std::optional<Diagnosis> shifted_and_scaled(const Suspect& suspect) {
  const Kind kind = suspect.reference.id.kind;
  const bool is_activation =
      kind == Kind::kInput || kind == Kind::kOutput || kind == Kind::kGradInput || kind == Kind::kGradOutput;
  if (!is_activation || suspect.parts.empty()) return std::nullopt;
  if (auto found = explain_by_lines(suspect, std::nullopt)) return found;
  for (std::size_t dim = 1; dim < suspect.reference.shape.size(); ++dim) {
    if (auto found = explain_by_lines(suspect, dim)) return found;
  }
  return std::nullopt;
}

}  // namespace ttrace
