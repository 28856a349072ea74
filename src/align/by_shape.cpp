#include "align/by_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "align/flat_rows.h"
#include "align/fragment.h"
#include "align/halo.h"
#include "base/axis_names.h"
#include "base/describe.h"
#include "base/lookup.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

// An axis of which it is open how a tensor lies along it.
struct OpenAxis {
  int axis = -1;  // index into the table's axes
  std::int64_t size = 1;
  std::string name;
  bool slices = false;
};

constexpr std::string_view kOpenPacking =
    "packed sequences, whose rows lie step by step among those of the rank's own samples: nothing tells which of the "
    "reference's samples these are";

// For each open axis, the dimension that it splits; -1: none.
using Assignment = std::vector<int>;

// A dimension whose parts are together longer than the reference's: behind its end they are padding, or each begins
// with the last elements of the one before it.
struct Longer {
  int dim = 0;
  std::int64_t overlap = 0;  // so many elements; 0: padding
  friend bool operator==(const Longer&, const Longer&) = default;
};

// All tensors of one name and kind, which lie alike.
struct Subject {
  std::vector<Group*> groups;
  std::vector<std::pair<const Group*, const Shape*>> known;  // those that the reference has, with its shape
  const TensorPlacement* given = nullptr;
  std::vector<OpenAxis> open;
  std::vector<Assignment> candidates;
  std::optional<Assignment> settled;
  std::optional<Longer> longer;
  std::map<const Group*, FlatRows> flat;
};

const Shape* reference_shape(const ModelLayout& layout, TensorId id) {
  const LogicalTensor* tensor = find_tensor(*layout.reference, id);
  if (tensor == nullptr) {
    id.pass = Pass::kForward;  // the reference did not recompute
    tensor = find_tensor(*layout.reference, id);
  }
  return tensor == nullptr ? nullptr : &tensor->shape;
}

