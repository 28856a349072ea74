#include "identify/renamed.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/random_draws.h"

namespace ttrace {
namespace {

void rename_all(std::vector<std::string>& names, std::int32_t chunk, const NewName& new_name) {
  for (std::string& name : names) name = new_name(chunk, name);
}

template <class Value>
std::map<std::string, Value> with_new_names(const std::map<std::string, Value>& by_name, std::int32_t chunk,
                                            const NewName& new_name) {
  std::map<std::string, Value> renamed;
  for (const auto& [name, value] : by_name) renamed.emplace(new_name(chunk, name), value);
  return renamed;
}

}  // namespace

void rename_tensors(RankTrace& rank, const NewName& new_name) {
  std::map<std::pair<std::int32_t, std::string>, SharedValue<std::string>> known;  // millions of entries share names
  for (Entry& entry : rank.entries) {
    const auto [found, is_new] = known.try_emplace({entry.id.chunk, entry.id.name.get()});
    if (is_new) found->second = new_name(entry.id.chunk, entry.id.name.get());
    entry.id.name = found->second;
  }
  for (NotSeen& statement : rank.not_seen) {
    rename_all(statement.tensors, statement.chunk, new_name);
    rename_all(statement.modules, statement.chunk, new_name);
  }
  for (OptimizerStep& step : rank.optimizer_steps) rename_all(step.parameters, step.chunk, new_name);
  for (TrainedGroup& group : rank.trained) rename_all(group.parameters, group.chunk, new_name);
  if (rank.sources) {
    auto sources = std::make_shared<ModuleSources>(*rank.sources);
    sources->calls = with_new_names(sources->calls, 0, new_name);
    rank.sources = std::move(sources);
  }
  if (rank.configurations) {
    auto configurations = std::make_shared<ModuleConfigurations>(*rank.configurations);
    for (std::size_t chunk = 0; chunk < configurations->chunks.size(); ++chunk) {
      auto& modules = configurations->chunks[chunk];
      modules = with_new_names(modules, static_cast<std::int32_t>(chunk), new_name);
    }
    rank.configurations = std::move(configurations);
  }
  if (rank.draws) rank.draws = rank.draws->with_names(new_name);
}

}  // namespace ttrace
