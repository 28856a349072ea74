// Tiles of a parameter are read iteration after iteration, so that an element's place in S is known from the gradients
// before without keeping a mark for each. All threads sum up tiles; the results are added in order.
#include "step/regression.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "base/parallel_for.h"
#include "compare/box_reader.h"
#include "compare/kernel.h"
#include "compare/tile.h"
#include "merge/overlay.h"

namespace ttrace {
namespace {

constexpr double kAboveRounding = 4;
constexpr std::int64_t kRegressedTile = 64 << 10;                    // elements that one thread sums up in one go
constexpr std::uint64_t kRegressedBytes = std::uint64_t{512} << 20;  // that are read before their pages are released

// Holds what one iteration has of a parameter, as indices into the pairs; -1: nothing.
struct IterationPairs {
  std::ptrdiff_t main_grad = -1, step_grad = -1, delta = -1, parameter = -1;

  std::ptrdiff_t gradient() const { return main_grad >= 0 ? main_grad : step_grad; }
};
using ParameterPairs = std::map<std::int32_t, IterationPairs>;

std::map<std::string, ParameterPairs> find_parameters(std::span<const TensorPair> pairs) {
  std::map<std::string, ParameterPairs> parameters;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const TensorId& id = pairs[i].candidate->id;
    if (!is_parameter_kind(id.kind) || is_buffer_kind(id.kind) || !is_floating(pairs[i].reference->dtype)) continue;
    if (!is_floating(pairs[i].candidate->dtype)) continue;
    const auto place = static_cast<std::ptrdiff_t>(i);
    IterationPairs& found = parameters[id.name][id.iteration];
    if (id.kind == Kind::kMainGrad) found.main_grad = place;
    if (id.kind == Kind::kStepGrad) found.step_grad = place;
    if (id.kind == Kind::kParamDelta) found.delta = place;
    if (id.kind == Kind::kParam) found.parameter = place;
  }
  return parameters;
}

// One iteration of a parameter that is regressed.
struct RegressedIteration {
  double threshold = 0;  // of the gradients
  Overlay gradient, delta, parameter;
  std::ptrdiff_t result = -1;  // index among the results; -1: only its gradient counts
  bool has_parameter = false;
};

struct RegressedParameter {
  Shape shape;
  std::vector<RegressedIteration> iterations;

  std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(element_count(shape)) * 24 * static_cast<std::uint64_t>(iterations.size());
  }
};

struct SideValues {
  std::vector<double> reference, candidate;
};

// Returns how many elements lie next to each other, in the box and in the tile around it.
std::int64_t common_run(const Box& box, const Box& tile) {
  std::int64_t run = 1;
  for (std::size_t d = box.size.size(); d-- > 0;) {
    run *= box.size[d];
    if (box.size[d] != tile.size[d]) break;
  }
  return run;
}

// Reads the tile's elements in row-major order.
void read_tile(const Overlay& overlay, const Box& tile, SideValues& values) {
  const Shape strides = row_major_strides(tile.size);
  for (const OverlayBox& whole : overlay.boxes) {
    const auto box = clip(whole, tile);
    if (!box) continue;
    const BoxReader reader(*box);
    const std::int64_t run = common_run(box->logical, tile);
    for (std::int64_t position = 0, count = 0; position < reader.elements(); position += count) {
      count = std::min(kBlockElements, run - position % run);
      const Shape index = index_at(position, box->logical.size);
      std::int64_t to = 0;
      for (std::size_t d = 0; d < index.size(); ++d) {
        to += (box->logical.start[d] - tile.start[d] + index[d]) * strides[d];
      }
      reader.gather_sum(0, reader.reference_terms(), overlay.reference_scale, position, count,
                        values.reference.data() + to);
      reader.gather_sum(reader.reference_terms(), reader.terms(), overlay.candidate_scale, position, count,
                        values.candidate.data() + to);
    }
  }
}

void mark_above(const SideValues& gradient, double threshold, std::vector<std::uint8_t>& above) {
  for (std::size_t i = 0; i < above.size(); ++i) {
    const double reference = std::abs(gradient.reference[i]), candidate = std::abs(gradient.candidate[i]);
    const bool is_above = reference > threshold && candidate > threshold && std::isfinite(reference + candidate);
    above[i] = above[i] != 0 && is_above ? 1 : 0;
  }
}

// The largest power of two up to a normal number.
double power_of_two(double value) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & 0x7ff0000000000000u);
}

bool is_reversed(double reference, double candidate) {
  return reference * candidate < 0 && std::abs(candidate) <= 2 * std::abs(reference) &&
         std::abs(reference) <= 2 * std::abs(candidate);
}

