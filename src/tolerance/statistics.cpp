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
// where t is what Student's t exceeds in magnitude with probability kTestLevel. Its degrees of freedom are the number
// of responses. Three are too few for such a level (t is 604), and therefore tensors of one kind whose names differ in
// a number, the same of several layers, are a group, and pool theirs. The residual is what the scale leaves of rel_err:
// a candidate whose noise is larger than the runs' (its gradients are sums of parts that were rounded) has a larger
// scale by chance, too. A uniform factor adds nothing to the residual, and so does not widen its own tolerance.
//
// The largest row and element are maxima over many, which vary little:
//
//   allowed = 2 * margin * max(largest over runs, micro-batches and group, floor)
//
// The 2 is chance: the largest of n normal errors exceeds so many times the largest of 3 n with probability kTestLevel
// where n is kLeastElements, 1.5 times where it is a million. The margin is for the rest, as with the norm: correct
// runs reach 3.0 times what is multiplied (one element of a gradient under sequence parallelism, fp32).
//
// The floors are roundings of the elements themselves (floors.cpp): u |x| in root mean square, u = eps / sqrt(6).
// Relative to the root mean square no element, and no row, has more than u * crest of it, where crest is the
// reference's largest magnitude over its root mean square. Along the reference n such errors of either sign add up to
// at most u * crest / sqrt(n), relative to ||r||^2. Of the largest element the bound is known, a whole step, half of
// which is its floor: it needs none of the 2 that is chance. An element is also a sum, of at most K terms, added up in
// fp32 (in fp64 where that computes) one after another: of partial sums that grow to it, half of K roundings of it in
// either run, and u is no less than eps_fp32 * sqrt(K / 12). In fp32 the perturbed runs need not show it: a few large
// terms decide how a sum is rounded, and a perturbation of the input may hardly move them.
//
// An optimizer's step jumps (floors.cpp): one element by `jump`, a row of w elements by jump / sqrt(w), the scale, if
// margin^2 elements jump to the other side, by (margin * jump)^2 / (2 n). What the reference's own sums are off by
// (own_sums.cpp) a scale or an element may be off by as well, as many times as the margin says.
//
// No statistic is of a rank's part, or of a head's block. What is allowed comes from runs of the reference, which have
// no parts: which ones a candidate will have is not known when tolerances are estimated, and what the whole may differ
// by, relative to its size, says nothing of a part whose values are smaller.
//
// Sketches have neither rows nor elements. Where the perturbed runs were recorded as sketches, like the candidate, the
// largest cell is a maximum over many as well, of the same estimates: it has the rule of rows and needs no widening.
//
// Of few elements the norm sees as much: a wrong element of 256, or a wrong row of 16, is more than any tolerance that
// is not noise.
#include "tolerance/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/tensor_name.h"
#include "compare/tile.h"
#include "sketch/cells.h"
#include "tolerance/floors.h"
#include "tolerance/quantiles.h"

