#include "base/renumbered.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/configuration.h"
#include "base/random_draws.h"

namespace ttrace {
namespace {

using NewNumber = std::function<std::int32_t(std::int32_t)>;

std::shared_ptr<const ModuleConfigurations> renumbered(const ModuleConfigurations& configurations,
                                                       const NewNumber& new_number) {
  auto result = std::make_shared<ModuleConfigurations>();
  result->without_grad = configurations.without_grad;
  for (std::size_t chunk = 0; chunk < configurations.chunks.size(); ++chunk) {
    const auto number = static_cast<std::size_t>(new_number(static_cast<std::int32_t>(chunk)));
    result->chunks.resize(std::max(result->chunks.size(), number + 1));
    result->chunks[number] = configurations.chunks[chunk];
  }
  return result;
}

template <class Statement>
void renumber(std::vector<Statement>& statements, std::vector<std::string> Statement::* names,
              const NewNumber& new_number) {
  for (Statement& statement : statements) {
    if (!are_of_no_module(statement.*names)) statement.chunk = new_number(statement.chunk);
  }
}

}  // namespace

bool are_of_no_module(const std::vector<std::string>& names) {
  return !names.empty() &&
         std::all_of(names.begin(), names.end(), [](const std::string& name) { return name.starts_with(kOfNoModule); });
}

OfNoModel::OfNoModel(const RankTrace& rank) {
  for (const Entry& entry : rank.entries) {
    if (entry.id.kind == Kind::kBuffer) buffers_.insert(entry.id.name.get());
  }
}

bool OfNoModel::holds(const TensorId& id) const {
  const std::string& name = id.name.get();
  return name.starts_with(kOfNoModule) || (id.kind == Kind::kBufferAfter && !buffers_.contains(name));
}

void renumber_chunks(RankTrace& rank, const NewNumber& new_number) {
  const OfNoModel of_no_model(rank);
  for (Entry& entry : rank.entries) {
    if (!of_no_model.holds(entry.id)) entry.id.chunk = new_number(entry.id.chunk);
  }
  renumber(rank.not_seen, &NotSeen::tensors, new_number);
  renumber(rank.optimizer_steps, &OptimizerStep::parameters, new_number);
  renumber(rank.trained, &TrainedGroup::parameters, new_number);
  if (rank.configurations) rank.configurations = renumbered(*rank.configurations, new_number);
  if (rank.draws) rank.draws = rank.draws->with_chunks(new_number);
}

}  // namespace ttrace
