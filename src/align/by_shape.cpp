#include "align/by_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "align/open_subject.h"
#include "align/shape_candidates.h"
#include "base/describe.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "identify/stacked_blocks.h"

namespace ttrace {
namespace {

constexpr std::string_view kOpenPacking =
    "packed sequences, whose rows lie step by step among those of the rank's own samples: nothing tells which of the "
    "reference's samples these are";

class ShapePlacer {
 public:
  ShapePlacer(Grouping& grouping, const RankTable& table, const ResolvedAnnotations& annotations,
              const ModelLayout& layout)
      : grouping_(grouping),
        table_(table),
        known_axes_(annotations.known_axes),
        layout_(layout),
        candidates_(grouping.microbatches, table, layout) {}

  void run() {
    collect();
    for (auto& [key, subject] : subjects_) candidates_.find(key.kind, lead_subject(key), subject);
    for (auto& [key, subject] : subjects_) {
      if (lead_subject(key) != nullptr) continue;
      ShapeCandidates::keep_sliced_inputs(subject);
      candidates_.keep_those_with_equal_copies(subject);
    }
    // What lies as its value first: copies of a gradient differ where a sum was forgotten.
    for (auto& [key, subject] : subjects_) {
      const OpenSubject* lead = lead_subject(key);
      if (lead == nullptr) continue;
      keep_those_that_follow(*lead, subject);
      candidates_.keep_those_with_equal_copies(subject);
    }
    do {
      while (settle_by_others()) {
      }
    } while (settle_by_custom());
    find_blocks();
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
      const bool is_shared = grouping_.microbatches.is_shared(group.id) && is_microbatch_axis(axis);
      const bool slices = (is_of_samples && are_slices(group) && is_microbatch_axis(axis)) || is_shared;
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
      OpenSubject& subject = subjects_[{group.id.name, group.id.kind, group.placement->recorded, are_slices(group)}];
      subject.given = group.placement;
      subject.open = std::move(open);
      subject.groups.push_back(&group);
      const Shape* reference = layout_.reference == nullptr ? nullptr : reference_shape(layout_, group.id);
      if (reference != nullptr) subject.known.emplace_back(&group, reference);
    }
  }