namespace ttrace {
namespace {

constexpr std::int64_t kLeastElements = 256;
constexpr std::int64_t kLeastRows = 16;

// Half of the most that two roundings differ by, of their root mean square: sqrt(6) / 2.
constexpr double kHalfStep = 1.224744871391589;

constexpr std::array kStatistics = {Statistic::kScale, Statistic::kRow, Statistic::kElement, Statistic::kCell};

// Sketches have cells in place of rows and elements.
bool is_measured(Statistic statistic, const Difference& difference) {
  return statistic == Statistic::kScale || (statistic == Statistic::kCell) == difference.sketch.has_value();
}

using StatisticKey = std::pair<ToleranceKey, Statistic>;

// Returns a number that a file can hold, as `response_of` of estimate.cpp does.
double bounded(double value) { return std::isfinite(value) ? value : 1; }

double value_of(Statistic statistic, const Difference& difference) {
  switch (statistic) {
    case Statistic::kScale:
      return difference.scale_err();
    case Statistic::kRow:
      return difference.row_err();
    case Statistic::kElement:
      return difference.element_err();
    case Statistic::kCell:
      return difference.cell_err();
    case Statistic::kNorm:
    case Statistic::kCoherence:  // of several tensors
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
  // Returns how large a response is: as the scale's spread, and as the largest of the others. A root mean square is no
  // larger than the largest, but for rounding, where all are equal.
  double size(Statistic statistic) const {
    if (statistic != Statistic::kScale) return largest;
    return count == 0 ? 0 : std::min(largest, std::sqrt(squares / static_cast<double>(count)));
  }
};

// Holds what some runs say of one tensor.
struct StatisticResponses {
  std::vector<double> by_run;  // the one of the largest magnitude
  Pool pool;
};

// Tensors of zeros say nothing: nothing is relative to them.
std::map<StatisticKey, StatisticResponses> statistic_responses_of(std::span<const RunDifferences> runs) {
  std::map<StatisticKey, StatisticResponses> all;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (std::size_t i = 0; i < runs[r].pairs.size(); ++i) {
      const LogicalTensor& tensor = *runs[r].pairs[i].reference;
      const Difference& difference = runs[r].differences[i];
      if (!is_floating(tensor.dtype)) continue;
      for (const Statistic statistic : kStatistics) {
        if (!is_measured(statistic, difference)) continue;
        StatisticResponses& responses = all[{{tensor.id.kind, tensor.id.name}, statistic}];
        responses.by_run.resize(runs.size());
        if (difference.reference_square == 0) continue;
        const double value = bounded(value_of(statistic, difference));
        if (std::fabs(value) > std::fabs(responses.by_run[r])) responses.by_run[r] = value;
        // A step that did not jump says nothing of how far it does.
        if (value != 0 || !is_changed_by_step(tensor.id.kind)) responses.pool.add(value);
      }
    }
  }
  return all;
}

// Holds what a floor is made of: the largest over a tensor's micro-batches and iterations.
struct Roundings {
  double unit = 0, element = 0;  // of an element, in root mean square, and of the largest
};

std::map<ToleranceKey, Roundings> roundings_of(const RunDifferences& run, const EstimateOptions& options) {
  const std::int64_t terms = most_terms(run);
  std::map<ToleranceKey, Roundings> all;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const LogicalTensor& tensor = *run.pairs[i].reference;
    const Difference& difference = run.differences[i];
    if (!is_floating(tensor.dtype)) continue;
    Roundings& rounding = all[{tensor.id.kind, tensor.id.name}];
    const double unit = rounding_floor(tensor.id.kind, tensor.dtype, options, terms);
    const double step = std::max(epsilon_of(options.compute_dtype), epsilon_of(tensor.dtype));
    const double summed = summing_epsilon(step) * std::sqrt(static_cast<double>(terms) / 12);
    rounding.unit = std::max({rounding.unit, unit, tensor.id.kind == Kind::kParam ? 0 : summed});
    rounding.element = std::max(rounding.element, rounding.unit);
    if (difference.reference_square == 0) continue;
    const double rms = std::sqrt(difference.reference_square / static_cast<double>(difference.elements));
    rounding.element = std::max(rounding.element, rounding.unit * difference.reference_max_abs / rms);
  }
  return all;
}

// Holds what decides a tensor's floors, other than chance and the margin's structure.
struct Floors {
  Roundings rounding;
  double jump = 0;  // of an optimizer's step
  OwnRounding own;
};

double floor_of(Statistic statistic, const Floors& floors, const StoredTensor& tensor, double factor, double margin) {
  const double elements = static_cast<double>(tensor.elements);
  // One element is all of a tensor at most.
  const double element = std::min(floors.rounding.element, floors.rounding.unit * std::sqrt(elements));
  switch (statistic) {
    case Statistic::kScale:
      return std::max({element / std::sqrt(elements), std::pow(margin * floors.jump, 2) / (2 * elements * factor),
                       margin * floors.own.scale / factor});
    case Statistic::kRow:
      return std::max({element, floors.jump / std::sqrt(elements / static_cast<double>(tensor.rows)),
                       margin * floors.own.row / factor});
    case Statistic::kCell:
      return std::max(
          {element, floors.jump / std::sqrt(static_cast<double>(kMostCellElements)), margin * floors.own.row / factor});
    default:
      return std::max({element * kHalfStep, floors.jump, margin * floors.own.element / factor});
  }
}

template <typename Value>
Value value_or_none(const std::map<ToleranceKey, Value>& values, const ToleranceKey& key) {
  const auto found = values.find(key);
  return found == values.end() ? Value() : found->second;
}

// The tensors of the reference that the run was compared with.
StoredTensors stored_in(const RunDifferences& run) {
  StoredTensors stored;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const LogicalTensor& tensor = *run.pairs[i].reference;
    if (!is_floating(tensor.dtype)) continue;
    StoredTensor one = stored_tensor(tensor);
    if (tensor.rows) one.elements = run.differences[i].elements, one.rows = run.differences[i].rows;
    add_stored(tensor.id, one, stored);
  }
  return stored;
}

using GroupKey = std::pair<ToleranceKey, Statistic>;  // with the group for a name

GroupKey group_key(const StatisticKey& key) {
  return {{key.first.first, without_numbers(key.first.second)}, key.second};
}

// Pools what is tested.
std::map<GroupKey, Pool> pooled(const std::map<StatisticKey, StatisticResponses>& all, const StoredTensors& stored) {
  std::map<GroupKey, Pool> groups;
  for (const auto& [key, responses] : all) {
    if (is_tested(key.second, stored.at(key.first))) groups[group_key(key)].add(responses.pool);
  }
  return groups;
}

}  // namespace

