#include "base/random_draws.h"

#include "base/tensor_name.h"

namespace ttrace {
namespace {

TensorId call_of(const TensorId& recorded) {
  TensorId id = recorded;
  id.name = TensorName(recorded.name.get()).without_member();
  return id;
}

template <class Change>
std::map<TensorId, std::uint64_t> changed(const std::map<TensorId, std::uint64_t>& states, const Change& change) {
  std::map<TensorId, std::uint64_t> result;
  for (const auto& [recorded, state] : states) {
    TensorId id = recorded;
    change(id);
    result.emplace(std::move(id), state);
  }
  return result;
}

}  // namespace

RandomDraws::RandomDraws(std::map<TensorId, std::uint64_t> states, bool is_cut) : states_(std::move(states)) {
  if (!is_cut) return;
  for (const auto& [id, state] : states_) modules_.emplace(id.kind, TensorName(id.name.get()).path);
}

std::shared_ptr<const RandomDraws> RandomDraws::of_any_call() const {
  auto draws = std::make_shared<RandomDraws>(states_, true);
  draws->states_.clear();
  return draws;
}

std::shared_ptr<const RandomDraws> RandomDraws::with_names(
    const std::function<std::string(std::int32_t, const std::string&)>& new_name) const {
  auto draws = std::make_shared<RandomDraws>(
      changed(states_, [&](TensorId& id) { id.name = new_name(id.chunk, id.name.get()); }), false);
  for (const auto& [kind, module] : modules_) draws->modules_.emplace(kind, new_name(0, module));
  return draws;
}

std::shared_ptr<const RandomDraws> RandomDraws::with_chunks(
    const std::function<std::int32_t(std::int32_t)>& new_number) const {
  auto draws =
      std::make_shared<RandomDraws>(changed(states_, [&](TensorId& id) { id.chunk = new_number(id.chunk); }), false);
  draws->modules_ = modules_;
  return draws;
}

bool RandomDraws::holds(const TensorId& recorded) const {
  return states_.contains(call_of(recorded)) ||
         modules_.contains({recorded.kind, std::string(TensorName(recorded.name.get()).path)});
}

std::optional<std::uint64_t> RandomDraws::state_before(const TensorId& recorded) const {
  const auto found = states_.find(call_of(recorded));
  return found == states_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace ttrace
