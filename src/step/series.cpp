#include "step/series.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace ttrace {
namespace {

// Holds what one rank recorded of a parameter in one iteration.
struct RecordedUpdate {
  std::array<const Entry*, kKindLast + 1> entries{};
  const OptimizerStep* step = nullptr;
  bool in_two_optimizers = false;

  const Entry* of(Kind kind) const { return entries[static_cast<std::size_t>(kind)]; }
};

// The elements [begin, end) of the flattened tensor that an entry is a part of.
struct FlatRange {
  std::int64_t begin = 0, end = 0;
};

FlatRange range_of(const Entry& entry) {
  if (entry.mapping && entry.mapping->fragment && entry.mapping->fragment->range) {
    return {entry.mapping->fragment->range->begin, entry.mapping->fragment->range->end};
  }
  return {0, element_count(entry.shape)};
}

constexpr std::string_view kTerm = "its gradient is a term of a sum that the optimizer makes";

// True where the program says that the rank's values are added to other ranks': a DTensor whose placement is partial.
bool is_term(const Entry& entry) {
  if (!entry.mapping || !entry.mapping->axes) return false;
  return std::any_of(entry.mapping->axes->begin(), entry.mapping->axes->end(), [](const RecordedMapping::Axis& axis) {
    return axis.placement.placement == Placement::kPartial && axis.size > 1;
  });
}

// Finds in `entry` the elements of `delta`: it has the same, or more of the same flattened tensor.
StepOperand operand(const RankTrace& rank, const Entry* entry, const Entry& delta) {
  if (entry == nullptr || !is_floating(entry->dtype) || entry->sketch) return {};
  const bool same_part = (entry->mapping && entry->mapping->fragment) == (delta.mapping && delta.mapping->fragment) &&
                         element_count(entry->shape) == element_count(delta.shape);
  if (same_part) return {entry, rank.bytes_of(*entry)};
  const FlatRange own = range_of(*entry), wanted = range_of(delta);
  const bool is_range = delta.mapping && delta.mapping->fragment && delta.mapping->fragment->range;
  if (!is_range || own.begin > wanted.begin || own.end < wanted.end) return {};
  return {entry, rank.bytes_of(*entry) + (wanted.begin - own.begin) * size_of(entry->dtype)};
}

// Tells, iteration after iteration, how a parameter's updates can be computed again.
class Planner {
 public:
  explicit Planner(const RankTrace& rank) : rank_(rank) {}

  // `whole`: elements of the logical parameter.
  RankUpdate plan(std::int32_t iteration, const RecordedUpdate& recorded, std::int64_t whole) {
    RankUpdate update;
    update.iteration = iteration;
    update.step = recorded.step;
    const Entry& delta = *recorded.of(Kind::kParamDelta);
    update.delta = {&delta, rank_.bytes_of(delta)};
    const bool follows = iteration == last_iteration_ + 1;
    last_iteration_ = iteration;
    update.reason = problem_with(recorded, update);
    if (steps_once(recorded)) {
      const std::string problem = find_value(recorded, delta, follows, update);
      update.has_value = problem.empty();
      if (update.reason.empty()) update.reason = problem;
    }
    if (update.reason.empty()) update.reason = problem_with_whole(delta, whole, update);
    if (update.reason.empty()) update.reason = find_gradient(recorded, delta, update);
    if (update.reason.empty()) update.reason = find_state(recorded, delta, follows, update);
    value_is_known_ = update.has_value && update.source != BeforeStep::kRounded;
    rolled_ = update.reason.empty() ? update.rolled : kUnknown;
    if (update.reason.empty() && update.step->step) last_count_ = *update.step->step;
    return update;
  }

 private:
  static constexpr std::int64_t kNoneYet = -2, kUnknown = -1;

  // True where one optimizer made the update, in one step or none.
  static bool steps_once(const RecordedUpdate& recorded) {
    return recorded.step != nullptr && !recorded.in_two_optimizers && !recorded.step->optimizer.empty() &&
           recorded.step->calls <= 1;
  }

  std::string problem_with(const RecordedUpdate& recorded, RankUpdate& update) const {
    if (recorded.in_two_optimizers) return "two optimizers have it";
    if (recorded.step == nullptr) return "its optimizer was not recorded";
    if (recorded.step->optimizer.empty()) return "it is in no optimizer";
    const RuleOrReason found = rule_of(*recorded.step);
    if (!found.rule) return found.reason;
    update.rule = *found.rule;
    update.skipped = recorded.step->calls == 0;
    if (recorded.step->calls > 1) {
      return fmt::format("its optimizer stepped {} times in the iteration", recorded.step->calls);
    }
    return "";
  }

