// A norm sees an error of one direction, or in one place, only where it is larger than the noise of all directions and
// places. In bf16 that is a factor of 1.03, or one wrong row of a thousand. Three statistics see it earlier:
//
//   scale    <e, r> / ||r||^2        e = candidate - r, r the reference; signed
//   row      max over rows i of ||e_i|| / sqrt(||r||^2 / rows)
//   element  max |e| / sqrt(||r||^2 / n)
//
// Rounding has no direction, so that its scale is small and of either sign. Over correct parallel runs of a GPT (4 and
// 16 layers, bf16 and fp32; tensors of kLeastElements or more) the scale divided by the spread of the perturbed runs'
// behaves as a normal variable should: at most 3.3 in bf16 and 5.1 in fp32 over 1,900 tensors a run. It is therefore a
// test of significance, not a maximum:
//
//   spread  = root mean square of the perturbed runs' scales, about 0: the larger of the tensor's and its group's
//   allowed = t * max(spread, floor) * max(1, residual / largest rel_err of the perturbed runs)
//
// where t is what Student's t exceeds in magnitude with probability kTestLevel. Its degrees of freedom are the number of
// responses. Three are too few for such a level (t is 280), and therefore tensors of one kind whose names differ in a
// number, the same of several layers, are a group, and pool theirs. The residual is what the scale leaves of rel_err:
// a candidate whose noise is larger than the runs' (its gradients are sums of parts that were rounded) has a larger
// scale by chance, too. A uniform factor adds nothing to the residual, and so does not widen its own tolerance.
//
// The largest row and element are maxima over many, which vary little:
//
//   allowed = 2 * margin * max(largest over runs, micro-batches and group, floor)
//
// Correct runs reach 3.0 times what is multiplied (one element of a gradient under sequence parallelism, fp32), and
// twice that is still far from a wrong row, at 1.4, or a wrong element.
//
// The floors are roundings of the elements themselves, by a step eps each (`rounding_floor`). Of one element |x| that is
// eps |x|, so that the largest, relative to the root mean square, is eps * crest, where crest is the reference's largest
// magnitude over its root mean square; no row's is larger. Along the reference n such errors of either sign add up to at
// most eps * crest / sqrt(n), relative to ||r||^2, in root mean square.
//
// An optimizer's step jumps (floors.cpp): one element by `jump`, a row of w elements by jump / sqrt(w), the scale, if
// margin^2 elements jump to the other side, by (margin * jump)^2 / (2 n).
//
// Of few elements the norm sees as much: a wrong element of 256, or a wrong row of 16, is more than any tolerance that
// is not noise.
#include "tolerance/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "tolerance/floors.h"

namespace ttrace {
namespace {

constexpr std::int64_t kLeastElements = 256;
constexpr std::int64_t kLeastRows = 16;

// (degrees of freedom, the t that is exceeded in magnitude with probability 1e-7)
constexpr std::array<std::pair<std::int64_t, double>, 15> kStudent = {{{3, 280.43},
                                                                       {4, 87.99},
                                                                       {5, 45.21},
                                                                       {6, 29.53},
                                                                       {8, 17.84},
                                                                       {10, 13.44},
                                                                       {12, 11.24},
                                                                       {16, 9.10},
                                                                       {24, 7.49},
                                                                       {32, 6.83},
                                                                       {48, 6.26},
                                                                       {64, 6.00},
                                                                       {96, 5.76},
                                                                       {128, 5.65},
                                                                       {1000, 5.37}}};
static_assert(kTestLevel == 1e-7);

constexpr std::array kStatistics = {Statistic::kScale, Statistic::kRow, Statistic::kElement};

using StatisticKey = std::pair<ToleranceKey, Statistic>;

double value_of(Statistic statistic, const Difference& difference) {
  switch (statistic) {
    case Statistic::kScale:
      return difference.scale_err();
    case Statistic::kRow:
      return difference.row_err();
    case Statistic::kElement:
      return difference.element_err();
    case Statistic::kNorm:
      break;
  }
  return difference.rel_err();
}

// Sums up responses, over micro-batches and iterations.
struct Pool {
  double squares = 0, largest = 0;  // of the magnitudes
  std::int64_t count = 0;

  void add(double value) {
    squares += value * value;
    largest = std::max(largest, std::fabs(value));
    ++count;
  }
  void add(const Pool& other) {
    squares += other.squares;
    largest = std::max(largest, other.largest);
    count += other.count;
  }
  // How large a response is: as the scale's spread, and as the largest of the others.
  double size(Statistic statistic) const {
    if (statistic != Statistic::kScale) return largest;
    return count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count));
  }
};

// What some runs say of one tensor.
struct StatisticResponses {
  std::vector<double> by_run;  // the one of the largest magnitude
  Pool pool;
};

// Tensors of zeros are left out: nothing is relative to them.
std::map<StatisticKey, StatisticResponses> statistic_responses_of(std::span<const RunDifferences> runs) {
  std::map<StatisticKey, StatisticResponses> all;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (std::size_t i = 0; i < runs[r].pairs.size(); ++i) {
      const LogicalTensor& tensor = *runs[r].pairs[i].reference;
      const Difference& difference = runs[r].differences[i];
      if (!is_floating(tensor.dtype) || difference.reference_square == 0) continue;
      for (const Statistic statistic : kStatistics) {
        const double value = value_of(statistic, difference);
        StatisticResponses& responses = all[{{tensor.id.kind, tensor.id.name}, statistic}];
        responses.by_run.resize(runs.size());
        if (std::fabs(value) > std::fabs(responses.by_run[r])) responses.by_run[r] = value;
        responses.pool.add(value);
      }
    }
  }
  return all;
}

