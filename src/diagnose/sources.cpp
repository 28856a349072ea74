#include "diagnose/sources.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/lookup.h"
#include "base/tensor_name.h"

namespace ttrace {
namespace {

bool is_of_optimizer(const Finding& finding) {
  return is_of_step(finding) || is_optimizer_state(finding.id.kind) || finding.id.kind == Kind::kParamDelta ||
         finding.id.kind == Kind::kParamAfter;
}

// The module that an entry belongs to, as its rank names it.
std::string module_of(const Entry& entry) {
  const std::string path(TensorName(entry.id.name).path);
  return is_parameter_kind(entry.id.kind) ? std::string(owner_of(path)) : path;
}

// Entries of parameters do not say the class of their module; those of its calls do.
std::string class_of(const RankTrace& rank, const std::string& module) {
  const auto found = std::find_if(rank.entries.begin(), rank.entries.end(), [&](const Entry& entry) {
    return !entry.module_class.empty() && TensorName(entry.id.name).path == module;
  });
  return found == rank.entries.end() ? "" : found->module_class;
}

ModuleSource source_of(const LogicalTensor& tensor, const Trace& trace) {
  for (const Piece& piece : tensor.pieces()) {
    const auto rank = std::find_if(trace.ranks.begin(), trace.ranks.end(),
                                   [&](const RankTrace& one) { return one.rank == piece.rank && one.sources; });
    if (rank == trace.ranks.end() || piece.entry == nullptr) continue;
    const std::string module = module_of(*piece.entry);
    return rank->sources->of(module, class_of(*rank, module));
  }
  return {};
}

}  // namespace

void add_sources(Report& report, const Alignment& candidate, const Trace& trace, const Trace& reference) {
  const auto says =
      std::ranges::find_if(reference.ranks, [](const RankTrace& rank) { return rank.sources != nullptr; });
  for (RootCause& root : report.explanation.roots) {
    const Finding& finding = report.findings[root.finding];
    const auto tensor = candidate.tensors.find(finding.id);
    if (!root.examined) continue;
    if (!is_of_optimizer(finding) && tensor != candidate.tensors.end()) root.source = source_of(tensor->second, trace);
    if (says == reference.ranks.end()) continue;
    const bool is_of_other = is_of_other_model(candidate, finding.id);
    root.source.variable = says->sources->variable_of(finding.id.name.get(), is_of_other);
  }
}

}  // namespace ttrace