bool is_tested(Statistic statistic, const StoredTensor& tensor) {
  if (statistic == Statistic::kNorm || !is_floating(tensor.dtype)) return statistic == Statistic::kNorm;
  return tensor.elements >= kLeastElements && (statistic != Statistic::kRow || tensor.rows >= kLeastRows);
}

double factor_of(Statistic statistic, std::int64_t responses, double margin) {
  if (statistic != Statistic::kScale) return 2 * margin;
  constexpr std::int64_t kMost = 100'000;  // as good as a normal distribution
  const std::int64_t degrees = std::clamp<std::int64_t>(responses, 1, kMost);
  thread_local std::map<std::int64_t, double> known;  // a file has few different ones, each many times
  const auto [found, is_new] = known.try_emplace(degrees);
  if (is_new) found->second = student_quantile(kTestLevel, static_cast<double>(degrees));
  return found->second;
}

namespace {

// Returns, for sketches, what a cell may differ by where the perturbed runs were recorded whole. A cell whose rows, or
// elements, are all as far off as each may be is so far off: nothing else of a cell was measured. In units of a cell of
// the reference's root mean square, a cell has cell_rows rows of `width` elements, or parts of them.
std::optional<JudgedStatistic> measure_cell(const Difference& difference, const Tolerance& tolerance) {
  if (!difference.sketch || tolerance.statistics.contains(Statistic::kCell)) return std::nullopt;
  const SketchMeasure& sketch = *difference.sketch;
  std::optional<double> allowed;
  if (const auto element = tolerance.statistics.find(Statistic::kElement); element != tolerance.statistics.end()) {
    allowed = element->second.allowed;
  }
  if (const auto row = tolerance.statistics.find(Statistic::kRow); row != tolerance.statistics.end()) {
    const double rows =
        static_cast<double>(sketch.cell_rows * sketch.width) / static_cast<double>(sketch.cell_elements);
    const double by_rows = row->second.allowed * std::sqrt(rows);
    allowed = std::min(allowed.value_or(by_rows), by_rows);
  }
  if (!allowed) return std::nullopt;
  return JudgedStatistic{Statistic::kCell, difference.cell_err(), *allowed * sketch.cell_widening};
}

}  // namespace

std::vector<JudgedStatistic> measure_statistics(const Difference& difference, const Tolerance& tolerance) {
  std::vector<JudgedStatistic> judged;
  for (const auto& [statistic, allowed] : tolerance.statistics) {
    JudgedStatistic one{statistic, value_of(statistic, difference), allowed.allowed};
    const double noise = tolerance.estimate > 0 ? tolerance.estimate : tolerance.floor;
    if (statistic == Statistic::kScale) one.allowed *= std::max(1.0, difference.residual_err() / noise);
    if (!is_measured(statistic, difference)) continue;
    if (difference.sketch && statistic == Statistic::kScale) one.allowed += difference.sketch->scale_error;
    judged.push_back(one);
  }
  if (const auto cell = measure_cell(difference, tolerance)) judged.push_back(*cell);
  return judged;
}

void estimate_statistics(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                         const EstimateOptions& options, const OwnRoundings& own_sums, ToleranceFile& file) {
  const std::map<StatisticKey, StatisticResponses> all = statistic_responses_of(perturbed);
  std::map<StatisticKey, StatisticResponses> noise;
  if (rerun != nullptr) noise = statistic_responses_of({rerun, 1});
  const StoredTensors stored = stored_in(perturbed[0]);
  const std::map<ToleranceKey, Roundings> roundings = roundings_of(perturbed[0], options);
  const std::map<GroupKey, Pool> groups = pooled(all, stored);
  const std::map<ToleranceKey, double> jumps = largest_step_jumps(perturbed, options.margin);
  for (const auto& [key, responses] : all) {
    const auto& [tensor, statistic] = key;
    if (!is_tested(statistic, stored.at(tensor))) continue;
    const Pool& group = groups.at(group_key(key));
    StatisticTolerance tolerance;
    tolerance.samples = responses.by_run;
    tolerance.responses = std::max(group.count, static_cast<std::int64_t>(perturbed.size()));
    tolerance.estimate = std::max(responses.pool.size(statistic), group.size(statistic));
    if (const auto own = noise.find(key); own != noise.end()) {
      tolerance.rerun = own->second.by_run[0];
      tolerance.estimate = std::max(tolerance.estimate, own->second.pool.largest);
    }
    const double factor = factor_of(statistic, tolerance.responses, options.margin);
    const Floors floors = {roundings.at(tensor), value_or_none(jumps, tensor), value_or_none(own_sums, tensor)};
    tolerance.floor = floor_of(statistic, floors, stored.at(tensor), factor, options.margin);
    tolerance.allowed = factor * std::max(tolerance.estimate, tolerance.floor);
    file.tensors.at(tensor).statistics.emplace(statistic, std::move(tolerance));
  }
}

}  // namespace ttrace