  // Finds the value that is updated, and the parameter that it is copied to.
  std::string find_value(const RecordedUpdate& recorded, const Entry& delta, bool follows, RankUpdate& update) const {
    const std::string& master = recorded.step->master;
    const StepOperand parameter = operand(rank_, recorded.of(Kind::kParam), delta);
    update.after = operand(rank_, recorded.of(Kind::kParamAfter), delta);
    if (master.empty()) {
      update.before = parameter;
      if (!parameter) return "the parameter before the step was not recorded";
      update.updated = parameter.entry->dtype;
      return "";
    }
    const std::optional<Dtype> dtype = dtype_from_name(master);
    if (!dtype || !is_floating(*dtype)) return fmt::format("its master is {}", printable(master));
    update.updated = *dtype;
    update.before = operand(rank_, recorded.of(Kind::kMaster), delta);
    if (update.before) return "";
    update.source = follows && value_is_known_ ? BeforeStep::kCarried : BeforeStep::kRounded;
    update.before = parameter;
    if (!parameter && update.source == BeforeStep::kRounded) return "the parameter before the step was not recorded";
    return "";
  }

  // Finds the dimensions whose means Adafactor takes, which are those of the whole tensor.
  static std::string problem_with_whole(const Entry& delta, std::int64_t whole, RankUpdate& update) {
    UpdateRule& rule = update.rule;
    if (rule.family != UpdateFamily::kAdafactor) return "";
    if (epsilon_of(update.updated) > epsilon_of(Dtype::kFloat32)) {
      return fmt::format("how {} rounds in {} is not known", printable(update.step->optimizer),
                         name_of(update.updated));
    }
    const bool is_flat = delta.mapping && delta.mapping->fragment;
    if (is_flat || element_count(delta.shape) != whole) {
      return "its rank has a part of it, and the rule of its optimizer follows from the whole";
    }
    if (update.source == BeforeStep::kRounded) return "the value that its optimizer updates was not recorded";
    const auto dims = static_cast<std::int64_t>(delta.shape.size());
    if (rule.averages_last_dims && dims > 1) rule.row_mean_dim = dims - 1, rule.column_mean_dim = dims - 2;
    if (rule.floor < 0) rule.floor = epsilon_of(update.updated);
    const bool are_there = rule.row_mean_dim < dims && rule.column_mean_dim < dims && rule.column_mean_dim >= 0 &&
                           rule.row_mean_dim != rule.column_mean_dim;
    return !rule.is_factored() || are_there ? "" : "its optimizer's options name dimensions that it does not have";
  }

  std::string find_gradient(const RecordedUpdate& recorded, const Entry& delta, RankUpdate& update) const {
    if (update.skipped) return "";
    update.gradient = operand(rank_, recorded.of(Kind::kStepGrad), delta);
    if (update.gradient) {
      update.rests_on.push_back(Kind::kStepGrad);
      return is_term(*update.gradient.entry) ? std::string(kTerm) : "";
    }
    if (recorded.of(Kind::kMainGrad) == nullptr) return "its main_grad was not recorded";
    update.gradient = operand(rank_, recorded.of(Kind::kMainGrad), delta);
    if (!update.gradient) return "its main_grad and its param_delta are not of the same elements";
    if (is_term(*update.gradient.entry)) return std::string(kTerm);
    if (!recorded.step->clip_factor) return "the gradient that its optimizer was given was not recorded";
    update.clip_factor = *recorded.step->clip_factor;
    update.rests_on.push_back(Kind::kMainGrad);
    return "";
  }

  std::string find_state(const RecordedUpdate& recorded, const Entry& delta, bool follows, RankUpdate& update) const {
    if (!update.rule.has_state()) {
      update.count = recorded.step->step.value_or(1);
      return count_is_missing(recorded, update) ? std::string(kNoCount) : "";
    }
    const bool loaded = find_recorded_state(recorded, delta, update);
    if (update.skipped) {  // the state stays as it is
      update.rolled = loaded ? 0 : follows || rolled_ == kNoneYet ? rolled_ : kUnknown;
      return "";
    }
    if (count_is_missing(recorded, update)) return std::string(kNoCount);
    update.count = recorded.step->step.value_or(1);
    const bool is_counted = update.rule.family != UpdateFamily::kSgd;
    const bool goes_on = follows && rolled_ >= 0 && (!is_counted || update.count == last_count_ + 1);
    // PyTorch's SGD counts no steps; a buffer that was not recorded where recording began was not there yet.
    const bool first = recorded.step->step ? update.count == 1 : rolled_ == kNoneYet;
    update.rolled = goes_on && !loaded ? rolled_ + 1 : 1;
    update.state_is_zero = first && !loaded && !goes_on;
    return loaded || goes_on || first ? "" : "its optimizer's state before the step was not recorded";
  }

  static constexpr std::string_view kNoCount = "the count of its optimizer's steps was not recorded";

  static bool count_is_missing(const RecordedUpdate& recorded, const RankUpdate& update) {
    return update.rule.family != UpdateFamily::kSgd && !recorded.step->step;
  }

  // By their places in RankUpdate::state.
  static std::array<std::optional<Kind>, 3> kinds_of_state(const UpdateRule& rule) {
    std::array<std::optional<Kind>, 3> kinds;
    switch (rule.family) {
      case UpdateFamily::kAdam:
        kinds = {Kind::kExpAvg, Kind::kExpAvgSq, std::nullopt};
        if (rule.amsgrad) kinds[2] = Kind::kMaxExpAvgSq;
        break;
      case UpdateFamily::kSgd:
        kinds[0] = Kind::kMomentumBuffer;
        break;
      case UpdateFamily::kLion:
        kinds[0] = Kind::kExpAvg;
        break;
      case UpdateFamily::kAdafactor:
        if (rule.beta1 != 0) kinds[0] = Kind::kExpAvg;
        kinds[1] = Kind::kExpAvgSq;
        break;
    }
    return kinds;
  }

