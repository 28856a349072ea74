#include "identify/microbatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/describe.h"
#include "base/error.h"
#include "base/lookup.h"
#include "identify/given_inputs.h"
#include "identify/member_names.h"
#include "identify/program.h"
#include "identify/ragged_samples.h"
#include "identify/stacked_samples.h"
#include "identify/told_microbatches.h"

namespace ttrace {
namespace {

constexpr std::size_t kListed = 8;

std::vector<std::int32_t> ranks_at(const RankTable& table, const Microbatches& microbatches,
                                   const std::vector<bool>& coordinates) {
  std::vector<std::int32_t> ranks;
  for (const PresentRank& rank : table.ranks) {
    if (coordinates[static_cast<std::size_t>(coordinate_on(rank, table, microbatches))]) {
      ranks.push_back(rank.trace->rank);
    }
  }
  return ranks;
}

// The first micro-batch of each coordinate's block. A coordinate whose ranks are all missing is taken to have run as
// many as the busiest one, so that the blocks after it keep their numbers.
std::vector<std::int64_t> starts_of_blocks(const std::vector<std::int64_t>& counts) {
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  std::vector<std::int64_t> starts;
  std::int64_t start = 0;
  for (const std::int64_t count : counts) {
    starts.push_back(start);
    start += count == 0 ? most : count;
  }
  return starts;
}

void count_microbatches(const RankTable& table, const Census& census, Microbatches& microbatches) {
  for (const Section& section : census.sections) {
    for (const RankEntries& of_rank : section.ranks) {
      const auto coordinate = static_cast<std::size_t>(coordinate_on(*of_rank.rank, table, microbatches));
      for (const auto& [iteration, count] : of_rank.microbatches) {
        std::vector<std::int64_t>& counts = microbatches.counts[iteration];
        counts.resize(static_cast<std::size_t>(microbatches.ranks), 0);
        counts[coordinate] = std::max(counts[coordinate], count);
      }
    }
  }
  for (const auto& [iteration, counts] : microbatches.counts) {
    microbatches.block_starts[iteration] = starts_of_blocks(counts);
  }
}

// True where all ranks that left a file ran as many micro-batches as the reference, in the first iteration of both: a
// step that is left out later makes one iteration of two. Of a job that ended within it ranks may have run fewer.
bool counts_are_the_references(const RankTable& table, const Microbatches& microbatches, const ModelLayout& layout) {
  const bool was_cut = std::any_of(table.ranks.begin(), table.ranks.end(),
                                   [](const PresentRank& rank) { return !rank.trace->is_whole(); });
  for (const auto& [iteration, counts] : microbatches.counts) {
    const auto reference = layout.microbatches.find(iteration);
    if (reference == layout.microbatches.end()) continue;
    return std::all_of(counts.begin(), counts.end(), [&](std::int64_t count) {
      return count == 0 || count == reference->second || (was_cut && count < reference->second);
    });
  }
  return false;
}

// True where the loss of some micro-batch is another number on each coordinate. Ranks that were given all of a batch do
// the same work, or each takes the loss of its part: of some nodes of a graph.
bool have_own_losses(const RankTable& table, const Census& census, const Microbatches& microbatches) {
  std::map<TensorId, std::map<std::int64_t, std::uint64_t>> losses;  // checksums, by coordinate
  const auto is_loss_entry = [](const Entry& entry) { return is_loss(entry.id); };
  for_each_entry(census, is_loss_entry, [&](const PresentRank& rank, const Entry& entry) {
    losses[entry.id].emplace(coordinate_on(rank, table, microbatches), entry.checksum);
  });
  return std::ranges::any_of(losses, [&](const auto& item) {
    std::set<std::uint64_t> numbers;
    for (const auto& [coordinate, checksum] : item.second) numbers.insert(checksum);
    return std::ssize(numbers) == microbatches.ranks;
  });
}

using LossesByCoordinate = std::vector<std::set<std::int32_t>>;  // numbers of micro-batches

// Returns the losses of each iteration.
std::map<std::int32_t, LossesByCoordinate> losses_of_ranks(const RankTable& table, const Census& census,
                                                           const Microbatches& microbatches) {
  const auto is_loss_entry = [](const Entry& entry) { return is_loss_of_backward(entry.id); };
  std::map<std::int32_t, LossesByCoordinate> losses;
  for_each_entry(census, is_loss_entry, [&](const PresentRank& rank, const Entry& entry) {
    LossesByCoordinate& of_coordinates = losses[entry.id.iteration];
    of_coordinates.resize(static_cast<std::size_t>(microbatches.ranks));
    const std::int64_t coordinate = coordinate_on(rank, table, microbatches);
    of_coordinates[static_cast<std::size_t>(coordinate)].insert(entry.id.microbatch);
  });
  return losses;
}

// Returns the reference's micro-batch of the loss whose backward() has made the tensor. `losses` are a coordinate's.
std::int32_t number_of_loss(const std::map<std::int32_t, std::int32_t>& losses, const TensorId& id) {
  const auto loss = losses.lower_bound(id.microbatch);
  return loss == losses.end() ? losses.rbegin()->second : loss->second;
}

using LossesByIteration = std::map<std::int32_t, std::set<std::int32_t>>;  // numbers of micro-batches

// Sets the shared gradients of the shared losses.
void find_shared_gradients(const RankTable& table, const Census& census, const ModelLayout& layout,
                           const LossesByIteration& of_reference, Microbatches& result) {
  std::map<SharedGradient, std::map<std::int64_t, std::set<std::int32_t>>> holders;  // micro-batches of each coordinate
  const auto is_gradient = [](const Entry& entry) { return entry.id.kind == Kind::kParamGrad; };
  for_each_entry(census, is_gradient, [&](const PresentRank& rank, const Entry& entry) {
    const auto shared = result.shared_losses.find(entry.id.iteration);
    if (shared == result.shared_losses.end()) return;
    const std::int64_t coordinate = coordinate_on(rank, table, result);
    const TensorId id = id_in_reference(entry.id, layout, result.are_stages);
    const std::int32_t loss = number_of_loss(shared->second[static_cast<std::size_t>(coordinate)], entry.id);
    holders[{id.iteration, loss, id.name.get()}][coordinate].insert(entry.id.microbatch);
  });
  std::map<SharedGradient, std::vector<std::int32_t>> numbers;  // of the reference's
  for (const auto& [id, tensor] : layout.reference->tensors) {
    if (id.kind != Kind::kParamGrad || !result.shared_losses.contains(id.iteration)) continue;
    const std::set<std::int32_t>& losses = of_reference.at(id.iteration);
    const auto loss = losses.lower_bound(id.microbatch);
    if (loss != losses.end()) numbers[{id.iteration, *loss, id.name.get()}].push_back(id.microbatch);
  }
  for (const auto& [key, those] : numbers) {
    // Of several, each belongs to a call: a backward() runs through the gradients that the calls took themselves.
    const auto& held = holders[key];
    const bool is_one = std::ranges::all_of(held, [](const auto& item) { return item.second.size() == 1; });
    if (those.size() == 1 && is_one && std::ssize(held) == result.ranks) result.shared_gradients[key] = those[0];
  }
}

// Sets the shared losses, where it is so in all iterations that have losses, and gradients.
void find_shared_losses(const RankTable& table, const Census& census, const ModelLayout& layout, Microbatches& result) {
  LossesByIteration of_reference;
  for (const auto& [id, tensor] : layout.reference->tensors) {
    if (is_loss_of_backward(id)) of_reference[id.iteration].insert(id.microbatch);
  }
  auto& shared = result.shared_losses;
  for (const auto& [iteration, losses] : losses_of_ranks(table, census, result)) {
    const std::set<std::int32_t>& whole = of_reference[iteration];
    const std::vector<std::int64_t>& counts = result.counts.at(iteration);
    const auto in_reference = layout.microbatches.find(iteration);
    const bool are_few = in_reference != layout.microbatches.end() && std::ssize(whole) < in_reference->second;
    auto& of_coordinates = shared[iteration];
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const bool is_behind_several = are_few || (whole.size() == 1 && counts[i] > 1);
      if (whole.empty() || losses[i].size() != whole.size() || *losses[i].rbegin() + 1 != counts[i] ||
          !is_behind_several) {
        return shared.clear();
      }
      auto number = whole.begin();
      auto& numbers = of_coordinates.emplace_back();
      for (const std::int32_t local : losses[i]) numbers[local] = *number++;
    }
  }
  if (!shared.empty()) find_shared_gradients(table, census, layout, of_reference, result);
}

// Which orders of the micro-batches the inputs fit that both sides have, if any.
struct FittingOrders {
  bool all_blocked = true, all_interleaved = true;  // of integers
  std::int64_t in_blocked = 0, in_interleaved = 0;  // inputs that the reference has in that micro-batch, bit for bit

