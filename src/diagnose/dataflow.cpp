#include "diagnose/dataflow.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

enum class Step { kForward, kRecompute, kBackward };

// Names a module in a step: iteration, micro-batch, chunk, step, path.
using ModuleKey = std::tuple<std::int32_t, std::int32_t, std::int32_t, Step, std::string>;
// Names a parameter in an iteration: iteration, chunk, name.
using ParameterKey = std::tuple<std::int32_t, std::int32_t, std::string>;

// Sums up the observed tensors that a tensor was computed from.
struct Sources {
  bool any = false;                // some were observed
  std::size_t first_root = kNone;  // the earliest root that explains a wrong one; kNone where all agree
  double worst_ratio = 0;          // the largest `Observation::ratio` of them

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

// The inputs of a module's calls. The key of a call is its `TensorName::call`.
struct Calls {
  std::map<std::string, Sources> inputs;
  std::string latest;  // the call that began last
};

// Returns the path of the module that the tensor was recorded at, or that owns the parameter.
std::string_view observed_module(const TensorId& id) {
  return is_parameter_kind(id.kind) ? owner_of(id.name) : TensorName(id.name).path;
}

// The module that a parameter or a module belongs to directly, which of what is in no other of a further model is its root.
std::string module_around(std::string_view path) {
  const std::string model = further_model_of(path);
  const std::string_view owner = owner_of(path);
  if (model.empty() || model.size() != owner.size() + 1) return std::string(owner);
  const std::string root = model + std::string(kRootModule);
  return path == root ? std::string(kRootModule) : root;
}

bool is_before_iteration(Kind kind) { return kind == Kind::kParam || kind == Kind::kBuffer; }

class RootFinder {
 public:
  RootFinder(std::span<const Observation> observations, std::span<const TiedRule> tied, bool rewritten)
      : observations_(observations), tied_(tied), rewritten_(rewritten) {}

  std::vector<Root> run() {
    for (std::size_t i = 0; i < observations_.size(); ++i) {
      const std::size_t root = observations_[i].agrees ? kNone : find_or_add_root(i);
      record(observations_[i], root);
    }
    return std::move(roots_);
  }

 private:
  // Returns the root that explains a wrong tensor, or makes the tensor a root where none does.
  std::size_t find_or_add_root(std::size_t i) {
    const TensorId& id = observations_[i].id;
    if (observations_[i].of_step) return add_root(i, true);
    const Sources sources = sources_of(id);
    std::size_t root = sources.first_root;
    if (root == kNone && rewritten_ && observations_[i].passed_on) root = root_before(id);
    for (const TensorId& input : observations_[i].shared) {
      root = std::min(root, module_sources(input, Step::kBackward).first_root);
    }
    if (root == kNone) root = nested_root(id);
    if (root == kNone && id.kind == Kind::kParamGrad) root = truncated_root(id);
    // The error was there before if nothing was seen of the sources, or if one of them shows at least half of it.
    const bool came_from_before =
        !sources.any || (sources.worst_ratio > 0 && sources.worst_ratio >= observations_[i].ratio / 2);
    if (root == kNone && came_from_before)
      root = is_before_iteration(id.kind) ? root_before(id.iteration) : root_before(id);
    // A model that a wrong step has made is another one, all over.
    if (root == kNone && wrong_step_ != kNone &&
        observations_[roots_[wrong_step_].observation].id.iteration < id.iteration)
      root = wrong_step_;
    if (root != kNone && !(observations_[i].left_out && observations_[roots_[root].observation].left_out)) {
      roots_[root].explained.push_back(i);
      return root;
    }
    return add_root(i, sources.any);
  }

  std::size_t add_root(std::size_t i, bool made_here) {
    const TensorId& id = observations_[i].id;
    roots_.push_back({i, made_here, {}});
    calls_around_.push_back(calls_around(id));
    roots_of_batch_[{id.iteration, id.microbatch}].push_back(roots_.size() - 1);
    if (observations_[i].of_step) wrong_step_ = std::min(wrong_step_, roots_.size() - 1);
    if (observations_[i].left_out) left_out_.try_emplace(id.iteration, roots_.size() - 1);
    if (observations_[i].truncated) truncated_.try_emplace({id.iteration, id.microbatch}, roots_.size() - 1);
    return roots_.size() - 1;
  }

