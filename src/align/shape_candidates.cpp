#include "align/shape_candidates.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "align/flat_rows.h"
#include "align/halo.h"
#include "identify/given_inputs.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

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

}  // namespace

ShapeCandidates::ShapeCandidates(const Microbatches& microbatches, const RankTable& table, const ModelLayout& layout)
    : microbatches_(microbatches),
      table_(table),
      layout_(layout),
      slice_layout_(find_layout(microbatches.layout.empty() ? "contiguous" : microbatches.layout)) {}

TensorPlacement ShapeCandidates::placed(const OpenSubject& subject, const Assignment& assignment) const {
  return ttrace::placed(subject, assignment, slice_layout_);
}

Dimensions ShapeCandidates::cut_of(const Group& group, const Shape& reference) const {
  return cut_dimensions(group, reference, table_, microbatches_);
}

void ShapeCandidates::find(Kind kind, const OpenSubject* lead, OpenSubject& subject) const {
  if (subject.known.empty() || settle_flat(subject)) return;
  std::set<int> dims;
  for (const auto& [group, reference] : subject.known) {
    const auto explained = explained_dimensions(*group, *reference, *subject.given, cut_of(*group, *reference));
    if (!explained) return;
    for (std::size_t d = 0; d < explained->size(); ++d) {
      if (!(*explained)[d]) dims.insert(static_cast<int>(d));
    }
  }
  const std::vector<int> split(dims.begin(), dims.end());
  subject.candidates = fitting_assignments(subject, split);
  if (subject.candidates.empty() && !subject.given->is_placed()) find_overlapping(kind, lead, subject, split);
  if (subject.candidates.empty() && !subject.given->is_placed()) find_padded(subject, split);
  if (subject.candidates.size() == 1) subject.settled = subject.candidates[0];
}

std::vector<std::int64_t> ShapeCandidates::own_extents(const Group& group, std::size_t dim) const {
  std::vector<std::int64_t> own(static_cast<std::size_t>(microbatches_.ranks), -1);
  for (const Shard& shard : group.shards) {
    const Shape& shape = shard.entry->shape;
    if (dim >= shape.size()) return {};
    own[static_cast<std::size_t>(coordinate_on(*shard.holder, table_, microbatches_))] = shape[dim];
  }
  return own;
}

std::optional<FlatRows> ShapeCandidates::flat_rows_of(const Group& group, const Shape& reference) const {
  if (microbatches_.samples.lengths.empty() || reference.empty() || reference.size() > 2) return std::nullopt;
  const auto fits = [&](const Shard& shard) {
    const Shape& shape = shard.entry->shape;
    return shard.entry->sketch == nullptr && shape.size() == reference.size() &&
           std::equal(shape.begin() + 1, shape.end(), reference.begin() + 1);
  };
  if (!std::ranges::all_of(group.shards, fits)) return std::nullopt;
  return flat_rows(microbatches_.samples, group.id, reference[0], own_extents(group, 0));
}

bool ShapeCandidates::settle_flat(OpenSubject& subject) const {
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

std::vector<Assignment> ShapeCandidates::fitting_assignments(const OpenSubject& subject,
                                                             const std::vector<int>& dims) const {
  std::vector<Assignment> fitting;
  for_each_assignment(subject.open.size(), dims, [&](const Assignment& assignment) {
    const TensorPlacement placement = placed(subject, assignment);
    const bool fits = std::all_of(subject.known.begin(), subject.known.end(), [&](const auto& item) {
      return explains(*item.first, *item.second, placement, cut_of(*item.first, *item.second));
    });
    if (fits) fitting.push_back(assignment);
  });
  return fitting;
}

void ShapeCandidates::find_padded(OpenSubject& subject, const std::vector<int>& dims) const {
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

std::int64_t ShapeCandidates::overlap_of(const OpenSubject& subject, const OpenAxis& axis, int dim) const {
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

void ShapeCandidates::find_overlapping(Kind kind, const OpenSubject* lead, OpenSubject& subject,
                                       const std::vector<int>& dims) const {
  std::vector<std::pair<Longer, Assignment>> found;
  for (std::size_t i = 0; i < subject.open.size(); ++i) {
    for (const int dim : dims) {
      subject.longer = Longer{dim, overlap_of(subject, subject.open[i], dim)};
      if (subject.longer->overlap == 0) continue;
      for (Assignment& assignment : fitting_assignments(subject, dims)) {
        const bool is_only = assignment[i] == dim && std::count(assignment.begin(), assignment.end(), dim) == 1;
        if (is_only && shows_overlap(kind, lead, subject, assignment)) found.emplace_back(*subject.longer, assignment);
      }
    }
  }
  subject.longer.reset();
  if (found.size() != 1) return;
  subject.longer = found[0].first;
  subject.candidates = {found[0].second};
}

bool ShapeCandidates::shows_overlap(Kind kind, const OpenSubject* lead, const OpenSubject& subject,
                                    const Assignment& assignment) const {
  if (kind != lead_of(kind)) {
    return lead != nullptr && lead->longer == subject.longer && follows(*lead, subject, assignment);
  }
  if (kind != Kind::kInput && kind != Kind::kOutput) return false;
  const TensorPlacement placement = placed(subject, assignment);
  return std::all_of(subject.groups.begin(), subject.groups.end(), [&](const Group* group) {
    return neighbours_share(*group, placement, subject.longer->dim, subject.longer->overlap);
  });
}

std::optional<Shape> ShapeCandidates::common_front(const Group& group) const {
  const Shape* reference = layout_.reference == nullptr ? nullptr : reference_shape(layout_, group.id);
  if (reference == nullptr || cut_of(group, *reference).empty()) return std::nullopt;
  Shape common = *reference;
  for (const Shard& shard : group.shards) {
    for (std::size_t d = 0; d < common.size(); ++d) common[d] = std::min(common[d], shard.entry->shape[d]);
  }
  return common;
}

std::uint64_t ShapeCandidates::checksum_of_front(const Shard& shard, const Shape& front) {
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

bool ShapeCandidates::copies_are_equal(const OpenSubject& subject, const Assignment& assignment) const {
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

void ShapeCandidates::keep_sliced_inputs(OpenSubject& subject) {
  if (subject.candidates.size() < 2) return;
  const TensorId& id = subject.groups[0]->id;
  if (id.kind != Kind::kInput || !is_of_whole_model(id)) return;
  const auto is_sliced = [&](const Assignment& assignment) {
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      if (subject.open[i].slices && assignment[i] >= 0) return true;
    }
    return false;
  };
  if (std::ranges::any_of(subject.candidates, is_sliced)) std::erase_if(subject.candidates, std::not_fn(is_sliced));
  if (subject.candidates.size() == 1) subject.settled = subject.candidates[0];
}

void ShapeCandidates::keep_those_with_equal_copies(OpenSubject& subject) const {
  if (subject.candidates.size() < 2) return;
  std::vector<Assignment> equal;
  for (const Assignment& assignment : subject.candidates) {
    if (copies_are_equal(subject, assignment)) equal.push_back(assignment);
  }
  if (!equal.empty()) subject.candidates = std::move(equal);
  if (subject.candidates.size() == 1) subject.settled = subject.candidates[0];
}

}  // namespace ttrace
