// What models were given, on the ranks and in the reference: whether the ranks' inputs are slices of the reference's, or
// the whole of them.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/alignment.h"
#include "identify/census.h"
#include "identify/ragged_samples.h"
#include "identify/ranks.h"
#include "identify/sample_lists.h"
#include "identify/samples.h"

namespace ttrace {

bool is_first_input(const Entry& entry);
bool is_of_whole_model(const TensorId& id);

// True where the reference's tensor has the elements of a rank's own, in whatever order of dimensions it was recorded.
bool has_elements_of(const Entry& entry, const RankTrace& rank, const LogicalTensor& reference);

// The tensors of micro-batches of which the ranks hold parts that are the reference's together along a dimension, and each
// fewer, of the roles for which `is_wanted`.
std::map<TensorId, SlicedInput> sliced_tensors(const std::function<bool(const Entry&)>& is_wanted,
                                               const RankTable& table, const Census& census,
                                               const Microbatches& microbatches, const ModelLayout& layout);

// The inputs that both sides have, with the ranks' parts; `sliced` holds those that these make up along a dimension.
struct CommonInputs {
  bool any_integer = false;
  std::map<TensorId, SlicedInput> sliced;
  std::set<TensorId> own_counts;  // `SampleOrders::own_counts`
  bool are_lists = false;  // together the ranks' models were given as many tensors as the reference's, and each fewer
  std::vector<DividedList> lists;
  std::vector<OwnEnds> ends;
  std::vector<std::pair<TensorId, Telling>> tellings;  // of lists, and of stretches between ends

  bool are_integers_whole = true;  // each rank's are as large as the reference's, or it has none
  bool are_whole = false;          // each rank was given all that the reference was

  // True where they are slices of the reference's. Integer inputs decide where there are some: tokens and labels are of
  // the batch and nothing else, while a hidden dimension may be split by other axes. Where each rank was given all of
  // these, as the ids of tables that one rank has each, the first dimension of what the model is given decides.
  bool are_slices() const;
};

// `microbatches` has its axes; the ranks run as many micro-batches as the reference.
CommonInputs common_inputs(const RankTable& table, const Census& census, const Microbatches& microbatches,
                           const ModelLayout& layout);

}  // namespace ttrace