// What a floor is made of: the largest over a tensor's micro-batches and iterations.
struct Size {
  std::int64_t elements = 0, rows = 0;  // the fewest
  double eps = 0, element_floor = 0;    // the floor is eps * crest
};

std::map<ToleranceKey, Size> sizes_of(const RunDifferences& run, const EstimateOptions& options) {
  std::map<ToleranceKey, Size> sizes;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const LogicalTensor& tensor = *run.pairs[i].reference;
    const Difference& difference = run.differences[i];
    if (!is_floating(tensor.dtype)) continue;
    const auto [found, is_new] = sizes.try_emplace({tensor.id.kind, tensor.id.name});
    Size& size = found->second;
    size.elements = is_new ? difference.elements : std::min(size.elements, difference.elements);
    size.rows = is_new ? difference.rows : std::min(size.rows, difference.rows);
    if (difference.reference_square == 0) continue;
    const double rms = std::sqrt(difference.reference_square / static_cast<double>(difference.elements));
    size.eps = std::max(size.eps, rounding_floor(tensor.id.kind, tensor.dtype, options.compute_dtype));
    size.element_floor = std::max(size.element_floor, size.eps * difference.reference_max_abs / rms);
  }
  for (auto& [key, size] : sizes) {  // one element is all of a tensor at most
    size.element_floor = std::min(size.element_floor, size.eps * std::sqrt(static_cast<double>(size.elements)));
  }
  return sizes;
}

double floor_of(Statistic statistic, const Size& size, double jump, double factor, double margin) {
  const double elements = static_cast<double>(size.elements);
  switch (statistic) {
    case Statistic::kScale:
      return std::max(size.element_floor / std::sqrt(elements), std::pow(margin * jump, 2) / (2 * elements * factor));
    case Statistic::kRow:
      return std::max(size.element_floor, jump / std::sqrt(elements / static_cast<double>(size.rows)));
    default:
      return std::max(size.element_floor, jump);
  }
}

bool is_tested(const StatisticKey& key, const std::map<ToleranceKey, Size>& sizes) {
  const auto size = sizes.find(key.first);
  return size != sizes.end() && size->second.elements >= kLeastElements &&
         (key.second != Statistic::kRow || size->second.rows >= kLeastRows);
}

using GroupKey = std::pair<ToleranceKey, Statistic>;  // with the group for a name

GroupKey group_key(const StatisticKey& key) { return {{key.first.first, group_of(key.first.second)}, key.second}; }

// Pools what is tested.
std::map<GroupKey, Pool> pooled(const std::map<StatisticKey, StatisticResponses>& all,
                                const std::map<ToleranceKey, Size>& sizes) {
  std::map<GroupKey, Pool> groups;
  for (const auto& [key, responses] : all) {
    if (is_tested(key, sizes)) groups[group_key(key)].add(responses.pool);
  }
  return groups;
}

}  // namespace

double factor_of(Statistic statistic, std::int64_t responses, double margin) {
  if (statistic != Statistic::kScale) return 2 * margin;
  double t = kStudent.front().second;
  for (const auto& [degrees, quantile] : kStudent) {
    if (degrees <= responses) t = quantile;
  }
  return t;
}

std::string group_of(const std::string& name) {
  std::string group;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    group += (begin == 0 ? "" : ".") + (number ? "#" : part);
    begin = end + 1;
  }
  return group;
}

std::vector<JudgedStatistic> measure_statistics(const Difference& difference, const Tolerance& tolerance) {
  std::vector<JudgedStatistic> judged;
  for (const auto& [statistic, allowed] : tolerance.statistics) {
    JudgedStatistic one{statistic, value_of(statistic, difference), allowed.allowed};
    const double noise = tolerance.estimate > 0 ? tolerance.estimate : tolerance.floor;
    if (statistic == Statistic::kScale) one.allowed *= std::max(1.0, difference.residual_err() / noise);
    judged.push_back(one);
  }
  return judged;
}

void estimate_statistics(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                         const EstimateOptions& options, ToleranceFile& file) {
  const std::map<StatisticKey, StatisticResponses> all = statistic_responses_of(perturbed);
  std::map<StatisticKey, StatisticResponses> noise;
  if (rerun != nullptr) noise = statistic_responses_of({rerun, 1});
  const std::map<ToleranceKey, Size> sizes = sizes_of(perturbed[0], options);
  const std::map<GroupKey, Pool> groups = pooled(all, sizes);
  const std::map<ToleranceKey, double> jumps = largest_step_jumps(perturbed);
  for (const auto& [key, responses] : all) {
    const auto& [tensor, statistic] = key;
    if (!is_tested(key, sizes)) continue;
    const Pool& group = groups.at(group_key(key));
    StatisticTolerance tolerance;
    tolerance.samples = responses.by_run;
    tolerance.responses = group.count;
    tolerance.estimate = std::max(responses.pool.size(statistic), group.size(statistic));
    if (const auto own = noise.find(key); own != noise.end()) {
      tolerance.rerun = own->second.by_run[0];
      tolerance.estimate = std::max(tolerance.estimate, own->second.pool.largest);
    }
    if (!std::isfinite(tolerance.estimate)) continue;
    const auto jump = jumps.find(tensor);
    const double factor = factor_of(statistic, tolerance.responses, options.margin);
    tolerance.floor =
        floor_of(statistic, sizes.at(tensor), jump == jumps.end() ? 0 : jump->second, factor, options.margin);
    tolerance.allowed = factor * std::max(tolerance.estimate, tolerance.floor);
    if (tolerance.allowed > 0) file.tensors.at(tensor).statistics.emplace(statistic, std::move(tolerance));
  }
}

}  // namespace ttrace