UpdateSums sum_up(const SideValues& delta, const std::vector<double>& parameter,
                  const std::vector<std::uint8_t>& above) {
  UpdateSums sums;
  for (std::size_t i = 0; i < above.size(); ++i) {
    const double d = delta.reference[i], candidate = delta.candidate[i], p = parameter[i];
    if (!std::isfinite(d + candidate + p)) {
      ++sums.not_finite;
      continue;
    }
    sums.reference_square += d * d;
    sums.candidate_square += candidate * candidate;
    const double unit = p == 0 ? 0 : power_of_two(std::abs(p) + std::abs(d));
    sums.all_units = std::max(sums.all_units, std::abs(d) * unit);
    const bool moved = d != 0, still = moved && candidate == 0;
    sums.moved += moved;
    sums.still += still;
    if (above[i] == 0) continue;
    const double e = candidate - d;
    ++sums.above;
    sums.dd += d * d;
    sums.de += d * e;
    sums.ee += e * e;
    sums.dp += d * p;
    sums.pp += p * p;
    sums.pe += p * e;
    sums.d_units = std::max(sums.d_units, std::abs(d) * unit);
    sums.p_units = std::max(sums.p_units, std::abs(p) * unit);
    if (is_reversed(d, candidate)) {
      ++sums.reversed;
      sums.reversed_dd += d * d;
      sums.reversed_de += d * e;
    }
    sums.moved_above += moved;
    sums.still_above += still;
  }
  return sums;
}

// Returns the sums of each iteration that has a result, in order.
std::vector<UpdateSums> sum_up_tile(const RegressedParameter& parameter, const Box& tile) {
  const auto elements = static_cast<std::size_t>(element_count(tile.size));
  std::vector<std::uint8_t> above(elements, 1);
  SideValues values{std::vector<double>(elements), std::vector<double>(elements)}, before = values;
  std::vector<UpdateSums> sums;
  for (const RegressedIteration& iteration : parameter.iterations) {
    read_tile(iteration.gradient, tile, values);
    mark_above(values, iteration.threshold, above);
    if (iteration.result < 0) continue;
    if (iteration.has_parameter) read_tile(iteration.parameter, tile, before);
    read_tile(iteration.delta, tile, values);
    sums.push_back(sum_up(values, before.reference, above));
  }
  return sums;
}

void release(const Overlay& overlay) {
  for (const OverlayBox& box : overlay.boxes) {
    for (const std::vector<StridedTerm>* terms : {&box.reference, &box.candidate}) {
      for (const StridedTerm& term : *terms) {
        if (term.file == nullptr || term.entry == nullptr) continue;
        term.file->release(term.data - term.offset * size_of(term.dtype), term.entry->bytes);
      }
    }
  }
}

class Regression {
 public:
  Regression(std::span<const TensorPair> pairs, std::span<const Difference> differences, int threads)
      : pairs_(pairs), differences_(differences), threads_(threads) {}

  // Plans the wanted updates of one parameter, and sums them up with others'.
  void add(const ParameterPairs& iterations, const std::set<TensorId>& wanted) {
    RegressedParameter parameter;
    std::string reason;
    std::size_t needed = 0;  // iterations up to the last that is wanted
    for (const auto& [number, found] : iterations) {
      parameter.iterations.push_back(plan(found, parameter, reason));
      const bool is_wanted = found.delta >= 0 && wanted.contains(pair(found.delta).candidate->id);
      if (!is_wanted) continue;
      results_.push_back({pair(found.delta).candidate->id, reason, {}});
      if (!reason.empty()) continue;
      parameter.iterations.back().result = static_cast<std::ptrdiff_t>(results_.size()) - 1;
      needed = parameter.iterations.size();
    }
    parameter.iterations.resize(needed);
    if (needed == 0 || element_count(parameter.shape) == 0) return;
    planned_bytes_ += parameter.bytes();
    planned_.push_back(std::move(parameter));
    if (planned_bytes_ >= kRegressedBytes) sum_up_planned();
  }

  std::vector<RegressedUpdate> finish() {
    sum_up_planned();
    for (RegressedUpdate& update : results_) {
      if (update.reason.empty() && update.sums.not_finite > 0) update.reason = "its update is not finite";
    }
    std::sort(results_.begin(), results_.end(),
              [](const RegressedUpdate& a, const RegressedUpdate& b) { return a.id < b.id; });
    return std::move(results_);
  }

