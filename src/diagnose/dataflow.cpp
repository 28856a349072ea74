#include "ttrace/diagnose/dataflow.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

enum class Step { kForward, kRecompute, kBackward };

// A module in a step: iteration, micro-batch, chunk, step, path.
using ModuleKey = std::tuple<std::int32_t, std::int32_t, std::int32_t, Step, std::string>;
// A tensor of a parameter: iteration, chunk, name.
using ParameterKey = std::tuple<std::int32_t, std::int32_t, std::string>;

// What a tensor was computed from, as far as it was seen.
struct Sources {
  bool any = false;
  std::size_t first_root = kNone;  // the earliest root of those that are wrong
  double worst_ratio = 0;          // of all

  void add(std::size_t root, double ratio = 0) {
    any = true;
    first_root = std::min(first_root, root);
    worst_ratio = std::max(worst_ratio, ratio);
  }
  void add(const Sources& other) {
    any = any || other.any;
    first_root = std::min(first_root, other.first_root);
    worst_ratio = std::max(worst_ratio, other.worst_ratio);
  }
};

// What the calls of a module were given. A call goes by what its name ends with, as `TensorName::call`.
struct Calls {
  std::map<std::string, Sources> inputs;
  std::string latest;  // the last to begin
};

// The module that a tensor was seen at, or that has the parameter.
std::string_view module_of(const TensorId& id) {
  return is_parameter_kind(id.kind) ? owner_of(id.name) : TensorName(id.name).path;
}

class Flow {
 public:
  Flow(std::span<const Observation> observations, std::span<const TiedRule> tied, bool rewritten)
      : observations_(observations), tied_(tied), rewritten_(rewritten) {}

  std::vector<Root> run() {
    for (std::size_t i = 0; i < observations_.size(); ++i) {
      const std::size_t root = observations_[i].agrees ? kNone : root_of(i);
      remember(observations_[i], root);
    }
    return std::move(roots_);
  }

 private:
  // The root of a wrong tensor; a new one where nothing explains it.
  std::size_t root_of(std::size_t i) {
    const TensorId& id = observations_[i].id;
    const Sources sources = sources_of(id);
    std::size_t root = sources.first_root;
    if (root == kNone) root = nested_root(id);
    // Half of the error, or more, was there before.
    const bool came_in = !sources.any || (sources.worst_ratio > 0 && sources.worst_ratio >= observations_[i].ratio / 2);
    if (root == kNone && came_in) root = id.kind == Kind::kParam ? root_before(id.iteration) : root_before(id);
    if (root != kNone) {
      roots_[root].explained.push_back(i);
      return root;
    }
    roots_.push_back({i, sources.any, {}});
    calls_around_.push_back(calls_around(id));
    roots_of_batch_[{id.iteration, id.microbatch}].push_back(roots_.size() - 1);
    return roots_.size() - 1;
  }

  Sources sources_of(const TensorId& id) const {
    switch (id.kind) {
      case Kind::kOutput:
        return of_output(id);
      case Kind::kGradInput:
      case Kind::kParamGrad:
        return of_backward(id);
      case Kind::kMainGrad:
        return find(param_grads_, id);
      case Kind::kParamDelta:
      case Kind::kParamAfter:
        return of_step(id);
      default:
        return {};
    }
  }

  static Step step_of(const TensorId& id) {
    if (id.kind != Kind::kInput && id.kind != Kind::kOutput) return Step::kBackward;
    return id.pass == Pass::kRecompute ? Step::kRecompute : Step::kForward;
  }

  static ModuleKey module_key(const TensorId& id, Step step, std::string_view module) {
    return {id.iteration, id.microbatch, id.chunk, step, std::string(module)};
  }

  // What the module computed the tensor from in a step. All its calls add to the gradient of a parameter.
  Sources of_module(const TensorId& id, Step step) const {
    const bool of_parameter = is_parameter_kind(id.kind);
    const std::string_view module = module_of(id), own_call = TensorName(id.name).call;
    Sources sources;
    if (const auto calls = calls_.find(module_key(id, step, module)); calls != calls_.end()) {
      for (const auto& [call, inputs] : calls->second.inputs) {
        if (of_parameter || call == own_call) sources.add(inputs);
      }
    }
    const auto parameters = wrong_parameters_.find({id.chunk, std::string(module)});
    if (parameters != wrong_parameters_.end()) sources.add(parameters->second);
    return sources;
  }

  // A recomputed output is compared with the first one, too.
  Sources of_output(const TensorId& id) const {
    Sources sources = of_module(id, step_of(id));
    TensorId first = id;
    first.pass = Pass::kForward;
    const auto wrong = wrong_outputs_.find(first);
    if (wrong != wrong_outputs_.end()) sources.add(wrong->second);
    return sources;
  }

  // Backward works with what the last forward left. Without the gradient that comes in, nothing can be said.
  Sources of_backward(const TensorId& id) const {
    Sources sources = of_module(id, Step::kBackward);
    if (!sources.any) return sources;
    sources.add(of_module(id, Step::kForward));
    sources.add(of_module(id, Step::kRecompute));
    return sources;
  }

  Sources find(const std::map<ParameterKey, Sources>& sources, const TensorId& id) const {
    const auto found = sources.find({id.iteration, id.chunk, id.name});
    return found == sources.end() ? Sources() : found->second;
  }

  // Clipping scales every gradient by the norm of all.
  Sources of_step(const TensorId& id) const {
    Sources sources = find(main_grads_, id);
    const auto scalars = step_scalars_.find(id.iteration);
    if (scalars != step_scalars_.end()) sources.add(scalars->second);
    return sources;
  }