  static void keep_those_that_follow(const OpenSubject& lead, OpenSubject& subject) {
    if (subject.candidates.size() < 2) return;
    const auto followed = [&](const Assignment& assignment) { return follows(lead, subject, assignment); };
    if (std::none_of(subject.candidates.begin(), subject.candidates.end(), followed)) return;
    std::erase_if(subject.candidates, std::not_fn(followed));
    if (subject.candidates.size() == 1) subject.settled = subject.candidates[0];
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
  static bool splits_as_known(const OpenSubject& subject, const Assignment& assignment,
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
  static bool contradicts_nothing(const OpenSubject& subject, const Assignment& assignment,
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

  // The subject that this one follows; null where there is none.
  const OpenSubject* lead_subject(const Key& key) const {
    const auto lead = subjects_.find(key.lead());
    return lead == subjects_.end() || lead_of(key.kind) == key.kind ? nullptr : &lead->second;
  }

  // Settles subjects by others that are settled; returns false when none was.
  bool settle_by_others() {
    bool any = false;
    const auto splits = known_splits();
    for (auto& [key, subject] : subjects_) {
      if (subject.settled || subject.candidates.size() < 2) continue;
      const OpenSubject* lead = lead_subject(key);
      std::vector<Assignment> followed, as_known, not_otherwise;
      for (const Assignment& assignment : subject.candidates) {
        if (lead != nullptr && follows(*lead, subject, assignment)) followed.push_back(assignment);
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

  // Settles a subject of which nothing else tells the placement, where slices of the batch lie along the first dimension
  // in one of those that fit: a guess, which bytes that are the reference's prove. Returns false when none was.
  bool settle_by_custom() {
    for (auto& [key, subject] : subjects_) {
      if (subject.settled || subject.candidates.size() < 2) continue;
      std::vector<Assignment> first;
      for (const Assignment& assignment : subject.candidates) {
        if (sliced_dimension(subject, assignment) == 0) first.push_back(assignment);
      }
      if (first.size() != 1) continue;
      subject.settled = first[0];
      subject.by_custom = true;
      return true;
    }
    return false;
  }

  // A dimension that one axis of the model splits, and no other.
  struct SplitDimension {
    std::string_view module;  // whose parameter, or output, it is of
    int axis = -1;
    std::size_t dim = 0;
    std::int64_t extent = 0;  // of the reference
    bool is_last = false;

    bool is_like(const SplitDimension& other) const {
      return module == other.module && axis == other.axis && extent == other.extent;
    }
  };

  std::optional<SplitDimension> split_of(const Key& key, const OpenSubject& subject) const {
    if (!subject.settled || subject.longer || subject.known.empty()) return std::nullopt;
    const Assignment& assignment = *subject.settled;
    std::optional<std::size_t> split;
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      if (assignment[i] < 0 || subject.open[i].slices) continue;
      if (split || std::count(assignment.begin(), assignment.end(), assignment[i]) > 1) return std::nullopt;
      split = i;
    }
    const bool is_beside_others = std::any_of(subject.given->uses.begin(), subject.given->uses.end(),
                                              [](const AxisUse& use) { return use.placement == Placement::kShard; });
    if (!split || is_beside_others) return std::nullopt;
    const Shape& reference = *subject.known[0].second;
    const auto dim = static_cast<std::size_t>(assignment[*split]);
    const std::string_view path = TensorName(key.name).path;
    return SplitDimension{is_parameter_kind(key.kind) ? owner_of(path) : path, subject.open[*split].axis, dim,
                          reference[dim], dim + 1 == reference.size()};
  }

  // As blocks_by_bits, of the first part that tells.
  std::vector<std::int64_t> blocks_of(const Group& group, const SplitDimension& split) const {
    const LogicalTensor& whole = *find_tensor(*layout_.reference, group.id);
    const std::vector<Piece> pieces = whole.pieces();
    if (pieces.empty() || pieces[0].entry->shape != whole.shape || pieces[0].entry->sketch) return {};
    for (const Shard& shard : group.shards) {
      if (shard.entry->sketch) continue;
      const RecordedElements part{shard.entry, shard.holder->trace->bytes_of(*shard.entry)};
      std::vector<std::int64_t> blocks =
          blocks_by_bits(part, {pieces[0].entry, pieces[0].data}, coordinate_on(*shard.holder, split.axis), split.dim);
      if (!blocks.empty()) return blocks;
    }
    return {};
  }

  // Finds the parameters that are several blocks, and what else lies as they do: what another module is given of an
  // output, too, which has its bits.
  void find_blocks() {
    std::vector<std::pair<SplitDimension, StackedBlocks>> found;  // of modules' parameters
    std::vector<std::pair<SplitDimension, OpenSubject*>> silent;  // parameters whose bits do not tell
    for (auto& [key, subject] : subjects_) {
      if (key.kind != Kind::kParam) continue;
      const auto split = split_of(key, subject);
      if (!split) continue;
      std::vector<std::int64_t> sizes = blocks_of(*subject.known[0].first, *split);
      if (sizes.empty()) silent.emplace_back(*split, &subject);
      if (sizes.size() < 2) continue;
      subject.blocks = StackedBlocks{split->axis, std::move(sizes)};
      found.emplace_back(*split, *subject.blocks);
    }
    const auto take_those_of_module = [&](const SplitDimension& split, OpenSubject& subject) {
      const auto of_module =
          std::find_if(found.begin(), found.end(), [&](const auto& item) { return item.first.is_like(split); });
      if (of_module != found.end()) subject.blocks = of_module->second;
    };
    for (const auto& [split, subject] : silent) take_those_of_module(split, *subject);
    std::map<std::pair<const PresentRank*, std::uint64_t>, const StackedBlocks*> outputs;  // by their bits
    for (auto& [key, subject] : subjects_) {
      if (key.kind != Kind::kOutput) continue;
      const auto split = split_of(key, subject);
      if (split && split->is_last) take_those_of_module(*split, subject);
      if (!subject.blocks) continue;
      for (const Shard& shard : subject.groups[0]->shards) {
        outputs.emplace(std::pair(shard.holder, shard.entry->checksum), &*subject.blocks);
      }
    }
    for (auto& [key, subject] : subjects_) {
      if (key.kind != Kind::kInput || outputs.empty()) continue;
      const auto split = split_of(key, subject);
      if (!split || !split->is_last) continue;
      const Shard& shard = subject.groups[0]->shards[0];
      const auto output = outputs.find({shard.holder, shard.entry->checksum});
      if (output != outputs.end() && output->second->axis == split->axis) subject.blocks = *output->second;
    }
    for (auto& [key, subject] : subjects_) {
      const OpenSubject* lead = lead_subject(key);
      if (lead == nullptr || !lead->blocks || !subject.settled) continue;
      if (follows(*lead, subject, *subject.settled)) subject.blocks = lead->blocks;
    }
  }

  // One of several placements that fit, as a rule has it: `tp_dim: 0`.
  static std::string describe(const OpenSubject& subject, const Assignment& assignment) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      if (assignment[i] >= 0) words.push_back(fmt::format("{}_dim: {}", subject.open[i].name, assignment[i]));
    }
    return fmt::format("{{{}}}", fmt::join(words, ", "));
  }

  std::string doubt_about(const OpenSubject& subject, Kind kind) const {
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
  static std::optional<int> sliced_dimension(const OpenSubject& subject, const Assignment& assignment) {
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

  TensorSamples samples_of(const Group& group, const OpenSubject& subject, const Assignment& assignment) const {
    if (const PackedRows* packed = grouping_.microbatches.packed.find(group.id)) {
      if (packed->rows.empty()) return {nullptr, nullptr, false, {}, true};
      if (sliced_dimension(subject, assignment) == 0) return {&packed->rows, nullptr, packed->told};
    }
    if (const auto flat = subject.flat.find(&group); flat != subject.flat.end()) return {nullptr, &flat->second};
    const bool overlaps = subject.longer && subject.longer->overlap > 0;
    if (overlaps || !grouping_.microbatches.layout.empty() || layout_.reference == nullptr) return {};
    const Shape* reference = reference_shape(layout_, group.id);
    if (reference == nullptr) return {};
    if (splits_nothing(assignment)) return {nullptr, nullptr, false, candidates_.cut_of(group, *reference)};
    const auto dim = sliced_dimension(subject, assignment);
    if (!dim || static_cast<std::size_t>(*dim) >= reference->size()) return {};
    const std::int64_t extent = (*reference)[static_cast<std::size_t>(*dim)];
    const SampleOrders& orders = grouping_.microbatches.samples;
    const Samples* ragged =
        orders.ragged.empty()
            ? nullptr
            : orders.find_ragged(group.id, extent, candidates_.own_extents(group, static_cast<std::size_t>(*dim)));
    if (ragged != nullptr) return {ragged, nullptr, false, {}};
    const Samples* samples = orders.find(group.id, extent);
    const bool one_each = samples != nullptr && std::ssize(*samples) == extent;
    const Samples* stacked = one_each ? nullptr : orders.find_stacked(group.id, extent);
    if (stacked != nullptr) return {stacked, nullptr, false, {}};
    return {samples, nullptr, one_each, one_each ? candidates_.cut_of(group, *reference) : Dimensions{}};
  }

  // True where nothing but shapes says that the tensor lies so. A rule that does not fit says so all the same. What is
  // whole on each rank needs no word: a parameter, a scalar, or what has the same bits everywhere; and so does a slice
  // where a rule says how slices lie, or `samples` does. Guesses are that a sample's rows lie together, that a number of
  // each rank's own samples is a mean, that what was called for an element of a list is of the same one, and that a loss
  // or the gradient of a micro-batch is whole where the ranks have other ones: a program may add them up later.
  bool is_guess(const OpenSubject& subject, Kind kind, const Assignment& assignment,
                const TensorSamples& samples) const {
    if (subject.given->is_placed() && subject.candidates.empty()) return false;
    if (const LossRole role = subject.groups[0]->loss; role == LossRole::kLikeLoss || role == LossRole::kTermOfSum) {
      return true;
    }
    const bool is_activation = !is_parameter_kind(kind) && kind != Kind::kScalar;
    const bool may_be_others =
        grouping_.microbatches.open_lists || grouping_.microbatches.lists.is_open(subject.groups[0]->id);
    if (may_be_others && is_activation && subject.groups[0]->loss == LossRole::kNone) return true;
    if (samples.open || subject.by_custom) return true;
    const bool splits = !splits_nothing(assignment);
    const bool is_one_value = is_parameter_kind(kind) || kind == Kind::kScalar;
    const bool is_of_microbatch = subject.groups[0]->id.microbatch >= 0;
    if (!splits && is_one_value) return is_of_microbatch && !candidates_.copies_are_equal(subject, assignment);
    if (!splits) return !(subject.settled && candidates_.copies_are_equal(subject, assignment));
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      const bool is_known =
          subject.open[i].slices && assignment[i] >= 0 && (samples.one_each || !grouping_.microbatches.layout.empty());
      if (!is_known && !(is_one_value && assignment[i] < 0)) return true;
    }
    return false;
  }

  // The placement of tensors whose samples lie in this order.
  TensorPlacement placement_of(const Key& key, const OpenSubject& subject, const Assignment& assignment,
                               const TensorSamples& samples) const {
    const Kind kind = key.kind;
    TensorPlacement placement = candidates_.placed(subject, assignment);
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

  void place(const Key& key, OpenSubject& subject) {
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
  ShapeCandidates candidates_;
  std::map<Key, OpenSubject> subjects_;
};

}  // namespace

void place_by_shape(Grouping& grouping, const RankTable& table, const ResolvedAnnotations& annotations,
                    const ModelLayout& layout) {
  if (layout.reference == nullptr && !grouping.microbatches.are_slices()) return;
  ShapePlacer(grouping, table, annotations, layout).run();
}

}  // namespace ttrace