 private:
  struct Task {
    std::size_t parameter;
    Box tile;
    std::vector<UpdateSums> sums;
  };

  const TensorPair& pair(std::ptrdiff_t place) const { return pairs_[static_cast<std::size_t>(place)]; }

  Overlay overlay_of(std::ptrdiff_t place) const {
    Overlay made = overlay(*pair(place).reference, *pair(place).candidate);
    made.candidate_replicas.clear();
    made.reference_replicas.clear();
    return made;
  }

  // Sets `reason`, for this iteration and those after it, where there is no gradient to tell what is above rounding.
  RegressedIteration plan(const IterationPairs& found, RegressedParameter& parameter, std::string& reason) const {
    RegressedIteration planned;
    const std::ptrdiff_t gradient = found.gradient();
    if (reason.empty() && gradient < 0) reason = "its main_grad was not recorded in every iteration";
    for (const std::ptrdiff_t place : {gradient, found.delta, found.parameter}) {
      const bool is_sketched = place >= 0 && (pair(place).reference->sketched || pair(place).candidate->sketched);
      if (is_sketched && reason.empty()) reason = "it, its gradient or its parameter was recorded as a sketch";
    }
    if (!reason.empty()) return planned;
    const Shape& shape = pair(gradient).reference->shape;
    if (parameter.iterations.empty()) parameter.shape = shape;
    for (const std::ptrdiff_t place : {gradient, found.delta, found.parameter}) {
      if (place >= 0 && pair(place).reference->shape != parameter.shape) {
        reason = "its gradient and its update differ in shape";
        return planned;
      }
    }
    const Difference& difference = differences_[static_cast<std::size_t>(gradient)];
    const double elements = std::max(static_cast<double>(difference.elements), 1.0);
    planned.threshold = kAboveRounding * std::sqrt(difference.difference_square / elements);
    planned.gradient = overlay_of(gradient);
    if (found.delta >= 0) planned.delta = overlay_of(found.delta);
    planned.has_parameter = found.parameter >= 0;
    if (planned.has_parameter) planned.parameter = overlay_of(found.parameter);
    return planned;
  }

  void sum_up_planned() {
    std::vector<Task> tasks;
    for (std::size_t i = 0; i < planned_.size(); ++i) {
      for (Box& tile : tiles_of(planned_[i].shape, kRegressedTile)) tasks.push_back({i, std::move(tile), {}});
    }
    parallel_for(tasks.size(), threads_,
                 [&](std::size_t i) { tasks[i].sums = sum_up_tile(planned_[tasks[i].parameter], tasks[i].tile); });
    for (const Task& task : tasks) {
      std::size_t next = 0;
      for (const RegressedIteration& iteration : planned_[task.parameter].iterations) {
        if (iteration.result >= 0) results_[static_cast<std::size_t>(iteration.result)].sums.add(task.sums[next++]);
      }
    }
    for (const RegressedParameter& parameter : planned_) {
      for (const RegressedIteration& iteration : parameter.iterations) {
        for (const Overlay* read : {&iteration.gradient, &iteration.delta, &iteration.parameter}) release(*read);
      }
    }
    planned_.clear();
    planned_bytes_ = 0;
  }

  std::span<const TensorPair> pairs_;
  std::span<const Difference> differences_;
  int threads_;
  std::vector<RegressedParameter> planned_;
  std::uint64_t planned_bytes_ = 0;
  std::vector<RegressedUpdate> results_;
};

}  // namespace

void UpdateSums::add(const UpdateSums& other) {
  above += other.above;
  dd += other.dd;
  de += other.de;
  ee += other.ee;
  dp += other.dp;
  pp += other.pp;
  pe += other.pe;
  d_units = std::max(d_units, other.d_units);
  p_units = std::max(p_units, other.p_units);
  all_units = std::max(all_units, other.all_units);
  reversed += other.reversed;
  reversed_dd += other.reversed_dd;
  reversed_de += other.reversed_de;
  moved_above += other.moved_above;
  still_above += other.still_above;
  moved += other.moved;
  still += other.still;
  reference_square += other.reference_square;
  candidate_square += other.candidate_square;
  not_finite += other.not_finite;
}

std::vector<RegressedUpdate> regress_updates(std::span<const TensorPair> pairs, std::span<const Difference> differences,
                                             const std::set<TensorId>& wanted, int threads) {
  Regression regression(pairs, differences, threads);
  if (!wanted.empty()) {
    for (const auto& [name, iterations] : find_parameters(pairs)) regression.add(iterations, wanted);
  }
  return regression.finish();
}

}  // namespace ttrace