  bool are_blocked() const { return all_blocked == all_interleaved ? in_blocked > in_interleaved : all_blocked; }
  bool are_open() const { return all_blocked && all_interleaved && in_blocked == in_interleaved; }
};

// Integers are the same bits on both sides, so that the inputs of the model tell which micro-batches a rank ran. Those
// that the reference lacks, as another program's may, tell nothing. Where some are wrong, as masks of other samples, what
// most have tells, also of floating-point ones that the whole model is given.
FittingOrders fitting_orders(const RankTable& table, const Census& census, const Microbatches& microbatches,
                             const ModelLayout& layout) {
  Microbatches blocks = microbatches;
  blocks.order = MicrobatchOrder::kBlocked;
  FittingOrders fitting;
  for_each_entry(census, is_first_input, [&](const PresentRank& rank, const Entry& entry) {
    if (entry.id.microbatch < 0 || entry.sketch) return;
    TensorId id = id_in_reference(entry.id, layout, microbatches.are_stages);
    const bool is_integer = !is_floating(entry.dtype);
    if (!(is_integer || is_of_whole_model(id)) || !layout.shapes.contains({id.name, id.kind})) return;
    const std::int64_t coordinate = coordinate_on(rank, table, microbatches);
    const auto is_there = [&](const Microbatches& order) {
      id.microbatch = global_microbatch(order, entry.id.iteration, coordinate, entry.id.microbatch);
      const auto found = layout.reference->tensors.find(id);
      return found != layout.reference->tensors.end() && found->second.dtype == entry.dtype &&
             entry.shape == found->second.shape && has_elements_of(entry, *rank.trace, found->second);
    };
    const bool in_blocked = is_there(blocks), in_interleaved = is_there(microbatches);
    fitting.in_blocked += in_blocked;
    fitting.in_interleaved += in_interleaved;
    fitting.all_blocked = fitting.all_blocked && (in_blocked || !is_integer);
    fitting.all_interleaved = fitting.all_interleaved && (in_interleaved || !is_integer);
  });
  return fitting;
}

// True where the order numbers the micro-batches as they are told.
bool are_in_order(const Microbatches& microbatches, MicrobatchOrder order) {
  Microbatches ordered = microbatches;
  ordered.order = order;
  ordered.told.clear();
  for (const auto& [iteration, numbers] : microbatches.told) {
    for (std::size_t coordinate = 0; coordinate < numbers.size(); ++coordinate) {
      for (std::size_t local = 0; local < numbers[coordinate].size(); ++local) {
        const std::int32_t number = global_microbatch(ordered, iteration, static_cast<std::int64_t>(coordinate),
                                                      static_cast<std::int32_t>(local));
        if (number != numbers[coordinate][local]) return false;
      }
    }
  }
  return true;
}

// Sets the order that the bytes of what the model is given tell; returns false where they tell none.
bool take_told_order(const RankTable& table, const Census& census, const ModelLayout& layout, Microbatches& result) {
  for (auto& [iteration, told] : told_numbers(table, census, result, layout)) {
    result.told[iteration] = std::move(told.numbers);
    if (!told.sliced.empty()) result.sliced[iteration] = std::move(told.sliced);
  }
  if (result.told.empty()) return false;
  if (!result.sliced.empty()) {
    result.deduced = true;
    return true;
  }
  const bool are_interleaved = are_in_order(result, MicrobatchOrder::kInterleaved);
  if (!are_interleaved && are_in_order(result, MicrobatchOrder::kBlocked)) result.order = MicrobatchOrder::kBlocked;
  result.deduced = !are_interleaved;
  if (are_interleaved || result.order == MicrobatchOrder::kBlocked) result.told.clear();
  return true;
}

// True where the two orders give some rank other micro-batches.
bool orders_differ(const Microbatches& microbatches) {
  return microbatches.ranks > 1 &&
         std::any_of(microbatches.counts.begin(), microbatches.counts.end(), [](const auto& iteration) {
           return *std::max_element(iteration.second.begin(), iteration.second.end()) > 1;
         });
}

// What the ranks have of a tensor, by coordinate: its shape and checksum.
using Bits = std::vector<std::pair<Shape, std::uint64_t>>;

// Adds what modules return of numbers that begin anew: with the bits on each rank, and in the reference, of such an input
// of the micro-batch.
void add_returned_numbers(const RankTable& table, const Census& census, const ModelLayout& layout,
                          const Microbatches& microbatches, std::set<TensorId>& begin_anew) {
  if (begin_anew.empty()) return;
  const auto is_integer = [](const Entry& entry) {
    const bool is_forward = entry.id.kind == Kind::kInput || entry.id.kind == Kind::kOutput;
    return is_forward && entry.id.pass == Pass::kForward && !is_floating(entry.dtype);
  };
  std::map<TensorId, Bits> bits_of;
  for_each_entry(census, is_integer, [&](const PresentRank& rank, const Entry& entry) {
    TensorId id = id_in_reference(entry.id, layout, microbatches.are_stages);
    const LogicalTensor* reference = find_tensor(*layout.reference, id);
    if (reference == nullptr) return;
    Bits& bits = bits_of[id];
    bits.resize(static_cast<std::size_t>(microbatches.ranks) + 1);
    bits[static_cast<std::size_t>(coordinate_on(rank, table, microbatches))] = {entry.shape, entry.checksum};
    const std::vector<Piece> pieces = reference->pieces();
    if (!pieces.empty()) bits.back() = {reference->shape, pieces[0].entry->checksum};
  });
  std::set<std::tuple<std::int32_t, std::int32_t, Bits>> given;
  for (const TensorId& id : begin_anew) given.emplace(id.iteration, id.microbatch, bits_of[id]);
  for (const auto& [id, bits] : bits_of) {
    if (id.kind == Kind::kOutput && given.contains({id.iteration, id.microbatch, bits})) begin_anew.insert(id);
  }
}

// What whole models return, of which ranks have slices. A model of sequences that are time-major may flatten it.
std::map<TensorId, SlicedInput> returned_by_models(const RankTable& table, const Census& census,
                                                   const Microbatches& microbatches, const ModelLayout& layout) {
  const auto is_returned = [](const Entry& entry) {
    return entry.id.kind == Kind::kOutput && entry.id.pass == Pass::kForward && is_of_whole_model(entry.id);
  };
  return sliced_tensors(is_returned, table, census, microbatches, layout);
}

// Sets what the inputs tell of the samples, where no rule says their layout, and the packed sequences. The numbers of
// these look like an order of samples and are none.
void tell_samples(const RankTable& table, const Census& census, const ModelLayout& layout, CommonInputs& inputs,
                  Microbatches& result) {
  result.packed = packed_sequences_of(table, census, result, layout);
  if (!result.layout.empty()) return;
  std::erase_if(inputs.sliced, [&](const auto& item) { return result.packed.has_own_numbers(item.first); });
  result.samples = sample_orders(inputs.sliced, inputs.tellings);
  add_stacked_orders(inputs.sliced, result.samples);
  if (!result.samples.told.empty())
    add_stacked_orders(returned_by_models(table, census, result, layout), result.samples);
  result.samples.own_counts = std::move(inputs.own_counts);
  result.lists = SampleLists(inputs.lists, result.samples);
  add_returned_numbers(table, census, layout, result, result.samples.begin_anew);
  if (!result.packed.rows.empty()) {
    result.packed = packed_sequences_of(table, census, result, layout);
    add_orders(result.packed, result.samples);
  }
  add_ragged_orders(table, census, result, layout, inputs, result.samples);
}

}  // namespace