  Sources sources_of(const TensorId& id) const {
    switch (id.kind) {
      case Kind::kOutput:
        return output_sources(id);
      case Kind::kGradInput:
      case Kind::kParamGrad:
        return backward_sources(id);
      case Kind::kMainGrad:
        return find_sources(param_grads_, id);
      case Kind::kParamDelta:
        return step_sources(id);
      case Kind::kParamAfter: {
        Sources sources = step_sources(id);
        sources.add(find_sources(wrong_steps_, id));
        return sources;
      }
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

  // Returns the module's sources of the tensor in a step: the inputs of the tensor's call and wrong parameters. All
  // calls count for a parameter, since all of them add to its gradient.
  Sources module_sources(const TensorId& id, Step step) const {
    const bool of_parameter = is_parameter_kind(id.kind);
    const std::string_view module = observed_module(id), own_call = TensorName(id.name).call;
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

  // A wrong first output explains a wrong recomputed one, which is compared with it.
  Sources output_sources(const TensorId& id) const {
    Sources sources = module_sources(id, step_of(id));
    TensorId first = id;
    first.pass = Pass::kForward;
    const auto wrong = wrong_outputs_.find(first);
    if (wrong != wrong_outputs_.end()) sources.add(wrong->second);
    return sources;
  }

  // Backward computes from the output's gradient and from the inputs that the last forward saved. Where the gradient
  // was not observed, the sources are unknown.
  Sources backward_sources(const TensorId& id) const {
    Sources sources = module_sources(id, Step::kBackward);
    if (!sources.any) return sources;
    sources.add(module_sources(id, Step::kForward));
    sources.add(module_sources(id, Step::kRecompute));
    return sources;
  }

  Sources find_sources(const std::map<ParameterKey, Sources>& sources, const TensorId& id) const {
    const auto found = sources.find({id.iteration, id.chunk, id.name});
    return found == sources.end() ? Sources() : found->second;
  }

  // A step computes from the main gradient, and from the gradients' norm: clipping scales every gradient by it.
  Sources step_sources(const TensorId& id) const {
    Sources sources = find_sources(main_grads_, id);
    const auto scalars = step_scalars_.find(id.iteration);
    if (scalars != step_scalars_.end()) sources.add(scalars->second);
    return sources;
  }

  // Returns the modules around the tensor's module whose inputs were observed, each with the call in progress.
  std::map<std::string, std::string> calls_around(const TensorId& id) const {
    std::map<std::string, std::string> around;
    std::string module(TensorName(id.name).path);
    while (module != kRootModule) {
      module = module_around(module);
      const auto calls = calls_.find(module_key(id, step_of(id), module));
      if (calls != calls_.end()) around.emplace(module, calls->second.latest);
    }
    return around;
  }

  // True where the root was recorded at the same call of the module as the tensor, or at a module inside that call.
  bool is_root_of_call(std::size_t root, const TensorId& id) const {
    const TensorName wrong(observations_[roots_[root].observation].id.name), name(id.name);
    const std::string_view module = observed_module(id);
    if (wrong.path != module && !is_inside(wrong.path, module)) return false;
    if (is_parameter_kind(id.kind)) return true;  // all calls add to a parameter's gradient
    if (wrong.path == module) return wrong.call == name.call;
    const auto around = calls_around_[root].find(std::string(module));
    return around == calls_around_[root].end() || around->second == name.call;
  }

  // True where the root may have made the gradient of a parameter wrong that a module has beside modules inside it, and
  // uses between these: what flows there is not recorded.
  bool is_inside_user(std::size_t root, const TensorId& id) const {
    const TensorId& other = observations_[roots_[root].observation].id;
    return !is_parameter_kind(other.kind) && is_inside(TensorName(other.name).path, observed_module(id));
  }

  // Returns the first root inside the module that the tensor comes out of, or that uses the parameter; kNone for other
  // tensors.
  std::size_t nested_root(const TensorId& id) const {
    const bool of_parameter = id.kind == Kind::kParamGrad;
    if (id.kind != Kind::kOutput && id.kind != Kind::kGradInput && !of_parameter) return kNone;
    const auto roots = roots_of_batch_.find({id.iteration, id.microbatch});
    if (roots == roots_of_batch_.end()) return kNone;
    for (const std::size_t root : roots->second) {
      const TensorId& other = observations_[roots_[root].observation].id;
      const bool same_pass = other.chunk == id.chunk && other.pass == id.pass;
      const bool may_follow = !of_parameter || rewritten_ || is_inside_user(root, id);
      if (same_pass && may_follow && is_root_of_call(root, id)) return root;
    }
    return kNone;
  }

  std::size_t truncated_root(const TensorId& id) const {
    const auto found = truncated_.find({id.iteration, id.microbatch});
    return found == truncated_.end() ? kNone : found->second;
  }

  // Returns the root of the last wrong tensor of the micro-batch; if there is none, that of the last one of an earlier
  // iteration. For a tensor of no micro-batch, the whole iteration counts; for any, an update that was left out.
  std::size_t root_before(const TensorId& id) const {
    const auto in_batch = last_of_batch_.find({id.iteration, id.microbatch});
    if (in_batch != last_of_batch_.end()) return in_batch->second;
    const auto left_out = left_out_.find(id.iteration);
    if (left_out != left_out_.end()) return left_out->second;
    // A wrong tensor of another micro-batch of the same iteration does not explain this one.
    return root_before(id.microbatch == kNoMicrobatch ? id.iteration + 1 : id.iteration);
  }

  // Returns the root of the last wrong tensor before `iteration` began.
  std::size_t root_before(std::int32_t iteration) const {
    const auto at = last_of_iteration_.lower_bound(iteration);
    return at == last_of_iteration_.begin() ? kNone : std::prev(at)->second;
  }

  // Records an input or an output's gradient as a source of what the module makes. A rewritten module went on with the
  // right values, whatever arrived.
  void record_input(const Observation& observation, std::size_t root) {
    const TensorName name(observation.id.name);
    Calls& calls = calls_[module_key(observation.id, step_of(observation.id), name.path)];
    calls.latest = name.call;
    Sources& sources = calls.inputs[calls.latest];
    rewritten_ ? sources.add(kNone) : sources.add(root, observation.ratio);
  }

  void record(const Observation& observation, std::size_t root) {
    const auto& [id, agrees, ratio, passed_on, of_step, left_out, truncated, is_open, shared] = observation;
    if (is_open) return;
    switch (id.kind) {
      case Kind::kInput:
      case Kind::kGradOutput:
        record_input(observation, root);
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
    if (of_step) wrong_steps_[{id.iteration, id.chunk, id.name}].add(root, ratio);
    if (is_parameter_kind(id.kind) && id.kind != Kind::kParamGrad) record_parameter(id, root);
    if (id.kind == Kind::kOutput) wrong_outputs_.try_emplace(id, root);
    last_of_batch_[{id.iteration, id.microbatch}] = root;
    last_of_iteration_[id.iteration] = root;
  }

  // Records a wrong parameter with all modules that compute with it from now on, under any of its names. A wrong main
  // gradient or update counts too: it makes the parameter wrong, be it by less than is allowed.
  void record_parameter(const TensorId& id, std::size_t root) {
    record_modules(id, id.name, root);
    for (const TiedRule& rule : tied_) {
      if (!matches(rule.of, id.name)) continue;
      const std::string prefix = id.name.get().substr(0, id.name.size() - rule.of.size());
      record_modules(id, prefix + rule.name, root);
    }
  }

  // Records the wrong parameter with its module, and with those around it.
  void record_modules(const TensorId& id, std::string_view parameter, std::size_t root) {
    for (std::string module(parameter); module != kRootModule;) {
      module = module_around(module);
      wrong_parameters_.try_emplace({id.chunk, module}, root);
    }
  }

  std::span<const Observation> observations_;
  std::span<const TiedRule> tied_;
  const bool rewritten_;
  std::vector<Root> roots_;
  std::size_t wrong_step_ = kNone;                // the first root that is an optimizer's wrong step
  std::map<std::int32_t, std::size_t> left_out_;  // by iteration: the first update that is left out
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> truncated_;  // by micro-batch: the first such input
  std::vector<std::map<std::string, std::string>> calls_around_;            // of each root
  std::map<ModuleKey, Calls> calls_;
  std::map<ParameterKey, Sources> param_grads_, main_grads_;
  std::map<ParameterKey, Sources> wrong_steps_;
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
  return RootFinder(observations, tied, rewritten).run();
}

}  // namespace ttrace
