#include "judge/declared_sums.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/count_of.h"
#include "base/mesh.h"
#include "identify/resolved_annotations.h"

namespace ttrace {
namespace {

struct DeclaredSum {
  const AxisUse* axis = nullptr;
  std::set<Kind> kinds;
  std::set<std::string> names;
};

bool is_placed_by_program(const LogicalTensor& tensor) {
  const std::vector<Piece> pieces = tensor.pieces();
  return std::any_of(pieces.begin(), pieces.end(),
                     [](const Piece& piece) { return piece.entry->mapping && piece.entry->mapping->axes; });
}

// The parameters whose main gradients or steps the trace has.
std::set<std::string> stepped_parameters(const Alignment& alignment) {
  std::set<std::string> names;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind == Kind::kMainGrad || id.kind == Kind::kParamDelta) names.insert(id.name);
  }
  return names;
}

std::string describe(const AnnotationRule& rule, const DeclaredSum& sum) {
  std::vector<std::string> kinds;
  for (const Kind kind : sum.kinds) kinds.emplace_back(name_of(kind));
  const bool of_backward = sum.kinds == std::set<Kind>{Kind::kParamGrad};
  return fmt::format(
      "{}: {}: {} adds up what ranks hold of {} tensor{} ({}), {}: a forgotten all-reduce looks the same",
      where(rule, sum.axis->line), sum.axis->split.axis, sum.axis->mean ? "mean" : "partial", sum.names.size(),
      sum.names.size() == 1 ? "" : "s", fmt::join(kinds, ", "),
      of_backward ? "and no main gradient shows that the program does"
                  : "which each rank's optimizer uses as it holds them");
}

bool is_sum_by_program(const LogicalTensor& tensor) {
  const std::vector<Piece> pieces = tensor.pieces();
  return std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
    if (!piece.entry->mapping || !piece.entry->mapping->axes) return false;
    const auto& axes = *piece.entry->mapping->axes;
    return std::any_of(axes.begin(), axes.end(), [](const RecordedMapping::Axis& axis) {
      return axis.size > 1 && axis.placement.placement == Placement::kPartial;
    });
  });
}

std::optional<std::string> note_of_sums_of_program(const Alignment& candidate) {
  std::set<std::string> kinds, names;
  for (const auto& [id, tensor] : candidate.tensors) {
    if (!is_parameter_kind(id.kind) || id.kind == Kind::kParamGrad || !is_sum_by_program(tensor)) continue;
    kinds.emplace(name_of(id.kind));
    names.insert(id.name);
  }
  if (names.empty()) return std::nullopt;
  return fmt::format(
      "candidate: its ranks record terms of a sum of {} ({}), such as {}, which each rank's optimizer uses as it holds "
      "them: a forgotten all-reduce looks the same",
      count_of(static_cast<std::int64_t>(names.size()), "tensor"), fmt::join(kinds, ", "), printable(*names.begin()));
}

}  // namespace

std::vector<std::string> notes_of_declared_sums(const Annotations& annotations, const AlignedTrace& candidate) {
  Mesh mesh = candidate.trace->mesh;
  mesh.aliases = candidate.alignment.aliases;
  const ResolvedAnnotations resolved = resolve(annotations, mesh);
  const std::set<std::string> stepped = stepped_parameters(candidate.alignment);
  std::map<std::tuple<std::string, int, const AnnotationRule*>, DeclaredSum> sums;  // in the order of the lines
  for (const auto& [id, tensor] : candidate.alignment.tensors) {
    if (!is_parameter_kind(id.kind) || (id.kind == Kind::kParamGrad && stepped.contains(id.name))) continue;
    const AnnotationRule* rule = rule_for(resolved.said, id.kind, id.name);
    if (rule == nullptr) continue;
    for (const AxisUse& use : resolved.uses_of(*rule)) {
      if (use.placement != Placement::kPartial || use.split.size == 1) continue;
      if (is_placed_by_program(tensor)) continue;
      DeclaredSum& sum = sums[{rule->source.file, use.line, rule}];
      sum.axis = &use;
      sum.kinds.insert(id.kind);
      sum.names.insert(id.name);
    }
  }
  std::vector<std::string> notes;
  for (const auto& [key, sum] : sums) notes.push_back(describe(*std::get<2>(key), sum));
  if (auto note = note_of_sums_of_program(candidate.alignment)) notes.push_back(std::move(*note));
  return notes;
}

}  // namespace ttrace