Microbatches microbatches_of(const RankTable& table, const Census& census, const ResolvedAnnotations& annotations,
                             const ModelLayout& layout) {
  Microbatches result;
  const MicrobatchRule& rule = annotations.said.microbatches;
  result.order = rule.order.value_or(MicrobatchOrder::kInterleaved);
  result.are_stages = annotations.said.pipeline.has_value();
  for (const ResolvedAxis& axis : annotations.microbatch_axes) {
    if (axis.index < 0) continue;
    result.axes.push_back(axis.index);
    result.ranks *= axis.size;
  }
  count_microbatches(table, census, result);
  const bool knows_reference = result.ranks > 1 && layout.reference != nullptr;
  const bool may_be_slices = rule.order ? result.are_slices() : counts_are_the_references(table, result, layout);
  if (knows_reference && may_be_slices) {
    CommonInputs inputs = common_inputs(table, census, result, layout);
    const auto are_of_parts = [&] { return inputs.are_whole && have_own_losses(table, census, result); };
    if (!rule.order && (inputs.are_slices() || are_of_parts())) {
      result.order = MicrobatchOrder::kSlices;
      result.deduced = true;
    }
    result.layout = rule.layout;
    if (result.are_slices()) tell_samples(table, census, layout, inputs, result);
    result.open_lists = result.are_slices() && inputs.are_lists && result.lists.told().empty();
  }
  if (knows_reference && !rule.order && !result.are_slices() && orders_differ(result) &&
      !take_told_order(table, census, layout, result)) {
    const FittingOrders fitting = fitting_orders(table, census, result, layout);
    if (fitting.are_blocked()) result.order = MicrobatchOrder::kBlocked;
    result.deduced = result.order == MicrobatchOrder::kBlocked;
    result.open = fitting.are_open();
  }
  if (knows_reference && !result.are_slices()) find_shared_losses(table, census, layout, result);
  if (!rule.order && result.ranks > 1 && layout.reference == nullptr) result.open = true;
  if (!rule.layout.empty()) result.layout = rule.layout;
  return result;
}

