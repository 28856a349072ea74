#include "ttrace/diagnose/dataflow.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace ttrace {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr std::string_view kModel = "(model)";

enum class Step { kForward, kRecompute, kBackward };

// A call of a module: iteration, micro-batch, chunk, step, module.
using CallKey = std::tuple<std::int32_t, std::int32_t, std::int32_t, Step, std::string>;
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

// Whether `inner` is a module inside `outer`.
bool is_inside(std::string_view inner, std::string_view outer) {
  if (outer == kModel) return inner != kModel;
  return inner.size() > outer.size() && inner.starts_with(outer) && inner[outer.size()] == '.';
}

// The module that has the parameter.
std::string owner_of(std::string_view parameter) {
  const std::size_t dot = parameter.rfind('.');
  return std::string(dot == parameter.npos ? kModel : parameter.substr(0, dot));
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
    roots_of_batch_[{id.iteration, id.microbatch}].push_back(roots_.size() - 1);
    return roots_.size() - 1;
  }

  Sources sources_of(const TensorId& id) const {
    switch (id.kind) {
      case Kind::kOutput:
        return of_output(id);
      case Kind::kGradInput:
        return of_backward(id, module_of(id.name));
      case Kind::kParamGrad:
        return of_backward(id, owner_of(id.name));
      case Kind::kMainGrad:
        return find(param_grads_, id);
      case Kind::kParamDelta:
      case Kind::kParamAfter:
        return of_step(id);
      default:
        return {};
    }
  }

  static Step step_of(const TensorId& id) { return id.pass == Pass::kRecompute ? Step::kRecompute : Step::kForward; }

  static CallKey call_key(const TensorId& id, Step step, std::string module) {
    return {id.iteration, id.microbatch, id.chunk, step, std::move(module)};
  }

  Sources of_call(const TensorId& id, Step step, std::string module) const {
    const auto parameters = wrong_parameters_.find({id.chunk, module});
    const auto found = inputs_.find(call_key(id, step, std::move(module)));
    Sources sources = found == inputs_.end() ? Sources() : found->second;
    if (parameters != wrong_parameters_.end()) sources.add(parameters->second);
    return sources;
  }

  // A recomputed output is compared with the first one, too.
  Sources of_output(const TensorId& id) const {
    Sources sources = of_call(id, step_of(id), module_of(id.name));
    TensorId first = id;
    first.pass = Pass::kForward;
    const auto wrong = wrong_outputs_.find(first);
    if (wrong != wrong_outputs_.end()) sources.add(wrong->second);
    return sources;
  }

  // Backward works with what the last forward left. Without the gradient that comes in, nothing can be said.
  Sources of_backward(const TensorId& id, const std::string& module) const {
    Sources sources = of_call(id, Step::kBackward, module);
    if (!sources.any) return sources;
    sources.add(of_call(id, Step::kForward, module));
    sources.add(of_call(id, Step::kRecompute, module));
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

  // Of what comes out of a module, that inside it which is a root.
  std::size_t nested_root(const TensorId& id) const {
    const bool of_parameter = rewritten_ && id.kind == Kind::kParamGrad;
    if (id.kind != Kind::kOutput && id.kind != Kind::kGradInput && !of_parameter) return kNone;
    const auto roots = roots_of_batch_.find({id.iteration, id.microbatch});
    if (roots == roots_of_batch_.end()) return kNone;
    const std::string module = of_parameter ? owner_of(id.name) : module_of(id.name);
    for (const std::size_t root : roots->second) {
      const TensorId& other = observations_[roots_[root].observation].id;
      const std::string inner = module_of(other.name);
      const bool same_pass = other.chunk == id.chunk && other.pass == id.pass;
      if (same_pass && (inner == module || is_inside(inner, module))) return root;
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
  void remember_input(const Observation& observation, Step step, std::size_t root) {
    Sources& sources = inputs_[call_key(observation.id, step, module_of(observation.id.name))];
    rewritten_ ? sources.add(kNone) : sources.add(root, observation.ratio);
  }

  void remember(const Observation& observation, std::size_t root) {
    const auto& [id, agrees, ratio] = observation;
    switch (id.kind) {
      case Kind::kInput:
        remember_input(observation, step_of(id), root);
        break;
      case Kind::kGradOutput:
        remember_input(observation, Step::kBackward, root);
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
    remember_module(id, owner_of(id.name), root);
    for (const TiedRule& rule : tied_) {
      if (id.name != rule.of && !id.name.ends_with("." + rule.of)) continue;
      const std::string prefix = id.name.substr(0, id.name.size() - rule.of.size());
      remember_module(id, owner_of(prefix + rule.name), root);
    }
  }

  void remember_module(const TensorId& id, std::string module, std::size_t root) {
    while (module != kModel) {
      wrong_parameters_.try_emplace({id.chunk, module}, root);
      module = owner_of(module);
    }
    wrong_parameters_.try_emplace({id.chunk, std::string(kModel)}, root);
  }

  std::span<const Observation> observations_;
  std::span<const TiedRule> tied_;
  const bool rewritten_;
  std::vector<Root> roots_;
  std::map<CallKey, Sources> inputs_;
  std::map<ParameterKey, Sources> param_grads_, main_grads_;
  std::map<std::int32_t, Sources> step_scalars_;  // the gradient's norm
  std::map<TensorId, std::size_t> wrong_outputs_;
  std::map<std::pair<std::int32_t, std::string>, std::size_t> wrong_parameters_;  // chunk, module: the first root
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::size_t>> roots_of_batch_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> last_of_batch_;
  std::map<std::int32_t, std::size_t> last_of_iteration_;
};

}  // namespace

std::string module_of(std::string_view name) {
  const std::size_t call = std::min(name.find('#'), name.size());
  const std::size_t member = std::min(name.substr(0, call).find(':'), call);
  return std::string(name.substr(0, member)) + std::string(name.substr(call));
}

std::vector<Root> find_roots(std::span<const Observation> observations, std::span<const TiedRule> tied,
                             bool rewritten) {
  return Flow(observations, tied, rewritten).run();
}

}  // namespace ttrace
