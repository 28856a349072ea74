#include "annotate/misplaced.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include "annotate/sequence.h"
#include "base/mesh.h"
#include "base/tensor_name.h"
#include "judge/match.h"

namespace ttrace {
namespace {

bool is_constant(const Piece& piece) {
  const auto element = static_cast<std::uint64_t>(size_of(piece.entry->dtype));
  return piece.entry->bytes <= element ||
         std::memcmp(piece.elements(), piece.elements() + element, piece.entry->bytes - element) == 0;
}

bool has_shape(const std::vector<Piece>& pieces, const Shape& shape) {
  return std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) { return piece.entry->shape == shape; });
}

// The rule that places the tensor; null where none does, or what the program recorded takes its place.
const AnnotationRule* rule_of(const LogicalTensor& tensor, const std::vector<Piece>& pieces,
                              const Annotations& annotations) {
  const bool by_program = pieces.empty() || (pieces[0].entry->mapping && pieces[0].entry->mapping->axes);
  return by_program ? nullptr : rule_for(annotations, tensor.id.kind, tensor.id.name);
}

// The axes with more than one rank that the rule splits the tensor over.
std::vector<const AxisPlacement*> splits_of(const AnnotationRule& rule, const Mesh& mesh) {
  std::vector<const AxisPlacement*> splits;
  for (const AxisPlacement& axis : rule.axes) {
    if (axis.placement == Placement::kShard && size_of_axis(mesh, axis.axis) > 1) splits.push_back(&axis);
  }
  return splits;
}

std::string dimension_that_fits(const Shape& local, const Shape& whole, const AxisPlacement& axis, const Mesh& mesh) {
  std::vector<std::string> fitting;
  bool others_equal = local.size() == whole.size();
  for (std::size_t d = 0; others_equal && d < local.size(); ++d) {
    if (local[d] == whole[d]) continue;
    others_equal = fitting.empty() && local[d] * size_of_axis(mesh, axis.axis) == whole[d];
    fitting.push_back(fmt::format("{}_dim: {}", axis.axis, d));
  }
  return others_equal && fitting.size() == 1 ? fitting[0] : "";
}

class MisplacedTensor {
 public:
  MisplacedTensor(const LogicalTensor& tensor, const std::vector<Piece>& pieces, const AnnotationRule& rule,
                  const Mesh& mesh)
      : tensor_(tensor), pieces_(pieces), rule_(rule), mesh_(mesh), splits_(splits_of(rule, mesh)) {}

  std::string describe(const LogicalTensor* reference) const {
    if (splits_.empty()) return "";
    if (reference == nullptr) {
      const bool is_activation = tensor_.id.kind == Kind::kInput || tensor_.id.kind == Kind::kOutput;
      if (!is_activation || !is_same_on_all_ranks(tensor_)) return "";
      return fmt::format("splits {}, of which all ranks hold the same {}; {}", subject(),
                         to_string(pieces_[0].entry->shape), advice("{}"));
    }
    if (reference->shape == tensor_.shape) return "";
    if (has_shape(pieces_, reference->shape)) {
      return fmt::format("splits {}, of which every rank holds all of the reference's {}; {}", subject(),
                         to_string(reference->shape), advice("{}"));
    }
    const Shape& local = pieces_[0].entry->shape;
    const std::string fitting =
        splits_.size() == 1 ? dimension_that_fits(local, reference->shape, *splits_[0], mesh_) : "";
    return fmt::format("makes {} of {}'s parts of {}, where the reference has {}; {}", to_string(tensor_.shape),
                       subject(), to_string(local), to_string(reference->shape),
                       fitting.empty() ? "expected a rule of its own" : advice("{" + fitting + "}"));
  }

 private:
  std::string subject() const { return fmt::format("{} {}", printable(tensor_.id.name), name_of(tensor_.id.kind)); }

  // Says what to write, under the rule's own pattern for a tensor of its own and under the member's for one of several.
  std::string advice(const std::string& placement) const {
    if (is_parameter_kind(tensor_.id.kind)) return fmt::format("expected `{}` as what it says", placement);
    const std::string_view member = TensorName(tensor_.id.name).member;
    const bool is_of_member = !TensorName(rule_.pattern).member.empty();
    const std::string pattern = is_of_member ? rule_.pattern : fmt::format("{}{}", rule_.pattern, member);
    return fmt::format("expected `{}: {{{}: {}}}`", printable(pattern), name_of(tensor_.id.kind), placement);
  }

  const LogicalTensor& tensor_;
  const std::vector<Piece>& pieces_;
  const AnnotationRule& rule_;
  const Mesh& mesh_;
  const std::vector<const AxisPlacement*> splits_;
};

}  // namespace

bool has_equal_copies(const LogicalTensor& tensor) {
  std::set<std::int32_t> ranks;
  std::set<std::uint64_t> checksums;
  for (const Piece& piece : tensor.pieces()) {
    ranks.insert(piece.rank);
    checksums.insert(piece.entry->checksum);
  }
  return ranks.size() > 1 && checksums.size() == 1;
}

bool is_same_on_all_ranks(const LogicalTensor& tensor) {
  return has_equal_copies(tensor) && !is_constant(tensor.pieces()[0]);
}

std::vector<Misplacement> find_misplaced(const AlignedTrace& aligned, const Annotations& annotations,
                                         const Alignment* reference) {
  Mesh mesh = aligned.trace->mesh;
  mesh.aliases = aligned.alignment.aliases;
  std::set<std::tuple<const AnnotationRule*, Kind, std::string>> reported;
  std::vector<Misplacement> found;
  for (const auto& [id, tensor] : aligned.alignment.tensors) {
    if (tensor.rows) continue;
    const LogicalTensor* same = reference == nullptr ? nullptr : counterpart(*reference, id);
    if (reference != nullptr && same == nullptr) continue;
    const std::vector<Piece> pieces = tensor.pieces();
    const AnnotationRule* rule = rule_of(tensor, pieces, annotations);
    if (rule == nullptr) continue;
    const std::string text = MisplacedTensor(tensor, pieces, *rule, mesh).describe(same);
    const std::string member(TensorName(id.name).member);
    if (!text.empty() && reported.emplace(rule, id.kind, member).second) found.push_back({rule, text});
  }
  return found;
}

std::int64_t count_whole_sequences(const AlignedTrace& aligned, const Annotations& annotations,
                                   const Alignment* reference) {
  const Mesh& mesh = aligned.trace->mesh;
  const bool is_said = mesh.aliases.contains(kSequenceAxis) && size_of_axis(mesh, kSequenceAxis) > 1;
  if (!is_said) return 0;
  if (reference != nullptr && aligned.alignment.aliases.contains(kSequenceAxis)) return 0;
  std::int64_t whole = 0;
  for (const auto& [id, tensor] : aligned.alignment.tensors) {
    if (id.kind != Kind::kInput && id.kind != Kind::kOutput) continue;
    const std::vector<Piece> pieces = tensor.pieces();
    const AnnotationRule* rule = rule_of(tensor, pieces, annotations);
    if (rule == nullptr) continue;
    const bool names_sequence = std::any_of(rule->axes.begin(), rule->axes.end(), [](const AxisPlacement& axis) {
      return axis.axis == kSequenceAxis && axis.placement == Placement::kShard;
    });
    if (!names_sequence) continue;
    if (reference == nullptr && !is_same_on_all_ranks(tensor)) return 0;
    ++whole;
  }
  return whole;
}

}  // namespace ttrace
