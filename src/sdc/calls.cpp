#include "sdc/calls.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace ttrace {
namespace {

// Ranks that run the same modules under the same local names.
std::int64_t stage_of(const RecordedPair& pair) {
  const auto found = pair.rank->coordinates.find("pp");
  return found == pair.rank->coordinates.end() ? 0 : found->second;
}

using Key = std::tuple<std::int64_t, std::int32_t, std::int32_t, std::int32_t, Direction, std::string>;

Key key_of(const RecordedPair& pair, Direction direction) {
  const TensorId& id = pair.healthy->id;
  return {stage_of(pair), id.iteration, id.microbatch, id.chunk, direction, module_of(id.name)};
}

class Calls {
 public:
  void add(const RecordedPair& pair) {
    const TensorId& id = pair.healthy->id;
    const Direction forward = id.pass == Pass::kRecompute ? Direction::kRecompute : Direction::kForward;
    switch (id.kind) {
      case Kind::kInput:
        add_input(pair, forward);
        // Backward computes with what the last forward left.
        add_input(pair, Direction::kBackward);
        break;
      case Kind::kOutput:
        add_output(pair, forward);
        break;
      case Kind::kGradOutput:
        add_input(pair, Direction::kBackward);
        break;
      case Kind::kGradInput:
        add_output(pair, Direction::kBackward);
        break;
      case Kind::kParam:
        if (pair.mismatch.differing > 0) wrong_parameters_.push_back(&pair);
        break;
      default:
        break;
    }
  }

  std::vector<Call> finish() {
    std::vector<Call> calls;
    for (auto& [key, call] : calls_) {
      if (call.outputs.empty()) continue;
      call.inputs_agree = call.inputs_agree && !has_wrong_parameter(key);
      calls.push_back(std::move(call));
    }
    std::stable_sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) {
      return std::pair(a.iteration, a.outputs[0]->healthy->order) <
             std::pair(b.iteration, b.outputs[0]->healthy->order);
    });
    return calls;
  }

 private:
  Call& of(const RecordedPair& pair, Direction direction) {
    const auto [found, is_new] = calls_.try_emplace(key_of(pair, direction));
    Call& call = found->second;
    if (is_new) {
      const TensorId& id = pair.healthy->id;
      call.iteration = id.iteration;
      call.microbatch = id.microbatch;
      call.module = module_of(id.name);
      call.type = type_of(call.module);
      call.direction = direction;
    }
    return call;
  }

  void add_input(const RecordedPair& pair, Direction direction) {
    Call& call = of(pair, direction);
    call.has_inputs = true;
    call.inputs_agree = call.inputs_agree && pair.mismatch.differing == 0;
  }

  void add_output(const RecordedPair& pair, Direction direction) {
    Call& call = of(pair, direction);
    call.outputs.push_back(&pair);
    call.outputs_agree = call.outputs_agree && pair.mismatch.differing == 0;
  }

  // Parameters are recorded at the start of an iteration.
  bool has_wrong_parameter(const Key& key) const {
    const auto& [stage, iteration, microbatch, chunk, direction, module] = key;
    const std::string inside = module.substr(0, module.find('#')) + ".";
    return std::any_of(wrong_parameters_.begin(), wrong_parameters_.end(), [&](const RecordedPair* pair) {
      const TensorId& id = pair->healthy->id;
      return id.iteration == std::get<1>(key) && id.chunk == std::get<3>(key) && stage_of(*pair) == std::get<0>(key) &&
             (module == "(model)" || id.name.starts_with(inside));
    });
  }

  std::map<Key, Call> calls_;
  std::vector<const RecordedPair*> wrong_parameters_;
};

}  // namespace

std::string module_of(std::string_view name) {
  const std::size_t call = std::min(name.find('#'), name.size());
  const std::size_t member = std::min(name.substr(0, call).find(':'), call);
  return std::string(name.substr(0, member)) + std::string(name.substr(call));
}

std::string type_of(std::string_view module) {
  std::string type;
  const std::string_view path = module.substr(0, module.find('#'));
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t end = std::min(path.find('.', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    type += (start == 0 ? "" : ".") + (is_number ? std::string("*") : std::string(part));
    start = end + 1;
  }
  return type;
}

std::vector<Call> calls_of(std::span<const RecordedPair> pairs) {
  Calls calls;
  for (const RecordedPair& pair : pairs) calls.add(pair);
  return calls.finish();
}

}  // namespace ttrace
