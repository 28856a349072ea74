// How the ranks share the micro-batches of an iteration: data-parallel ranks run different ones of one sequence, which
// get global numbers here, or each runs its slice of every one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/alignment.h"
#include "base/annotation.h"
#include "identify/census.h"
#include "identify/packed.h"
#include "identify/ranks.h"
#include "identify/resolved_annotations.h"
#include "identify/sample_lists.h"
#include "identify/samples.h"

namespace ttrace {

// Iteration, the reference's micro-batch of the loss, and name of the parameter.
using SharedGradient = std::tuple<std::int32_t, std::int32_t, std::string>;

struct Microbatches {
  std::vector<int> axes;   // indexes into the table's axes, outermost first; none: all ranks run the same micro-batches
  std::int64_t ranks = 1;  // along the axes
  MicrobatchOrder order = MicrobatchOrder::kInterleaved;
  std::string layout;       // of slices, as a rule says it; empty: as `samples` tell, or else contiguous
  SampleOrders samples;     // of slices, where no rule says their layout
  PackedSequences packed;   // of slices
  SampleLists lists;        // of slices
  bool are_stages = false;  // a rule makes chunks stages of one model
  bool open_lists =
      false;             // of slices: the model is given lists, of which nothing tells whose samples their elements are
  bool deduced = false;  // neither a rule nor the program said the order
  bool open = false;     // nothing tells the order, which is taken to be interleaved
  // By iteration, then coordinate and number there: the micro-batch of the reference, where the bytes of what the model is
  // given tell an order that is none of the three. Empty elsewhere.
  std::map<std::int32_t, std::vector<std::vector<std::int32_t>>> told;
  // By iteration, of micro-batches that are told: those of the reference of which each coordinate runs a slice, where it
  // runs others whole.
  std::map<std::int32_t, std::set<std::int32_t>> sliced;
  // By iteration, then coordinate: of each of its micro-batches that has a loss, the reference's that has the same one.
  // Where each coordinate has as many losses as the reference, and there are more forwards: a backward() is behind several,
  // and its loss at the last of them, which need not be the reference's last. Empty elsewhere.
  std::map<std::int32_t, std::vector<std::map<std::int32_t, std::int32_t>>> shared_losses;
  // Of gradients of parameters that each coordinate's backward() makes then, one each: the reference's micro-batch that has
  // it.
  std::map<SharedGradient, std::int32_t> shared_gradients;
  // By iteration, then coordinate: how many micro-batches were run, and the first one of each where they are blocked.
  std::map<std::int32_t, std::vector<std::int64_t>> counts, block_starts;

  bool are_slices() const { return order == MicrobatchOrder::kSlices && ranks > 1; }
  // True where each coordinate runs a slice of it, of all micro-batches or of this one; by the reference's number.
  bool is_sliced(std::int32_t iteration, std::int32_t microbatch) const;
  // Returns the reference's micro-batch that has a loss of several micro-batches, or the gradient of a parameter that its
  // backward() makes, of a coordinate; nothing for others. `id` is the rank's own, `name` the reference's.
  std::optional<std::int32_t> microbatch_of_shared(const TensorId& id, std::int64_t coordinate,
                                                   const std::string& name) const;
  bool is_shared(const TensorId& id) const;  // by the reference's id
  bool are_striped() const;                  // samples are dealt out in turns in all micro-batches that tell
};

// Where the annotations do not say the order, and each rank ran as many micro-batches as the reference, whose model was
// given more than each rank and as much as all together (of one tensor, or of the elements of lists), the ranks hold
// slices; which samples, the bytes of the inputs tell. So they do where each rank was given all that the reference was,
// and has a loss of its own. Where each micro-batch's model was given the bytes of one of the reference's, no two ranks
// the same, they run these; else, where every integer input that the reference has, too, is equal to that if the ranks
// run blocks of micro-batches, and not if these interleave, they run blocks.
Microbatches microbatches_of(const RankTable& table, const Census& census, const ResolvedAnnotations& annotations,
                             const ModelLayout& layout);

// How the ranks of the trace shared the micro-batches, where neither `given` nor its program say so and the
// inputs of another run do: that has one order, and is aligned in the names of this trace.
struct ToldOrder {
  std::optional<MicrobatchRule> rule;  // absent: they interleave
  bool open = false;                   // nothing tells it
};
ToldOrder order_told_by(const Alignment& other, const Trace& trace, const Annotations& given);

std::string describe_axes(const Microbatches& microbatches, const RankTable& table);  // `dp`, `dp and cp`

// The rank's place in the sequence of the ranks along the micro-batch axes.
std::int64_t coordinate_on(const PresentRank& rank, const RankTable& table, const Microbatches& microbatches);

// Throws InputError when the number does not fit the 32 bits of an identity.
std::int32_t global_microbatch(const Microbatches& microbatches, std::int32_t iteration, std::int64_t coordinate,
                               std::int32_t local);

// How many micro-batches a rank runs in the iteration; of ranks that run different numbers, the busiest.
std::int64_t microbatches_a_rank(const Microbatches& microbatches, std::int32_t iteration);

// Finds the global micro-batches below the last one that no rank ran, because some ranks ran fewer than others. There
// is one finding for each such iteration.
std::vector<Finding> find_skipped_microbatches(const RankTable& table, const Microbatches& microbatches);

}  // namespace ttrace
