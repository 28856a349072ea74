#include "align/open_subject.h"

#include <algorithm>

#include "base/lookup.h"

namespace ttrace {
namespace {

// One dimension of a tensor: the sizes of its parts, as the shards have them.
struct Parts {
  std::vector<const AxisUse*> uses;  // that split it, outermost first
  std::vector<std::int64_t> sizes;   // by the parts' index, -1 where no shard is
  bool sums_up = true;               // the whole is the sum of the parts
  bool padded = false;               // by deduction: the whole ends where the reference's does
  std::int64_t overlap = 0;          // by deduction: so many elements lie in two neighbours

  std::size_t index_of(const PresentRank& rank) const {
    std::int64_t index = 0;
    for (const AxisUse* use : uses) index = index * use->split.size + coordinate_on(rank, use->axis);
    return static_cast<std::size_t>(index);
  }
};

// Nothing where a rule names a dimension that the tensor lacks.
std::optional<std::vector<Parts>> parts_of(const TensorPlacement& placement, std::size_t dims) {
  std::vector<Parts> parts(dims);
  for (const AxisUse& use : placement.uses) {
    if (use.placement != Placement::kShard) continue;
    const int dim = use.dim < 0 ? use.dim + static_cast<int>(dims) : use.dim;
    if (dim < 0 || dim >= static_cast<int>(dims)) return std::nullopt;
    Parts& split = parts[static_cast<std::size_t>(dim)];
    split.uses.push_back(&use);
    split.sums_up = split.sums_up && !use.unpadded && use.cu_seqlens.empty() && !use.split.layout->parts_share_elements;
    split.padded = split.padded || (use.deduced && use.unpadded);
    const auto overlap = use.split.options.find("overlap");
    if (use.deduced && overlap != use.split.options.end()) split.overlap = overlap->second[0];
  }
  for (Parts& split : parts) {
    std::int64_t count = 1;
    for (const AxisUse* use : split.uses) count *= use->split.size;
    split.sizes.assign(static_cast<std::size_t>(count), -1);
  }
  return parts;
}

// True where the parts are equal, none of them is as long as the whole, and together they are at least that long: so a
// program lets its vocabulary, or a sequence, divide by the ranks.
bool may_be_padded(const Parts& split, std::int64_t whole) {
  const std::int64_t size = split.sizes[0];
  const bool are_equal = std::all_of(split.sizes.begin(), split.sizes.end(), [&](std::int64_t n) { return n == size; });
  return are_equal && size > 0 && size < whole && size * std::ssize(split.sizes) >= whole;
}

}  // namespace

const Shape* reference_shape(const ModelLayout& layout, TensorId id) {
  const LogicalTensor* tensor = find_tensor(*layout.reference, id);
  if (tensor == nullptr) {
    id.pass = Pass::kForward;  // the reference did not recompute
    tensor = find_tensor(*layout.reference, id);
  }
  return tensor == nullptr ? nullptr : &tensor->shape;
}

TensorPlacement placed(const OpenSubject& subject, const Assignment& assignment, const Layout* slice_layout) {
  const std::vector<OpenAxis>& open = subject.open;
  TensorPlacement placement = *subject.given;
  std::optional<Longer> longer = subject.longer;
  std::vector<AxisUse> uses;
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (assignment[i] < 0) continue;
    AxisUse use;
    use.axis = open[i].axis;
    use.placement = Placement::kShard;
    use.deduced = true;
    use.dim = assignment[i];
    use.split.size = open[i].size;
    use.split.axis = open[i].name;
    if (open[i].slices) use.split.layout = slice_layout;
    if (subject.blocks && subject.blocks->axis == open[i].axis) {
      use.split.layout = find_layout("stacked");
      use.split.options = {{"blocks", subject.blocks->sizes}};
    }
    if (longer && longer->dim == assignment[i]) {
      if (longer->overlap == 0) {
        use.unpadded = kReferenceExtent;
      } else {
        use.split.layout = find_layout("halo");
        use.split.options = {{"overlap", {longer->overlap}}};
      }
      longer.reset();  // the outermost axis says it for all of them
    }
    uses.push_back(std::move(use));
  }
  placement.uses.insert(placement.uses.begin(), uses.begin(), uses.end());
  return placement;
}

