// A perturbation of the first activation moves what that activation feeds. It does not move a second embedding, a
// vision tower, or what comes after a detach. There the runs measure zero, and a tensor is held to its floor of one
// rounding step or so, however many steps its branch rounds in. That is too little, and only a note shows the reason.
//
// A branch begins at the topmost module none of whose outputs moved, with those of the modules inside it. An
// activation's gradient may rightly be a constant (that of a mean is 1 / n), so only the gradients of parameters get a
// note.
#include "tolerance/reach.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/tensor_name.h"
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

}  // namespace

std::vector<std::string> note_unreached(std::span<const RunDifferences> perturbed, const EstimateOptions& options) {
  const std::map<ToleranceKey, Movement> movements = collect_movements(perturbed);
  const std::string remedy = options.estimator == Estimator::kInput ? "; --estimator modules perturbs it too" : "";
  // Says what such a tensor may differ by.
  const std::string steps =
      fmt::format("{:.2g} rounding steps of {}",
                  options.margin * rounding_of_sums(options.compute_dtype, options.margin, most_terms(perturbed[0])) /
                      epsilon_of(options.compute_dtype),
                  name_of(options.compute_dtype));
  std::vector<std::string> notes;
  for (const std::string& branch : unmoved_branches(movements)) {
    const auto count = std::count_if(movements.begin(), movements.end(), [&](const auto& item) {
      const std::string_view path = TensorName(item.first.second).path;
      return item.first.first == Kind::kOutput && (path == branch || is_inside(path, branch)) &&
             never_moved(item.second);
    });
    notes.push_back(
        fmt::format("no perturbed run moved {}: it is not fed by what was perturbed, and {} of its outputs may differ "
                    "by no more than {}{}",
                    printable(branch), count, steps, remedy));
  }
  std::vector<std::string> parameters;
  for (const auto& [key, movement] : movements) {
    const bool is_gradient = key.first == Kind::kParamGrad || key.first == Kind::kMainGrad;
    if (is_gradient && never_moved(movement)) parameters.push_back(printable(key.second));
  }
  std::sort(parameters.begin(), parameters.end());
  parameters.erase(std::unique(parameters.begin(), parameters.end()), parameters.end());
  if (!parameters.empty()) {
    notes.push_back(
        fmt::format("no perturbed run moved the gradient of {}{}: it may differ by no more than {}", parameters[0],
                    parameters.size() == 1 ? "" : fmt::format(" (and {} more)", parameters.size() - 1), steps));
  }
  return notes;
}

}  // namespace ttrace