// The placement with the open axes as assigned. Of the axes of one dimension those that are given come last, innermost:
// they are of the model, while an open one beside them is a slice of the batch. `slice_layout` is the layout of slices;
// `longer` as in Subject.
TensorPlacement placed(const TensorPlacement& given, const std::vector<OpenAxis>& open, const Assignment& assignment,
                       const Layout* slice_layout, std::optional<Longer> longer) {
  TensorPlacement placement = given;
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

using Dimensions = std::vector<std::size_t>;

// Tells for each dimension whether the placement explains the sizes that the shards have in it; nothing where the
// shards have another number of dimensions than the reference. Inputs explain those that are `cut`.
std::optional<std::vector<bool>> explained_dimensions(const Group& group, const Shape& reference,
                                                      const TensorPlacement& placement, const Dimensions& cut = {}) {
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

bool explains(const Group& group, const Shape& reference, const TensorPlacement& placement,
              const Dimensions& cut = {}) {
  const auto explained = explained_dimensions(group, reference, placement, cut);
  return explained && std::find(explained->begin(), explained->end(), false) == explained->end();
}

// Calls `visit` with each assignment of the open axes to these dimensions, or to none.
template <typename Visit>
void for_each_assignment(std::size_t open, const std::vector<int>& dims, const Visit& visit) {
  Assignment assignment(open, -1);
  std::vector<std::size_t> choice(open, 0);  // 0: none
  while (true) {
    visit(assignment);
    std::size_t i = 0;
    for (; i < open && choice[i] == dims.size(); ++i) {
      choice[i] = 0;
      assignment[i] = -1;
    }
    if (i == open) return;
    assignment[i] = dims[choice[i]++];
  }
}

class ShapePlacer {
 public:
  ShapePlacer(Grouping& grouping, const RankTable& table, const ResolvedAnnotations& annotations,
              const ModelLayout& layout)
      : grouping_(grouping), table_(table), known_axes_(annotations.known_axes), layout_(layout) {}

  void run() {
    collect();
    for (auto& [key, subject] : subjects_) find_candidates(key, subject);
    for (auto& [key, subject] : subjects_) keep_those_with_equal_copies(subject);
    while (settle_by_others()) {
    }
    for (auto& [key, subject] : subjects_) place(key, subject);
  }

 private:
  // A program may record several mappings of one name and kind, and run slices of some micro-batches alone.
  struct Key {
    std::string name;
    Kind kind;
    const RecordedMapping* recorded;
    bool sliced;
    friend auto operator<=>(const Key&, const Key&) = default;

    Key lead() const { return {name, lead_of(kind), recorded, sliced}; }
  };

  bool are_slices(const Group& group) const {
    return grouping_.microbatches.is_sliced(group.id.iteration, group.id.microbatch);
  }

  bool is_microbatch_axis(int axis) const {
    const std::vector<int>& axes = grouping_.microbatches.axes;
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  }

  // True where the tensor has a rule that was written without a thought of this axis.
  bool is_beyond_the_rules(const TensorPlacement& placement, int axis) const {
    return placement.rule != nullptr && !known_axes_.empty() &&
           std::find(known_axes_.begin(), known_axes_.end(), axis) == known_axes_.end();
  }

  std::vector<OpenAxis> open_axes(const Group& group) const {
    std::vector<OpenAxis> open;
    const std::vector<std::size_t>& factoring = table_.factorings[group.placement->factoring].axes;
    for (std::size_t i = factoring.size(); i-- > 0;) {  // the slowest first
      const auto axis = static_cast<int>(factoring[i]);
      const bool is_of_samples = group.id.microbatch >= 0 || group.loss == LossRole::kOwnGradient;
      const bool is_lone_loss = grouping_.microbatches.is_lone_loss(group.id) && is_microbatch_axis(axis);
      const bool slices = (is_of_samples && are_slices(group) && is_microbatch_axis(axis)) || is_lone_loss;
      const bool selects = group.microbatches != MicrobatchUse::kNone && is_microbatch_axis(axis);
      const bool is_the_experts = group.expert && axis == grouping_.experts.axis;
      if (table_.axes[factoring[i]].size == 1 || axis == grouping_.pipeline.axis || selects || is_the_experts) continue;
      if (names_axis(*group.placement, axis)) continue;
      if (group.placement->is_placed() && !slices && !is_beyond_the_rules(*group.placement, axis)) continue;
      open.push_back({axis, table_.axes[factoring[i]].size, table_.axes[factoring[i]].name, slices});
    }
    return open;
  }

  void collect() {
    for (Group& group : grouping_.groups) {
      if (group.shards.empty() || group.owned) continue;
      std::vector<OpenAxis> open = open_axes(group);
      if (open.empty()) continue;
      Subject& subject = subjects_[{group.id.name, group.id.kind, group.placement->recorded, are_slices(group)}];
      subject.given = group.placement;
      subject.open = std::move(open);
      subject.groups.push_back(&group);
      const Shape* reference = layout_.reference == nullptr ? nullptr : reference_shape(layout_, group.id);
      if (reference != nullptr) subject.known.emplace_back(&group, reference);
    }
  }

  TensorPlacement placed(const Subject& subject, const Assignment& assignment) const {
    const std::string& said = grouping_.microbatches.layout;
    return ttrace::placed(*subject.given, subject.open, assignment, find_layout(said.empty() ? "contiguous" : said),
                          subject.longer);
  }

  // The dimensions in which each rank's part is as long as the inputs that it padded to the longest of its own samples.
  Dimensions cut_dimensions(const Group& group, const Shape& reference) const {
    const Microbatches& microbatches = grouping_.microbatches;
    Dimensions cut;
    if (microbatches.samples.lengths.empty()) return cut;
    for (std::size_t d = 0; d < reference.size(); ++d) {
      std::vector<std::int64_t> own(static_cast<std::size_t>(microbatches.ranks), -1);
      for (const Shard& shard : group.shards) {
        if (shard.entry->sketch != nullptr || shard.entry->shape.size() != reference.size()) return {};
        own[static_cast<std::size_t>(coordinate_on(*shard.holder, table_, microbatches))] = shard.entry->shape[d];
      }
      if (microbatches.samples.are_own_lengths(group.id, reference[d], own)) cut.push_back(d);
    }
    return cut;
  }

  // The rows of a tensor of one or two dimensions, where they are the positions of padded samples.
  std::optional<FlatRows> flat_rows_of(const Group& group, const Shape& reference) const {
    const Microbatches& microbatches = grouping_.microbatches;
    if (microbatches.samples.lengths.empty() || reference.empty() || reference.size() > 2) return std::nullopt;
    std::vector<std::int64_t> own(static_cast<std::size_t>(microbatches.ranks), -1);
    for (const Shard& shard : group.shards) {
      const Shape& shape = shard.entry->shape;
      const bool fits =
          shape.size() == reference.size() && std::equal(shape.begin() + 1, shape.end(), reference.begin() + 1);
      if (!fits || shard.entry->sketch != nullptr) return std::nullopt;
      own[static_cast<std::size_t>(coordinate_on(*shard.holder, table_, microbatches))] = shape[0];
    }
    return flat_rows(microbatches.samples, group.id, reference[0], own);
  }

  // Settles the subject where its rows are the positions of padded samples; of micro-batches without padding they may be
  // whole samples.
  bool settle_flat(Subject& subject) const {
    if (!std::all_of(subject.open.begin(), subject.open.end(), [](const OpenAxis& axis) { return axis.slices; })) {
      return false;
    }
    const Assignment assignment(subject.open.size(), 0);
    const TensorPlacement placement = placed(subject, assignment);
    for (const auto& [group, reference] : subject.known) {
      if (auto flat = flat_rows_of(*group, *reference)) {
        subject.flat.emplace(group, std::move(*flat));
      } else if (!explains(*group, *reference, placement)) {
        subject.flat.clear();
        return false;
      }
    }
    if (subject.flat.empty()) return false;
    subject.candidates = {assignment};
    subject.settled = assignment;
    return true;
  }

  void find_candidates(const Key& key, Subject& subject) const {
    if (subject.known.empty() || settle_flat(subject)) return;
    std::set<int> dims;
    for (const auto& [group, reference] : subject.known) {
      const auto explained =
          explained_dimensions(*group, *reference, *subject.given, cut_dimensions(*group, *reference));
      if (!explained) return;
      for (std::size_t d = 0; d < explained->size(); ++d) {
        if (!(*explained)[d]) dims.insert(static_cast<int>(d));
      }
    }
    const std::vector<int> split(dims.begin(), dims.end());
    subject.candidates = fitting_assignments(subject, split);
    if (subject.candidates.empty() && !subject.given->is_placed()) find_overlapping(key, subject, split);
    if (subject.candidates.empty() && !subject.given->is_placed()) find_padded(subject, split);
    if (subject.candidates.size() == 1) subject.settled = subject.candidates[0];
  }

  // The assignments to these dimensions that explain the shapes.
  std::vector<Assignment> fitting_assignments(const Subject& subject, const std::vector<int>& dims) const {
    std::vector<Assignment> fitting;
    for_each_assignment(subject.open.size(), dims, [&](const Assignment& assignment) {
      const TensorPlacement placement = placed(subject, assignment);
      const bool fits = std::all_of(subject.known.begin(), subject.known.end(), [&](const auto& item) {
        return explains(*item.first, *item.second, placement, cut_dimensions(*item.first, *item.second));
      });
      if (fits) fitting.push_back(assignment);
    });
    return fitting;
  }

  // Looks for the one dimension whose parts are the reference's and padding behind it. Slices of the batch are not
  // padded: what a rank was given too many of has a gradient.
  void find_padded(Subject& subject, const std::vector<int>& dims) const {
    std::optional<Longer> found;
    for (const int dim : dims) {
      subject.longer = Longer{dim};
      std::vector<Assignment> fitting = fitting_assignments(subject, dims);
      std::erase_if(fitting, [&](const Assignment& assignment) {
        bool pads_model = false, pads_slices = false;
        for (std::size_t i = 0; i < assignment.size(); ++i) {
          if (assignment[i] == dim) (subject.open[i].slices ? pads_slices : pads_model) = true;
        }
        return !pads_model || pads_slices;
      });
      if (fitting.empty()) continue;
      const bool is_ambiguous = found.has_value();
      found = subject.longer;
      subject.candidates = is_ambiguous ? std::vector<Assignment>() : std::move(fitting);
      if (is_ambiguous) break;
    }
    subject.longer = subject.candidates.empty() ? std::nullopt : found;
  }

  // How many elements two neighbours along the axis share in the dimension, as their sizes say; 0 where they say none.
  std::int64_t overlap_of(const Subject& subject, const OpenAxis& axis, int dim) const {
    const auto& [group, reference] = subject.known[0];
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(axis.size), -1);
    for (const Shard& shard : group->shards) {
      sizes[static_cast<std::size_t>(coordinate_on(*shard.holder, axis.axis))] =
          own_shape(*shard.entry)[static_cast<std::size_t>(dim)];
    }
    if (axis.size < 2 || *std::min_element(sizes.begin(), sizes.end()) < 0) return 0;
    const std::int64_t sum = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    const std::int64_t excess = sum - (*reference)[static_cast<std::size_t>(dim)];
    const std::int64_t overlap = excess / (axis.size - 1);
    const bool fits = excess > 0 && excess % (axis.size - 1) == 0 &&
                      std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t size) { return size > overlap; });
    return fits ? overlap : 0;
  }

  // Looks for the one dimension in which each part begins with the last elements of the one before it, as a convolution
  // is given them beside its own. The bytes must say so, since padding may be as long; a gradient follows its value.
  void find_overlapping(const Key& key, Subject& subject, const std::vector<int>& dims) const {
    std::vector<std::pair<Longer, Assignment>> found;
    for (std::size_t i = 0; i < subject.open.size(); ++i) {
      for (const int dim : dims) {
        subject.longer = Longer{dim, overlap_of(subject, subject.open[i], dim)};
        if (subject.longer->overlap == 0) continue;
        for (Assignment& assignment : fitting_assignments(subject, dims)) {
          const bool is_only = assignment[i] == dim && std::count(assignment.begin(), assignment.end(), dim) == 1;
          if (is_only && shows_overlap(key, subject, assignment)) found.emplace_back(*subject.longer, assignment);
        }
      }
    }
    subject.longer.reset();
    if (found.size() != 1) return;
    subject.longer = found[0].first;
    subject.candidates = {found[0].second};
  }

  bool shows_overlap(const Key& key, const Subject& subject, const Assignment& assignment) const {
    const Kind kind = key.kind;
    if (kind != lead_of(kind)) {
      const auto lead = subjects_.find(key.lead());
      return lead != subjects_.end() && lead->second.longer == subject.longer &&
             follows(lead->second, subject, assignment);
    }
    if (kind != Kind::kInput && kind != Kind::kOutput) return false;
    const TensorPlacement placement = placed(subject, assignment);
    return std::all_of(subject.groups.begin(), subject.groups.end(), [&](const Group* group) {
      return neighbours_share(*group, placement, subject.longer->dim, subject.longer->overlap);
    });
  }

  // The shape that all shards have from their start on, where some go on in dimensions that are cut; else nothing.
  std::optional<Shape> common_front(const Group& group) const {
    const Shape* reference = layout_.reference == nullptr ? nullptr : reference_shape(layout_, group.id);
    if (reference == nullptr || cut_dimensions(group, *reference).empty()) return std::nullopt;
    Shape common = *reference;
    for (const Shard& shard : group.shards) {
      for (std::size_t d = 0; d < common.size(); ++d) common[d] = std::min(common[d], shard.entry->shape[d]);
    }
    return common;
  }

  static std::uint64_t checksum_of_front(const Shard& shard, const Shape& front) {
    const std::byte* data = shard.holder->trace->bytes_of(*shard.entry);
    const Shape strides = row_major_strides(shard.entry->shape);
    const std::size_t size = size_of(shard.entry->dtype);
    std::uint64_t checksum = 0;
    for (std::int64_t i = 0; i < element_count(front); ++i) {
      const Shape index = index_at(i, front);
      const std::int64_t at = std::inner_product(index.begin(), index.end(), strides.begin(), std::int64_t{0});
      checksum = XXH3_64bits_withSeed(data + at * static_cast<std::int64_t>(size), size, checksum);
    }
    return checksum;
  }

  // True where all ranks that would hold the same part hold the same bits, as far as each has it. Along an axis of slices a
  // gradient's ranks
  // hold terms.
  bool copies_are_equal(const Subject& subject, const Assignment& assignment) const {
    const TensorPlacement placement = placed(subject, assignment);
    for (const Group* group : subject.groups) {
      const auto common = common_front(*group);
      std::map<std::vector<std::int64_t>, std::uint64_t> checksums;
      for (const Shard& shard : group->shards) {
        std::vector<std::int64_t> part = {shard.occurrence.stage, static_cast<std::int64_t>(shard.occurrence.name),
                                          shard.microbatch};
        for (const AxisUse& use : placement.uses) {
          if (use.placement != Placement::kReplicate) part.push_back(coordinate_on(*shard.holder, use.axis));
        }
        for (std::size_t i = 0; i < subject.open.size(); ++i) {
          if (assignment[i] < 0 && is_term(*group, subject.open[i])) {
            part.push_back(coordinate_on(*shard.holder, subject.open[i].axis));
          }
        }
        const std::uint64_t checksum = common ? checksum_of_front(shard, *common) : shard.entry->checksum;
        const auto [known, is_new] = checksums.emplace(std::move(part), checksum);
        if (!is_new && known->second != checksum) return false;
      }
    }
    return true;
  }

  void keep_those_with_equal_copies(Subject& subject) const {
    if (subject.candidates.size() < 2) return;
    std::vector<Assignment> equal;
    for (const Assignment& assignment : subject.candidates) {
      if (copies_are_equal(subject, assignment)) equal.push_back(assignment);
    }
    if (!equal.empty()) subject.candidates = std::move(equal);
    if (subject.candidates.size() == 1) subject.settled = subject.candidates[0];
  }

  // The kind whose placement this one follows.
  static Kind lead_of(Kind kind) {
    if (kind == Kind::kGradOutput) return Kind::kOutput;
    if (kind == Kind::kGradInput) return Kind::kInput;
    if (is_buffer_kind(kind)) return Kind::kBuffer;
    return is_parameter_kind(kind) ? Kind::kParam : kind;
  }

  // By axis, the sizes of the reference's dimensions that the axis is known to split.
  std::map<int, std::set<std::int64_t>> known_splits() const {
    std::map<int, std::set<std::int64_t>> splits;
    for (const auto& [key, subject] : subjects_) {
      if (!subject.settled) continue;
      for (std::size_t i = 0; i < subject.open.size(); ++i) {
        if (const int dim = (*subject.settled)[i]; dim >= 0) {
          for (const auto& [group, reference] : subject.known) {
            splits[subject.open[i].axis].insert((*reference)[static_cast<std::size_t>(dim)]);
          }
        }
      }
    }
    return splits;
  }

  // True where every axis that the assignment lets split a dimension is known to split one of this size.
  static bool splits_as_known(const Subject& subject, const Assignment& assignment,
                              const std::map<int, std::set<std::int64_t>>& splits) {
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      if (assignment[i] < 0) continue;
      const auto known = splits.find(subject.open[i].axis);
      const std::int64_t size = (*subject.known[0].second)[static_cast<std::size_t>(assignment[i])];
      if (known == splits.end() || !known->second.contains(size)) return false;
    }
    return true;
  }

  // True where no axis splits a dimension of a size that it is not known to split, and of some axis it is known.
  static bool contradicts_nothing(const Subject& subject, const Assignment& assignment,
                                  const std::map<int, std::set<std::int64_t>>& splits) {
    bool any = false;
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      const auto known = splits.find(subject.open[i].axis);
      if (assignment[i] < 0 || known == splits.end()) continue;
      const std::int64_t size = (*subject.known[0].second)[static_cast<std::size_t>(assignment[i])];
      if (!known->second.contains(size)) return false;
      any = true;
    }
    return any;
  }

  // True where the tensor that this one follows lies along all axes as the assignment says.
  bool follows(const Key& key, const Subject& subject, const Assignment& assignment) const {
    const auto lead = subjects_.find(key.lead());
    return lead != subjects_.end() && lead_of(key.kind) != key.kind && follows(lead->second, subject, assignment);
  }

  static bool follows(const Subject& lead, const Subject& subject, const Assignment& assignment) {
    if (!lead.settled) return false;
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      const auto same = std::find_if(lead.open.begin(), lead.open.end(),
                                     [&](const OpenAxis& other) { return other.axis == subject.open[i].axis; });
      if (same == lead.open.end()) return false;
      if ((*lead.settled)[static_cast<std::size_t>(same - lead.open.begin())] != assignment[i]) return false;
    }
    return true;
  }

  // Settles subjects by others that are settled; returns false when none was.
  bool settle_by_others() {
    bool any = false;
    const auto splits = known_splits();
    for (auto& [key, subject] : subjects_) {
      if (subject.settled || subject.candidates.size() < 2) continue;
      std::vector<Assignment> followed, as_known, not_otherwise;
      for (const Assignment& assignment : subject.candidates) {
        if (follows(key, subject, assignment)) followed.push_back(assignment);
        if (splits_as_known(subject, assignment, splits)) as_known.push_back(assignment);
        if (contradicts_nothing(subject, assignment, splits)) not_otherwise.push_back(assignment);
      }
      const std::vector<Assignment>& fitting =
          !followed.empty() ? followed : (!as_known.empty() ? as_known : not_otherwise);
      if (fitting.size() != 1) continue;
      subject.settled = fitting[0];
      any = true;
    }
    return any;
  }

  // True where the tensor of one slice is a term of the whole's. A tensor that no slice splits was given to all, and
  // its gradient has a term from each.
  static bool is_term(const Group& group, const OpenAxis& axis) {
    if (!axis.slices) return false;
    const Kind kind = group.id.kind;
    if (is_term_of_loss(group.loss) || group.loss == LossRole::kTermOfSum) return true;
    if (group.loss == LossRole::kGradient || group.loss == LossRole::kGradientOfSum) return false;
    return kind == Kind::kGradOutput || kind == Kind::kGradInput || kind == Kind::kParamGrad;
  }

  // One of several placements that fit, as a rule has it: `tp_dim: 0`.
  static std::string describe(const Subject& subject, const Assignment& assignment) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      if (assignment[i] >= 0) words.push_back(fmt::format("{}_dim: {}", subject.open[i].name, assignment[i]));
    }
    return fmt::format("{{{}}}", fmt::join(words, ", "));
  }

  std::string doubt_about(const Subject& subject, Kind kind) const {
    if (subject.known.empty() || subject.settled) return "";
    if (subject.candidates.empty()) {
      if (subject.given->is_placed()) return "";  // then the rule does not fit, as its own finding says
      return fmt::format("no rule places it, and no split over {} makes its shards the reference's {}",
                         to_string(table_.mesh), to_string(*subject.known[0].second));
    }
    const std::string kind_key = is_parameter_kind(kind) ? "" : fmt::format("{}: ", name_of(lead_of(kind)));
    std::vector<std::string> words;
    for (const Assignment& assignment : subject.candidates) words.push_back(kind_key + describe(subject, assignment));
    return fmt::format("its shape fits several placements; expected a rule with one of: {}", comma_list(words));
  }

  // The dimension that all axes of slices split; nothing where they split none, or several.
  static std::optional<int> sliced_dimension(const Subject& subject, const Assignment& assignment) {
    std::set<int> dims;
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      if (subject.open[i].slices) dims.insert(assignment[i]);
    }
    if (dims.size() != 1 || *dims.begin() < 0) return std::nullopt;
    return *dims.begin();
  }

  static bool splits_nothing(const Assignment& assignment) {
    return std::all_of(assignment.begin(), assignment.end(), [](int dim) { return dim < 0; });
  }

  // The order of the samples in a tensor, as inputs tell it.
  struct TensorSamples {
    const Samples* samples = nullptr;  // null: no input tells it, or a rule says it
    const FlatRows* flat = nullptr;    // in place of samples, where the rows are positions of padded ones
    bool one_each = false;             // each element of the dimension is a sample; else the rows of one lie together
    Dimensions cut = {};               // as in TensorPlacement
    bool open = false;                 // they are sequences packed in an order that nothing tells
    friend auto operator<=>(const TensorSamples&, const TensorSamples&) = default;
  };

  TensorSamples samples_of(const Group& group, const Subject& subject, const Assignment& assignment) const {
    if (const PackedRows* packed = grouping_.microbatches.packed.find(group.id)) {
      if (packed->rows.empty()) return {nullptr, nullptr, false, {}, true};
      if (sliced_dimension(subject, assignment) == 0) return {&packed->rows, nullptr, packed->told};
    }
    if (const auto flat = subject.flat.find(&group); flat != subject.flat.end()) return {nullptr, &flat->second};
    const bool overlaps = subject.longer && subject.longer->overlap > 0;
    if (overlaps || !grouping_.microbatches.layout.empty() || layout_.reference == nullptr) return {};
    const Shape* reference = reference_shape(layout_, group.id);
    if (reference == nullptr) return {};
    if (splits_nothing(assignment)) return {nullptr, nullptr, false, cut_dimensions(group, *reference)};
    const auto dim = sliced_dimension(subject, assignment);
    if (!dim || static_cast<std::size_t>(*dim) >= reference->size()) return {};
    const std::int64_t extent = (*reference)[static_cast<std::size_t>(*dim)];
    const Samples* samples = grouping_.microbatches.samples.find(group.id, extent);
    const bool one_each = samples != nullptr && std::ssize(*samples) == extent;
    const Samples* stacked = one_each ? nullptr : grouping_.microbatches.samples.find_stacked(group.id, extent);
    if (stacked != nullptr) return {stacked, nullptr, false, {}};
    return {samples, nullptr, one_each, one_each ? cut_dimensions(group, *reference) : Dimensions{}};
  }

  // True where nothing but shapes says that the tensor lies so. A rule that does not fit says so all the same. What is
  // whole on each rank needs no word: a parameter, a scalar, or what has the same bits everywhere; and so does a slice
  // where a rule says how slices lie, or `samples` does. Guesses are that a sample's rows lie together, that a number of
  // each rank's own samples is a mean, that what was called for an element of a list is of the same one, and that a loss
  // or the gradient of a micro-batch is whole where the ranks have other ones: a program may add them up later.
  bool is_guess(const Subject& subject, Kind kind, const Assignment& assignment, const TensorSamples& samples) const {
    if (subject.given->is_placed() && subject.candidates.empty()) return false;
    if (const LossRole role = subject.groups[0]->loss; role == LossRole::kLikeLoss || role == LossRole::kTermOfSum) {
      return true;
    }
    const bool is_activation = !is_parameter_kind(kind) && kind != Kind::kScalar;
    const bool may_be_others =
        grouping_.microbatches.open_lists || grouping_.microbatches.lists.is_open(subject.groups[0]->id);
    if (may_be_others && is_activation && subject.groups[0]->loss == LossRole::kNone) return true;
    if (samples.open) return true;
    const bool splits = !splits_nothing(assignment);
    const bool is_one_value = is_parameter_kind(kind) || kind == Kind::kScalar;
    const bool is_of_microbatch = subject.groups[0]->id.microbatch >= 0;
    if (!splits && is_one_value) return is_of_microbatch && !copies_are_equal(subject, assignment);
    if (!splits) return !(subject.settled && copies_are_equal(subject, assignment));
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      const bool is_known =
          subject.open[i].slices && assignment[i] >= 0 && (samples.one_each || !grouping_.microbatches.layout.empty());
      if (!is_known && !(is_one_value && assignment[i] < 0)) return true;
    }
    return false;
  }

  // The placement of tensors whose samples lie in this order.
  TensorPlacement placement_of(const Key& key, const Subject& subject, const Assignment& assignment,
                               const TensorSamples& samples) const {
    const Kind kind = key.kind;
    TensorPlacement placement = placed(subject, assignment);
    // The samples are those of all ranks along axes of slices: the outermost of these deals them out.
    const auto outermost = std::find_if(placement.uses.begin(), placement.uses.end(), [&](const AxisUse& use) {
      return use.deduced && key.sliced && is_microbatch_axis(use.axis) && use.placement == Placement::kShard;
    });
    if (samples.samples != nullptr && !are_contiguous(*samples.samples)) outermost->split.samples = *samples.samples;
    if (samples.flat != nullptr) {
      outermost->split.samples = samples.flat->rows;
      placement.dropped = std::make_shared<const std::vector<std::int64_t>>(samples.flat->dropped);
    }
    placement.cut = samples.cut;
    if (samples.open) placement.unplaced = std::string(kOpenPacking);
    placement.doubt = doubt_about(subject, kind);
    placement.guessed = is_guess(subject, kind, assignment, samples);
    for (std::size_t i = 0; i < subject.open.size(); ++i) {
      const bool term = is_term(*subject.groups[0], subject.open[i]);
      if (assignment[i] >= 0 || (!term && !subject.settled)) continue;
      AxisUse use;
      use.axis = subject.open[i].axis;
      use.placement = term ? Placement::kPartial : Placement::kReplicate;
      use.deduced = true;
      use.split.size = subject.open[i].size;
      use.split.axis = subject.open[i].name;
      placement.uses.push_back(std::move(use));
    }
    return placement;
  }

  void place(const Key& key, Subject& subject) {
    const Assignment assignment = subject.settled.value_or(Assignment(subject.open.size(), -1));
    std::map<TensorSamples, const TensorPlacement*> placements;
    for (Group* group : subject.groups) {
      const TensorSamples samples = samples_of(*group, subject, assignment);
      const TensorPlacement*& placement = placements[samples];
      if (placement == nullptr) {
        grouping_.by_shape.push_back(placement_of(key, subject, assignment, samples));
        placement = &grouping_.by_shape.back();
      }
      group->placement = placement;
    }
  }

  Grouping& grouping_;
  const RankTable& table_;
  const std::vector<int>& known_axes_;
  const ModelLayout& layout_;
  std::map<Key, Subject> subjects_;
};

