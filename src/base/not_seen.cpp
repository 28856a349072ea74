#include "base/not_seen.h"

#include <algorithm>
#include <utility>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

// True when the two are one tensor, or the first holds the second: `embed:cache` holds `embed:cache.0`.
bool holds(std::string_view statement, std::string_view name) {
  const TensorName whole(statement), tensor(name);
  if (whole.call != tensor.call || !tensor.member.starts_with(whole.member)) return false;
  const std::string_view rest = tensor.member.substr(whole.member.size());
  return rest.empty() || rest[0] == '.' || whole.member.empty();
}

}  // namespace

void NotSeenTensors::add_tensor(const NotSeen& statement, std::string_view canonical_name) {
  add(TensorName(canonical_name).path,
      {{statement.reason, statement.by_design}, std::string(canonical_name), statement.kinds, statement.iterations});
}

void NotSeenTensors::add_module(const NotSeen& statement, std::string_view canonical_name) {
  add(canonical_name, {{statement.reason, statement.by_design}, "", statement.kinds, statement.iterations});
}

void NotSeenTensors::add_everything(const NotSeen& statement) {
  everything_ = true;
  by_design_.insert(statement.reason);
}

void NotSeenTensors::add_design_of(const NotSeenTensors& other) {
  everything_ = everything_ || other.everything_;
  by_design_.insert(other.by_design_.begin(), other.by_design_.end());
}

void NotSeenTensors::add(std::string_view path, Statement statement) {
  if (statement.reason.by_design) by_design_.insert(statement.reason.text);
  std::vector<Statement>& known = by_path_[std::string(path)];
  // Ranks that hold replicas or shards of a module say the same.
  if (std::find(known.begin(), known.end(), statement) == known.end()) known.push_back(std::move(statement));
}

const NotSeenTensors::Reason* NotSeenTensors::reason_of(const TensorId& id) const {
  const auto found = by_path_.find(TensorName(id.name).path);
  if (found == by_path_.end()) return nullptr;
  for (const Statement& statement : found->second) {
    const bool covers = statement.kinds.contains(id.kind) && statement.iterations.contains(id.iteration) &&
                        (statement.tensor.empty() || holds(statement.tensor, id.name));
    if (covers) return &statement.reason;
  }
  return nullptr;
}

}  // namespace ttrace