ToldOrder order_told_by(const Alignment& other, const Trace& trace, const Annotations& given) {
  const RankTable ranks = rank_table_of(trace);
  const ResolvedAnnotations annotations = resolve(with_program_words(given, trace), ranks.mesh);
  const Census census = census_of(ranks, -1, -1, 0);
  const Microbatches told = microbatches_of(ranks, census, annotations, layout_of(other));
  if (!told.deduced || !told.told.empty()) return {std::nullopt, told.open};
  MicrobatchRule rule = annotations.said.microbatches;
  rule.order = told.order;
  if (told.are_slices() && told.are_striped()) rule.layout = "striped";
  return {rule, false};
}

bool Microbatches::is_sliced(std::int32_t iteration, std::int32_t microbatch) const {
  const auto found = sliced.find(iteration);
  return are_slices() || (found != sliced.end() && found->second.contains(microbatch));
}

std::optional<std::int32_t> Microbatches::microbatch_of_shared(const TensorId& id, std::int64_t coordinate,
                                                               const std::string& name) const {
  if (id.microbatch < 0 || !shared_losses.contains(id.iteration)) return std::nullopt;
  if (!is_loss_of_backward(id) && id.kind != Kind::kParamGrad) return std::nullopt;
  const std::int32_t number = number_of_loss(shared_losses.at(id.iteration)[static_cast<std::size_t>(coordinate)], id);
  if (id.kind != Kind::kParamGrad) return number;
  const auto found = shared_gradients.find({id.iteration, number, name});
  return found == shared_gradients.end() ? std::nullopt : std::optional(found->second);
}