// Counts the tensors, split over sp by rules, that fit the reference in parts along an axis alone, or whole alone.
struct SequenceFits {
  std::int64_t only_split = 0, only_whole = 0;
};

bool splits_sequence(const AxisUse& use) {
  return use.placement == Placement::kShard && use.split.axis == kSequenceAxis;
}

SequenceFits count_sequence_fits(const Grouping& grouping, const ModelLayout& layout, const ResolvedAxis& axis) {
  SequenceFits fits;
  for (const Group& group : grouping.groups) {
    const std::vector<AxisUse>& uses = group.placement->uses;
    if (std::none_of(uses.begin(), uses.end(), splits_sequence)) continue;  // most; what follows costs more
    const Shape* reference = group.shards.empty() ? nullptr : reference_shape(layout, group.id);
    if (reference == nullptr) continue;
    TensorPlacement split = *group.placement, whole = *group.placement;
    std::erase_if(whole.uses, splits_sequence);
    if (names_axis(whole, axis.index)) continue;
    for (AxisUse& use : split.uses) {
      if (!splits_sequence(use)) continue;
      use.axis = axis.index;
      use.split.size = axis.size;
    }
    const bool fits_split = explains(group, *reference, split), fits_whole = explains(group, *reference, whole);
    fits.only_split += fits_split && !fits_whole ? 1 : 0;
    fits.only_whole += fits_whole && !fits_split ? 1 : 0;
  }
  return fits;
}

}  // namespace