  bool find_recorded_state(const RecordedUpdate& recorded, const Entry& delta, RankUpdate& update) const {
    const std::array<std::optional<Kind>, 3> kinds = kinds_of_state(update.rule);
    bool all = true;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      if (!kinds[i]) continue;
      update.state[i] = operand(rank_, recorded.of(*kinds[i]), delta);
      all = all && update.state[i];
    }
    if (all) {
      for (const std::optional<Kind>& kind : kinds) {
        if (kind) update.rests_on.push_back(*kind);
      }
    } else {
      std::fill(std::begin(update.state), std::end(update.state), StepOperand{});
    }
    return all;
  }

  const RankTrace& rank_;
  std::int32_t last_iteration_ = -2;
  bool value_is_known_ = false;
  std::int64_t rolled_ = kNoneYet;  // steps since the optimizer's state was known
  double last_count_ = 0;
};

using LocalName = std::pair<std::int32_t, std::string>;  // chunk and name
using Recorded = std::map<LocalName, std::map<std::int32_t, RecordedUpdate>>;

Recorded recorded_by(const RankTrace& rank) {
  Recorded recorded;
  for (const Entry& entry : rank.entries) {
    const bool is_used = is_parameter_kind(entry.id.kind) && entry.id.kind != Kind::kParamGrad;
    if (!is_used || is_buffer_kind(entry.id.kind) || entry.id.pass != Pass::kForward) continue;
    const Entry*& known =
        recorded[{entry.id.chunk, entry.id.name}][entry.id.iteration].entries[static_cast<std::size_t>(entry.id.kind)];
    if (known == nullptr) known = &entry;
  }
  for (const OptimizerStep& step : rank.optimizer_steps) {
    for (const std::string& name : step.parameters) {
      const auto found = recorded.find({step.chunk, name});
      if (found == recorded.end()) continue;
      RecordedUpdate& update = found->second[step.iteration];
      update.in_two_optimizers = update.in_two_optimizers || update.step != nullptr;
      update.step = &step;
    }
  }
  return recorded;
}

// Returns how many the logical parameter has; 0 where it is in part missing.
std::int64_t elements_of(const Alignment& alignment, std::int32_t iteration, const std::string& name) {
  TensorId id;
  id.iteration = iteration;
  id.kind = Kind::kParamDelta;
  id.name = name;
  const auto found = alignment.tensors.find(id);
  return found == alignment.tensors.end() ? 0 : element_count(found->second.shape);
}

}  // namespace

ParameterNames parameter_names(const Alignment& alignment) {
  ParameterNames names;
  std::set<std::pair<std::string, Kind>> looked_at;  // every iteration has the same
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind != Kind::kParam && id.kind != Kind::kParamDelta && id.kind != Kind::kParamAfter) continue;
    if (!looked_at.emplace(id.name, id.kind).second) continue;
    for (const Piece& piece : tensor.pieces()) {
      names.try_emplace({piece.rank, piece.entry->id.chunk, piece.entry->id.name}, id.name);
    }
  }
  return names;
}

std::vector<ParameterSeries> find_series(const Trace& trace, const Alignment& alignment) {
  const ParameterNames names = parameter_names(alignment);
  std::vector<ParameterSeries> all;
  std::set<std::int32_t> seen;
  for (const RankTrace& rank : trace.ranks) {
    if (!seen.insert(rank.rank).second) continue;
    for (const auto& [local, iterations] : recorded_by(rank)) {
      const auto name = names.find({rank.rank, local.first, local.second});
      if (name == names.end()) continue;
      ParameterSeries series{&rank, local.first, name->second, {}, 0};
      Planner planner(rank);
      for (const auto& [iteration, recorded] : iterations) {
        const Entry* delta = recorded.of(Kind::kParamDelta);
        const Entry* parameter = recorded.of(Kind::kParam);
        if (delta == nullptr || !is_floating(delta->dtype) || rank.light.contains(iteration)) continue;
        if (parameter != nullptr && !is_floating(parameter->dtype)) continue;  // integers have no gradient to follow
        const std::int64_t elements = element_count(delta->shape);
        if (elements == 0) continue;
        RankUpdate update;
        if (delta->sketch) {
          update.iteration = iteration;
          update.step = recorded.step;
          update.reason = "it was recorded as a sketch";
        } else {
          update = planner.plan(iteration, recorded, elements_of(alignment, iteration, name->second));
        }
        if (series.updates.empty()) series.elements = elements;
        if (elements != series.elements) {
          update.reason = "its part of the parameter changes between iterations";
          update.has_value = false;
        }
        series.updates.push_back(std::move(update));
      }
      if (!series.updates.empty()) all.push_back(std::move(series));
    }
  }
  return all;
}

}  // namespace ttrace
