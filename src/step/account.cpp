#include "step/account.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <vector>

#include "base/describe.h"
#include "step/series.h"

namespace ttrace {
namespace {

struct Trained {
  bool is_in_optimizer = false, is_known = true;  // of any rank; of all
};
using Account = std::map<std::string, Trained>;  // of parameters that want gradients, by canonical name

// Returns nothing where a rank that recorded anything does not say what it trains.
std::optional<Account> account_of(const AlignedTrace& aligned) {
  const ParameterNames names = parameter_names(aligned.alignment);
  Account account;
  for (const RankTrace& rank : aligned.trace->ranks) {
    if (rank.trained.empty() && !rank.entries.empty()) return std::nullopt;
    for (const TrainedGroup& group : rank.trained) {
      for (const std::string& local : group.parameters) {
        const auto name = names.find({rank.rank, group.chunk, local});
        if (name == names.end()) continue;
        Trained& one = account[name->second];
        one.is_in_optimizer |= group.optimizer && !group.optimizer->empty();
        one.is_known &= group.optimizer.has_value();
      }
    }
  }
  return account;
}

std::set<std::string> names_of(const AlignedTrace& aligned, const std::set<Kind>& kinds) {
  std::set<std::string> names;
  for (const auto& [id, tensor] : aligned.alignment.tensors) {
    if (kinds.contains(id.kind)) names.insert(id.name.get());
  }
  return names;
}

std::string list_of(const std::set<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) shown.push_back(printable(name));
  return comma_list(shown);
}

}  // namespace

void add_account(const AlignedTrace& candidate, StepCoverage& coverage) {
  const std::optional<Account> account = account_of(candidate);
  if (!account || account->empty()) return;
  const std::set<std::string> updated = names_of(candidate, {Kind::kParamDelta});
  const std::set<std::string> with_gradients = names_of(candidate, {Kind::kParamGrad, Kind::kMainGrad});
  std::map<std::string, std::set<std::string>> without;
  std::set<std::string> all = updated;
  for (const auto& [name, trained] : *account) {
    all.insert(name);
    if (trained.is_known && !trained.is_in_optimizer) {
      without["in no optimizer"].insert(name);
    } else if (!with_gradients.contains(name)) {
      without["no gradient in what was recorded"].insert(name);
    } else if (!updated.contains(name)) {
      without["no step was seen"].insert(name);
    }
  }
  coverage.trained = static_cast<std::int64_t>(all.size());
  for (const auto& [reason, names] : without) {
    coverage.untrained.push_back(fmt::format("{}: {}", list_of(names), reason));
  }
}

}  // namespace ttrace