Aliases aliases_by_shape(const Grouping& grouping, const RankTable& table, const ModelLayout& layout,
                         std::vector<std::string>& notes) {
  Aliases aliases = table.mesh.aliases;
  if (layout.reference == nullptr) return aliases;
  const auto said = aliases.find(kSequenceAxis);
  const bool is_said = said != aliases.end();
  const ResolvedAxis axis = resolve_axis(table.mesh, is_said ? said->second : kTensorAxis);
  const bool own_axis = !is_said && resolve_axis(table.mesh, kSequenceAxis).index >= 0;
  if (own_axis || axis.size == 1) return aliases;
  const SequenceFits fits = count_sequence_fits(grouping, layout, axis);
  const std::string& name = table.axes[static_cast<std::size_t>(axis.index)].name;
  if (is_said && fits.only_whole > 0 && fits.only_split == 0) {
    notes.push_back(
        fmt::format("{}={}: all {} tensors that rules split over it are whole on every rank; taken as a "
                    "program without sequence parallelism",
                    kSequenceAxis, name, fits.only_whole));
    aliases.erase(said);
  } else if (!is_said && fits.only_split > 0 && fits.only_whole == 0) {
    notes.push_back(
        fmt::format("{0} is no axis of the trace, but all {1} tensors that rules split over it lie in parts "
                    "on {2}; taken as {0}={2}",
                    kSequenceAxis, fits.only_split, name));
    aliases.emplace(kSequenceAxis, name);
  }
  return aliases;
}

void place_by_shape(Grouping& grouping, const RankTable& table, const ResolvedAnnotations& annotations,
                    const ModelLayout& layout) {
  if (layout.reference == nullptr && !grouping.microbatches.are_slices()) return;
  ShapePlacer(grouping, table, annotations, layout).run();
}

}  // namespace ttrace
