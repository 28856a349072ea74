#include "judge/lone_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "align/passed_on.h"
#include "align/recorded_bits.h"
#include "base/count_of.h"
#include "base/describe.h"
#include "base/tensor_name.h"
#include "sketch/cells.h"

namespace ttrace {
namespace {

bool is_made(Kind kind) { return kind == Kind::kOutput || kind == Kind::kGradInput; }
bool is_given(Kind kind) { return kind == Kind::kInput || kind == Kind::kGradOutput; }

bool is_zero(const Piece& piece) {
  const Entry& entry = *piece.entry;
  if (!entry.sketch) return statistics_of(piece.elements(), entry.dtype, element_count(entry.shape)).norm == 0;
  for (std::uint64_t at = 0; at < entry.bytes; at += bytes_of_cell(entry.dtype)) {
    if (read_cell(piece.data + at, entry.dtype).square != 0) return false;
  }
  return true;
}

bool is_zero(const LogicalTensor& tensor) {
  const std::vector<Piece> pieces = tensor.pieces();
  return std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return is_zero(piece); });
}

// The modules and parameters of a side, and the tensors of each.
class Paths {
 public:
  explicit Paths(const Alignment& side) : side_(side) {
    for (const auto& [id, tensor] : side.tensors) {
      const bool is_of_module = id.kind != Kind::kScalar;  // a loss may have the name of a module
      if (is_of_module) tensors_[std::string(TensorName(id.name).path)].push_back(id);
    }
    for (const Finding& finding : side.findings) in_part_.emplace(TensorName(finding.id.name).path);
  }

  // True where the side holds something of the module, or of what is inside it, be it in part.
  bool has_any(const std::string& module) const {
    return tensors_.contains(module) || in_part_.contains(module) || has_inside(module);
  }

  bool is_no_op(const std::string& module) const {
    const auto found = tensors_.find(module);
    if (found == tensors_.end() || in_part_.contains(module) || has_inside(module)) return false;
    std::set<TensorId> given, passed_on;
    for (const TensorId& id : found->second) {
      if (is_given(id.kind)) given.insert(id);
    }
    if (given.empty()) return false;
    bool has_values = false;
    for (const TensorId& id : found->second) {
      if (is_given(id.kind)) continue;
      const LogicalTensor& made = side_.tensors.at(id);
      const LogicalTensor* from = is_made(id.kind) ? passed_on_from(side_, id) : nullptr;
      if (from == nullptr || from->shape != made.shape || from->dtype != made.dtype) return false;
      passed_on.insert(from->id);
      has_values = has_values || (id.kind == Kind::kOutput && !is_zero(made));
    }
    return has_values && given == passed_on;
  }

  // True where the side calls nothing but modules inside of it.
  bool calls_parts_alone(const std::string& module) const {
    return !tensors_.contains(module) && !in_part_.contains(module) &&
           has_inside_of(module, [](Kind kind) { return is_made(kind) || is_given(kind); });
  }

  // True where what the module is given and makes has the bits of what modules inside are given and make, each of which
  // `other` holds as well.
  bool is_shown_by_parts(const std::string& module, const Paths& other) const {
    const auto found = tensors_.find(module);
    return found != tensors_.end() && !in_part_.contains(module) &&
           std::ranges::all_of(found->second, [&](const TensorId& id) { return is_shown_inside(id, module, other); });
  }

  bool has_parameters(const std::string& module) const { return has_inside_of(module, is_parameter_kind); }

 private:
  bool is_shown_inside(const TensorId& whole, const std::string& module, const Paths& other) const {
    const LogicalTensor& tensor = side_.tensors.at(whole);
    const std::string inside = module + ".";
    for (auto at = tensors_.lower_bound(inside); at != tensors_.end() && at->first.starts_with(inside); ++at) {
      const bool is_shown = std::ranges::any_of(at->second, [&](const TensorId& id) {
        TensorId same = id;
        same.name = whole.name;
        return same == whole && other.side_.tensors.contains(id) &&
               have_same_recorded_bits(side_.tensors.at(id), tensor);
      });
      if (is_shown) return true;
    }
    return false;
  }

