#include "ttrace/tolerance/tolerance.h"

#include <fmt/format.h>

#include <algorithm>

#include "ttrace/annotation.h"
#include "ttrace/error.h"
#include "ttrace/rewrite/rewritten.h"

namespace ttrace {
namespace {

bool applies(const ToleranceOverride& override_, Kind kind, const std::string& name) {
  return (!override_.kind || *override_.kind == kind) && matches(override_.pattern, name);
}

}  // namespace

std::optional<double> allowed_for(const ToleranceFile& file, const TensorId& id) {
  for (auto item = file.overrides.rbegin(); item != file.overrides.rend(); ++item) {
    if (applies(*item, id.kind, id.name)) return item->allowed;
  }
  const auto found = file.tensors.find({id.kind, id.name});
  if (found == file.tensors.end()) return std::nullopt;
  return found->second.allowed;
}

void require_fits(const ToleranceFile& file, const Trace& reference, const Trace& candidate) {
  if (file.estimator == Estimator::kRewritten && !has_rewritten_modules(candidate)) {
    throw InputError(
        fmt::format("{}: says how far a module by itself may differ, and {} let its modules compute from each other's "
                    "values; expected a candidate collected with --inject, or tolerances of another estimator",
                    file.path, candidate.directory.string()));
  }
  if (file.reference_run == reference.run_id) return;
  throw InputError(
      fmt::format("{}: estimated from the reference run {}, but {} holds run {}; expected the same run: "
                  "run `ttrace estimate-tolerance` again with this reference",
                  file.path, file.reference_run, reference.directory.string(), reference.run_id));
}

std::vector<std::string> unused_overrides(const ToleranceFile& file, const std::set<ToleranceKey>& tensors) {
  std::vector<std::string> notes;
  for (const ToleranceOverride& item : file.overrides) {
    const bool used = std::any_of(tensors.begin(), tensors.end(),
                                  [&](const ToleranceKey& key) { return applies(item, key.first, key.second); });
    if (used) continue;
    notes.push_back(fmt::format("{}:{}: the override '{}'{} matches no tensor", file.path, item.line, item.pattern,
                                item.kind ? fmt::format(" of kind {}", name_of(*item.kind)) : ""));
  }
  return notes;
}

}  // namespace ttrace