bool Microbatches::is_shared(const TensorId& id) const {
  if (!shared_losses.contains(id.iteration)) return false;
  if (id.kind != Kind::kParamGrad) return is_loss_of_backward(id);
  return std::ranges::any_of(shared_losses.at(id.iteration)[0], [&](const auto& loss) {
    const auto found = shared_gradients.find({id.iteration, loss.second, id.name.get()});
    return found != shared_gradients.end() && found->second == id.microbatch;
  });
}

bool Microbatches::are_striped() const {
  bool any = false;
  for (const auto& [microbatch, orders] : samples.told) {
    for (const auto& [extent, dealt] : orders) {
      if (!ttrace::are_striped(dealt, ranks)) return false;
      any = any || !are_contiguous(dealt);
    }
  }
  return any;
}

std::string describe_axes(const Microbatches& microbatches, const RankTable& table) {
  std::vector<std::string> axes;
  for (const int axis : microbatches.axes) axes.push_back(table.axes[static_cast<std::size_t>(axis)].name);
  return fmt::format("{}", fmt::join(axes, " and "));
}

std::int64_t coordinate_on(const PresentRank& rank, const RankTable& table, const Microbatches& microbatches) {
  std::int64_t coordinate = 0;
  for (const int axis : microbatches.axes) {
    const auto index = static_cast<std::size_t>(axis);
    coordinate = coordinate * table.axes[index].size + rank.coordinates[index];
  }
  return coordinate;
}