  bool has_inside_of(const std::string& module, const std::function<bool(Kind)>& is_of_kind) const {
    const std::string inside = module + ".";
    for (auto at = tensors_.lower_bound(inside); at != tensors_.end() && at->first.starts_with(inside); ++at) {
      const std::vector<TensorId>& ids = at->second;
      if (std::any_of(ids.begin(), ids.end(), [&](const TensorId& id) { return is_of_kind(id.kind); })) return true;
    }
    return false;
  }

  bool has_inside(const std::string& module) const {
    const std::string inside = module + ".";
    const auto tensor = tensors_.lower_bound(inside);
    const auto part = in_part_.lower_bound(inside);
    return (tensor != tensors_.end() && tensor->first.starts_with(inside)) ||
           (part != in_part_.end() && part->starts_with(inside));
  }

  const Alignment& side_;
  std::map<std::string, std::vector<TensorId>> tensors_;
  std::set<std::string> in_part_;
};

// Waives the findings for this reason about modules that are `harmless`, and writes a note.
void waive(Reason reason, const std::function<bool(const std::string&)>& is_harmless, std::string_view which,
           Matching& matching) {
  std::map<std::string, bool> modules;  // whether they are harmless
  const auto is_waived = [&](const Finding& finding) {
    if (finding.verdict != Verdict::kMissing || finding.reason != reason || finding.id.kind == Kind::kScalar ||
        is_parameter_kind(finding.id.kind)) {
      return false;
    }
    const std::string module(TensorName(finding.id.name).path);
    const auto [known, is_new] = modules.try_emplace(module);
    if (is_new) known->second = is_harmless(module);
    return known->second;
  };
  const std::size_t waived = std::erase_if(matching.findings, is_waived);
  if (waived == 0) return;
  std::set<std::string> names;
  for (const auto& [module, is_known_harmless] : modules) {
    if (is_known_harmless) names.insert(printable(without_numbers(module)));
  }
  matching.waived += static_cast<std::int64_t>(waived);
  matching.notes.push_back(fmt::format("waived: {} of modules that {}: {}", count_of(waived, "tensor"), which,
                                       comma_list(std::vector<std::string>(names.begin(), names.end()))));
}

}  // namespace

void waive_lone_modules(const Alignment& reference, const Alignment& candidate, Matching& matching) {
  const bool lacks = std::any_of(matching.findings.begin(), matching.findings.end(),
                                 [](const Finding& finding) { return finding.verdict == Verdict::kMissing; });
  if (!lacks) return;
  const Paths of_reference(reference), of_candidate(candidate);
  waive(
      Reason::kMissingInCandidate,
      [&](const std::string& module) { return !of_candidate.has_any(module) && of_reference.is_no_op(module); },
      "the candidate does not call, and that return what they are given, bit for bit", matching);
  waive(
      Reason::kMissingInReference,
      [&](const std::string& module) { return !of_reference.has_any(module) && of_candidate.is_no_op(module); },
      "the reference does not call, and that return what they are given, bit for bit", matching);
  waive(
      Reason::kMissingInReference,
      [&](const std::string& module) {
        return module != kRootModule && !of_reference.has_any(module) && !of_candidate.has_parameters(module);
      },
      "the reference does not have, and that have no parameters; what they do shows in the modules after them",
      matching);
  waive(
      Reason::kMissingInReference,
      [&](const std::string& module) { return module != kRootModule && of_reference.calls_parts_alone(module); },
      "the reference does not call, but what is inside them; what they do shows there", matching);
  waive(
      Reason::kMissingInCandidate,
      [&](const std::string& module) {
        return of_candidate.calls_parts_alone(module) && of_reference.is_shown_by_parts(module, of_candidate);
      },
      "the candidate does not call, but what is inside them; what they are given and make shows there, bit for bit",
      matching);
}

}  // namespace ttrace