  // The modules around the one of a tensor, each with the call that was in progress, as far as its inputs were seen.
  std::map<std::string, std::string> calls_around(const TensorId& id) const {
    std::map<std::string, std::string> around;
    std::string_view module = TensorName(id.name).path;
    while (module != kRootModule) {
      module = owner_of(module);
      const auto calls = calls_.find(module_key(id, step_of(id), module));
      if (calls != calls_.end()) around.emplace(module, calls->second.latest);
    }
    return around;
  }

  // Whether the root is of the call of the module that the tensor is of, or inside that call.
  bool is_root_of_call(std::size_t root, const TensorId& id) const {
    const TensorName wrong(observations_[roots_[root].observation].id.name), name(id.name);
    const std::string_view module = module_of(id);
    if (wrong.path != module && !is_inside(wrong.path, module)) return false;
    if (is_parameter_kind(id.kind)) return true;  // of all calls
    if (wrong.path == module) return wrong.call == name.call;
    const auto around = calls_around_[root].find(std::string(module));
    return around == calls_around_[root].end() || around->second == name.call;
  }

  // Of what comes out of a module, that inside it which is a root.
  std::size_t nested_root(const TensorId& id) const {
    const bool of_parameter = rewritten_ && id.kind == Kind::kParamGrad;
    if (id.kind != Kind::kOutput && id.kind != Kind::kGradInput && !of_parameter) return kNone;
    const auto roots = roots_of_batch_.find({id.iteration, id.microbatch});
    if (roots == roots_of_batch_.end()) return kNone;
    for (const std::size_t root : roots->second) {
      const TensorId& other = observations_[roots_[root].observation].id;
      const bool same_pass = other.chunk == id.chunk && other.pass == id.pass;
      if (same_pass && is_root_of_call(root, id)) return root;
    }
    return kNone;
  }

  // What was wrong last: in the micro-batch, in the iteration, in the one before.
  std::size_t root_before(const TensorId& id) const {
    const auto in_batch = last_of_batch_.find({id.iteration, id.microbatch});
    if (in_batch != last_of_batch_.end()) return in_batch->second;
    // Another micro-batch of the same iteration explains nothing of this one.
    return root_before(id.microbatch == kNoMicrobatch ? id.iteration + 1 : id.iteration);
  }

  // What was wrong last before the iteration began.
  std::size_t root_before(std::int32_t iteration) const {
    const auto at = last_of_iteration_.lower_bound(iteration);
    return at == last_of_iteration_.begin() ? kNone : std::prev(at)->second;
  }

  // What the module goes on with.
  void remember_input(const Observation& observation, std::size_t root) {
    const TensorName name(observation.id.name);
    Calls& calls = calls_[module_key(observation.id, step_of(observation.id), name.path)];
    calls.latest = name.call;
    Sources& sources = calls.inputs[calls.latest];
    rewritten_ ? sources.add(kNone) : sources.add(root, observation.ratio);
  }

  void remember(const Observation& observation, std::size_t root) {
    const auto& [id, agrees, ratio] = observation;
    switch (id.kind) {
      case Kind::kInput:
      case Kind::kGradOutput:
        remember_input(observation, root);
        break;
      case Kind::kParamGrad:
        param_grads_[{id.iteration, id.chunk, id.name}].add(root, ratio);
        break;
      case Kind::kMainGrad:
        main_grads_[{id.iteration, id.chunk, id.name}].add(root, ratio);
        break;
      default:
        break;
    }
    if (id.kind == Kind::kScalar && id.microbatch == kNoMicrobatch) step_scalars_[id.iteration].add(root, ratio);
    if (root == kNone) return;
    if (is_parameter_kind(id.kind) && id.kind != Kind::kParamGrad) remember_parameter(id, root);
    if (id.kind == Kind::kOutput) wrong_outputs_.try_emplace(id, root);
    last_of_batch_[{id.iteration, id.microbatch}] = root;
    last_of_iteration_[id.iteration] = root;
  }

  // All modules that it lies in, under any name, compute with it from now on: a main gradient or an update that is
  // wrong makes the parameter wrong, be it by less than is allowed.
  void remember_parameter(const TensorId& id, std::size_t root) {
    remember_modules(id, id.name, root);
    for (const TiedRule& rule : tied_) {
      if (!matches(rule.of, id.name)) continue;
      const std::string prefix = id.name.substr(0, id.name.size() - rule.of.size());
      remember_modules(id, prefix + rule.name, root);
    }
  }

  // What the parameter is part of: its module, and those around it.
  void remember_modules(const TensorId& id, std::string_view parameter, std::size_t root) {
    while (parameter != kRootModule) {
      parameter = owner_of(parameter);
      wrong_parameters_.try_emplace({id.chunk, std::string(parameter)}, root);
    }
  }

  std::span<const Observation> observations_;
  std::span<const TiedRule> tied_;
  const bool rewritten_;
  std::vector<Root> roots_;
  std::vector<std::map<std::string, std::string>> calls_around_;  // of each root
  std::map<ModuleKey, Calls> calls_;
  std::map<ParameterKey, Sources> param_grads_, main_grads_;
  std::map<std::int32_t, Sources> step_scalars_;  // the gradient's norm
  std::map<TensorId, std::size_t> wrong_outputs_;
  std::map<std::pair<std::int32_t, std::string>, std::size_t> wrong_parameters_;  // chunk, module: the first root
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::size_t>> roots_of_batch_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> last_of_batch_;
  std::map<std::int32_t, std::size_t> last_of_iteration_;
};

}  // namespace

std::vector<Root> find_roots(std::span<const Observation> observations, std::span<const TiedRule> tied,
                             bool rewritten) {
  return Flow(observations, tied, rewritten).run();
}

}  // namespace ttrace
