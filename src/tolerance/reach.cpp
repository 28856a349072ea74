// A perturbation of the first activation moves what that activation feeds. It does not move a second embedding, a
// vision tower, a second resolution that a backbone is called with, or what comes after a detach. There the runs measure
// zero, and the floor of one rounding step or so is too little for what is many steps deep. What holds without
// perturbed runs, `-t default`, holds there: allowed is no less than that.
//
// A branch begins at the topmost module none of whose outputs moved, with those of the modules inside it. An
// activation's gradient may rightly be a constant (that of a mean is 1 / n), so only the gradients of parameters get a
// note.
#include "tolerance/reach.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/tensor_name.h"
#include "tolerance/default_tolerance.h"
#include "tolerance/floors.h"

namespace ttrace {
namespace {

// Sums up the tensors of one kind and name, over all runs.
struct Movement {
  bool moved = false;  // some run moved one of them
  bool zero = true;    // all are zero in the reference

  void add(const Movement& other) {
    moved |= other.moved;
    zero &= other.zero;
  }
};

bool never_moved(const Movement& movement) { return !movement.moved && !movement.zero; }

std::map<ToleranceKey, Movement> collect_movements(std::span<const RunDifferences> perturbed) {
  std::map<ToleranceKey, Movement> movements;
  for (const RunDifferences& run : perturbed) {
    for (std::size_t i = 0; i < run.pairs.size(); ++i) {
      const LogicalTensor& tensor = *run.pairs[i].reference;
      if (!is_floating(tensor.dtype)) continue;
      const Difference& difference = run.differences[i];
      movements[{tensor.id.kind, tensor.id.name}].add({difference.differing > 0, difference.reference_square == 0});
    }
  }
  return movements;
}

// Returns the topmost modules that no run moved. `modules` is sorted, so that a module comes before those inside it.
std::vector<std::string> unmoved_branches(const std::map<ToleranceKey, Movement>& movements) {
  std::map<std::string, Movement> outputs;  // of each module by itself
  for (const auto& [key, movement] : movements) {
    if (key.first == Kind::kOutput) outputs[std::string(TensorName(key.second).path)].add(movement);
  }
  std::map<std::string, Movement> modules = outputs;  // of each module and those inside it
  for (const auto& [path, movement] : outputs) {
    for (std::string_view around = path; around != kRootModule;) {
      around = owner_of(around);
      if (const auto module = modules.find(std::string(around)); module != modules.end()) module->second.add(movement);
    }
  }
  std::vector<std::string> branches;
  for (const auto& [path, movement] : modules) {
    const bool inside = std::any_of(branches.begin(), branches.end(),
                                    [&, &inner = path](const auto& branch) { return is_inside(inner, branch); });
    if (!inside && never_moved(movement)) branches.push_back(path);
  }
  return branches;
}

// Returns the part of the reference that the run has, of the first iteration.
Alignment reference_of(const RunDifferences& run) {
  std::int32_t first = std::numeric_limits<std::int32_t>::max();
  for (const TensorPair& pair : run.pairs) first = std::min(first, pair.reference->id.iteration);
  Alignment reference;
  for (const TensorPair& pair : run.pairs) {
    if (pair.reference->id.iteration == first) reference.tensors.emplace(pair.reference->id, *pair.reference);
  }
  return reference;
}

// Holds the outputs that no run moved, by call, and the modules none of whose outputs moved.
struct Unmoved {
  std::set<std::string> outputs, modules;

  explicit Unmoved(const std::map<ToleranceKey, Movement>& movements) {
    std::map<std::string, Movement> of_module;
    for (const auto& [key, movement] : movements) {
      if (key.first != Kind::kOutput) continue;
      if (never_moved(movement)) outputs.insert(key.second);
      of_module[std::string(TensorName(key.second).path)].add(movement);
    }
    for (const auto& [path, movement] : of_module) {
      if (never_moved(movement)) modules.insert(path);
    }
  }

  bool has(const ToleranceKey& key, const Movement& movement) const {
    if (!may_be_unreached(key.first) || !never_moved(movement)) return false;
    if (key.first == Kind::kInput || key.first == Kind::kOutput) return true;
    const bool is_of_call = key.first == Kind::kGradInput || key.first == Kind::kGradOutput;
    return is_of_call ? outputs.contains(key.second) : modules.contains(std::string(owner_of(key.second)));
  }
};

}  // namespace

bool may_be_unreached(Kind kind) {
  return kind == Kind::kInput || kind == Kind::kOutput || kind == Kind::kGradInput || kind == Kind::kGradOutput ||
         kind == Kind::kParamGrad || kind == Kind::kMainGrad;
}

OwnRoundings roundings_of_unreached(std::span<const RunDifferences> perturbed, const EstimateOptions& options) {
  const std::map<ToleranceKey, Movement> movements = collect_movements(perturbed);
  const Unmoved unmoved(movements);
  OwnRoundings roundings;
  if (unmoved.outputs.empty()) return roundings;
  const ToleranceFile closed_form =
      default_tolerances(reference_of(perturbed[0]), std::string(name_of(options.compute_dtype)));
  for (const auto& [key, movement] : movements) {
    const auto found = closed_form.tensors.find(key);
    if (found == closed_form.tensors.end() || !unmoved.has(key, movement)) continue;
    const double norm = found->second.allowed / options.margin;
    // Of so many elements the largest has five times the root mean square with a probability of one in a million.
    roundings[key] = {norm, norm, 5 * norm, 5 * norm};
  }
  return roundings;
}

std::vector<std::string> note_unreached(std::span<const RunDifferences> perturbed, const EstimateOptions& options) {
  const std::map<ToleranceKey, Movement> movements = collect_movements(perturbed);
  const Unmoved unmoved(movements);
  const std::string remedy = options.estimator == Estimator::kInput ? "; --estimator modules perturbs it too" : "";
  std::vector<std::string> notes;
  for (const std::string& branch : unmoved_branches(movements)) {
    const auto count = std::count_if(movements.begin(), movements.end(), [&](const auto& item) {
      const std::string_view path = TensorName(item.first.second).path;
      return item.first.first == Kind::kOutput && (path == branch || is_inside(path, branch)) &&
             never_moved(item.second);
    });
    notes.push_back(
        fmt::format("no perturbed run moved {}: it is not fed by what was perturbed, and {} of its outputs may differ "
                    "by what `-t default` allows{}",
                    printable(branch), count, remedy));
  }
  std::vector<std::string> parameters;
  for (const auto& [key, movement] : movements) {
    const bool is_gradient = key.first == Kind::kParamGrad || key.first == Kind::kMainGrad;
    if (is_gradient && never_moved(movement) && !unmoved.has(key, movement))
      parameters.push_back(printable(key.second));
  }
  std::sort(parameters.begin(), parameters.end());
  parameters.erase(std::unique(parameters.begin(), parameters.end()), parameters.end());
  if (!parameters.empty()) {
    const double floor = rounding_of_sums(options.compute_dtype, options.margin, most_terms(perturbed[0]));
    notes.push_back(fmt::format(
        "no perturbed run moved the gradient of {}{}: it may differ by no more than {:.2g} rounding steps of {}",
        parameters[0], parameters.size() == 1 ? "" : fmt::format(" (and {} more)", parameters.size() - 1),
        options.margin * floor / epsilon_of(options.compute_dtype), name_of(options.compute_dtype)));
  }
  return notes;
}

}  // namespace ttrace