std::optional<std::vector<bool>> explained_dimensions(const Group& group, const Shape& reference,
                                                      const TensorPlacement& placement, const Dimensions& cut) {
  auto parts = parts_of(placement, reference.size());
  if (!parts) return std::nullopt;
  std::vector<bool> explained(reference.size(), true);
  for (const Shard& shard : group.shards) {
    const Shape& shape = own_shape(*shard.entry);
    if (shape.size() != reference.size()) return std::nullopt;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      std::int64_t& size = (*parts)[d].sizes[(*parts)[d].index_of(*shard.holder)];
      if (size >= 0 && size != shape[d]) explained[d] = false;
      size = shape[d];
    }
  }
  for (std::size_t d = 0; d < reference.size(); ++d) {
    const Parts& split = (*parts)[d];
    if (split.padded && !may_be_padded(split, reference[d])) explained[d] = false;
    if (!split.sums_up && split.overlap == 0) continue;
    const auto known = std::find_if(split.sizes.begin(), split.sizes.end(), [](std::int64_t n) { return n >= 0; });
    std::int64_t sum = -split.overlap * (std::ssize(split.sizes) - 1);
    // As `lay_out` does, a part that no rank holds is taken to be as large as another.
    for (const std::int64_t size : split.sizes) sum += size >= 0 ? size : *known;
    if (sum != reference[d]) explained[d] = false;
  }
  for (const std::size_t d : cut) explained[d] = true;
  return explained;
}

bool explains(const Group& group, const Shape& reference, const TensorPlacement& placement, const Dimensions& cut) {
  const auto explained = explained_dimensions(group, reference, placement, cut);
  return explained && std::find(explained->begin(), explained->end(), false) == explained->end();
}

Dimensions cut_dimensions(const Group& group, const Shape& reference, const RankTable& table,
                          const Microbatches& microbatches) {
  Dimensions cut;
  if (microbatches.samples.lengths.empty()) return cut;
  for (std::size_t d = 0; d < reference.size(); ++d) {
    std::vector<std::int64_t> own(static_cast<std::size_t>(microbatches.ranks), -1);
    for (const Shard& shard : group.shards) {
      if (shard.entry->sketch != nullptr || shard.entry->shape.size() != reference.size()) return {};
      own[static_cast<std::size_t>(coordinate_on(*shard.holder, table, microbatches))] = shard.entry->shape[d];
    }
    if (microbatches.samples.are_own_lengths(group.id, reference[d], own)) cut.push_back(d);
  }
  return cut;
}

Kind lead_of(Kind kind) {
  if (kind == Kind::kGradOutput) return Kind::kOutput;
  if (kind == Kind::kGradInput) return Kind::kInput;
  if (is_buffer_kind(kind)) return Kind::kBuffer;
  return is_parameter_kind(kind) ? Kind::kParam : kind;
}

bool follows(const OpenSubject& lead, const OpenSubject& subject, const Assignment& assignment) {
  if (!lead.settled) return false;
  for (std::size_t i = 0; i < assignment.size(); ++i) {
    const auto same = std::find_if(lead.open.begin(), lead.open.end(),
                                   [&](const OpenAxis& other) { return other.axis == subject.open[i].axis; });
    if (same == lead.open.end()) return false;
    if ((*lead.settled)[static_cast<std::size_t>(same - lead.open.begin())] != assignment[i]) return false;
  }
  return true;
}

bool is_term(const Group& group, const OpenAxis& axis) {
  if (!axis.slices) return false;
  const Kind kind = group.id.kind;
  if (is_term_of_loss(group.loss) || group.loss == LossRole::kTermOfSum) return true;
  if (group.loss == LossRole::kGradient || group.loss == LossRole::kGradientOfSum) return false;
  return kind == Kind::kGradOutput || kind == Kind::kGradInput || kind == Kind::kParamGrad;
}

}  // namespace ttrace