std::int64_t microbatches_a_rank(const Microbatches& microbatches, std::int32_t iteration) {
  const auto found = microbatches.counts.find(iteration);
  return found == microbatches.counts.end() ? 1 : *std::max_element(found->second.begin(), found->second.end());
}

std::int32_t global_microbatch(const Microbatches& microbatches, std::int32_t iteration, std::int64_t coordinate,
                               std::int32_t local) {
  if (!microbatches.told.empty()) {
    const auto& of_rank = microbatches.told.at(iteration)[static_cast<std::size_t>(coordinate)];
    return of_rank.at(static_cast<std::size_t>(local));
  }
  const std::int64_t global =
      microbatches.order == MicrobatchOrder::kInterleaved
          ? local * microbatches.ranks + coordinate
          : microbatches.block_starts.at(iteration)[static_cast<std::size_t>(coordinate)] + local;
  if (global > std::numeric_limits<std::int32_t>::max()) {
    throw InputError(
        fmt::format("iteration {}: micro-batch {} on one of {} data-parallel ranks; expected fewer than "
                    "2^31 in all",
                    iteration, local, microbatches.ranks));
  }
  return static_cast<std::int32_t>(global);
}

std::vector<Finding> find_skipped_microbatches(const RankTable& table, const Microbatches& microbatches) {
  std::vector<Finding> findings;
  if (microbatches.axes.empty() || microbatches.order != MicrobatchOrder::kInterleaved) return findings;
  if (!microbatches.told.empty()) return findings;  // each was found
  const std::int64_t step = microbatches.ranks;
  for (const auto& [iteration, counts] : microbatches.counts) {
    std::int64_t last = -1;
    for (std::int64_t c = 0; c < step; ++c) last = std::max(last, (counts[static_cast<std::size_t>(c)] - 1) * step + c);
    std::int64_t holes = 0;
    std::vector<std::int64_t> first_holes;
    std::vector<bool> behind(counts.size(), false);
    for (std::int64_t c = 0; c < step; ++c) {
      const std::int64_t begin = counts[static_cast<std::size_t>(c)];
      const std::int64_t end = last < c ? 0 : (last - c) / step + 1;  // how many it would have run up to `last`
      if (begin >= end) continue;
      behind[static_cast<std::size_t>(c)] = true;
      holes += end - begin;
      for (std::int64_t m = begin; m < std::min<std::int64_t>(end, begin + std::int64_t{kListed}); ++m) {
        first_holes.push_back(m * step + c);
      }
    }
    if (holes == 0) continue;
    std::sort(first_holes.begin(), first_holes.end());
    std::vector<std::string> words;
    for (const std::int64_t m : first_holes) words.push_back(std::to_string(m));
    words.resize(std::min(words.size(), kListed));
    Finding finding;
    finding.id.iteration = iteration;
    finding.verdict = Verdict::kMissing;
    finding.reason = Reason::kOmission;
    finding.ranks = ranks_at(table, microbatches, behind);
    finding.message = fmt::format(
        "iteration {}: {} of {} micro-batches ({}{}) were run by no rank: along {} the ranks ran {} of them", iteration,
        holes, last + 1, fmt::join(words, ", "), holes > static_cast<std::int64_t>(words.size()) ? ", ..." : "",
        describe_axes(microbatches, table), fmt::join(counts, ", "));
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace ttrace
