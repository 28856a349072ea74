// Which samples of a micro-batch each data-parallel rank runs, as the bytes of what the model is given tell it.
//
// Samplers deal samples out in stretches, in turns, in two views of each, or in an order of their own. Shapes do not say
// which, and the bytes of the inputs do: a sample has the same on both sides. What holds for them holds for all that is
// computed from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// The reference's numbers of the samples that the ranks hold, rank after rank: each once.
using Samples = std::vector<std::int64_t>;

// What one input, or one list, tells: the order, and how many different samples it tells it by.
struct Telling {
  Samples samples;
  std::size_t different = 0;
  bool exact = true;                  // all ranks hold the samples so
  std::int64_t whole_length = 0;      // of the reference, where the ranks pad to lengths of their own
  std::vector<std::int64_t> lengths;  // of the ranks; none where all have the reference's
};

// Where an input ends before the reference's samples do.
struct Truncation {
  std::size_t dim = 0;                 // along which
  std::int64_t whole_length = 0;       // of the reference
  std::set<std::int64_t> coordinates;  // on the micro-batch axes, of the ranks that lack more than one element of some
  // No rank lacks more, and `coordinates` are those of the ranks that lack one, which may be there for a label alone: of
  // tokens[:, :-1] a rank's longest sample lacks it, and the reference's has it where a longer one is beside it.
  bool by_one = false;
};

// What hashes of the reference's samples and of those of each rank tell. `are_numbers`: each is of a single number, which
// another sample may have by chance.
std::optional<Telling> telling_of_hashes(const std::vector<std::uint64_t>& whole,
                                         const std::vector<std::vector<std::uint64_t>>& parts, bool are_numbers);

// The order of rows of samples of unlike lengths.
struct RaggedRows {
  Samples rows;                      // the reference's, rank after rank
  std::vector<std::int64_t> own;     // how many each rank has
  std::int64_t samples = 0;          // 0: not known, as of rows of two kinds
  std::vector<std::int64_t> counts;  // how many samples each rank has
};

// By iteration and micro-batch, and by the number of samples along a dimension that an input told.
struct SampleOrders {
  using OfMicrobatches = std::map<std::pair<std::int32_t, std::int32_t>, std::map<std::int64_t, Samples>>;
  OfMicrobatches told;

  // What the inputs of further models of the program tell of these, by the beginning of their names: `model1.`. A
  // discriminator may be given what is real and what is made in one batch.
  std::map<std::string, OfMicrobatches> of_further_models;

  // By the beginning of a further model's names, or nothing, the order of the rows along the lengths of which
  // `add_stacked_orders` knows that they are blocks of samples, one behind the other.
  std::map<std::string, OfMicrobatches> stacked;

  // By the number of rows.
  std::map<std::pair<std::int32_t, std::int32_t>, std::map<std::int64_t, RaggedRows>> ragged;

  // By iteration and micro-batch, and by a length of the reference: how long the ranks' own parts are, where each rank
  // padded to the longest of its own samples.
  std::map<std::pair<std::int32_t, std::int32_t>, std::map<std::int64_t, std::set<std::vector<std::int64_t>>>> lengths;

  // Integer inputs that are the reference's less one number on each rank, such as the numbers of nodes in a batch of
  // graphs, or tables of floats of which one column is, and all else the reference's: they count within what the rank was
  // given. And what modules return of them.
  std::set<TensorId> begin_anew;

  // Inputs of one whole number that are of each rank's own samples, and that add up to the reference's: how many
  // samples or tokens there are; and lists of where such end, from 0 on each rank, with the reference's lengths between.
  std::set<TensorId> own_counts;

  // Inputs of which some ranks have the beginnings of the reference's samples alone, where no other input says that what
  // they lack is padding.
  std::map<TensorId, Truncation> truncated;

  bool is_truncated(std::int32_t iteration, std::int32_t microbatch) const;  // some input of it, by more than one

  // The order of the samples along a dimension of `extent` elements, a whole number for each sample, of a tensor of the
  // micro-batch: of its own model, or else of the first; null where no input tells it.
  const Samples* find(const TensorId& id, std::int64_t extent) const;

  // The order of just so many samples.
  const Samples* find_exactly(const TensorId& id, std::int64_t samples) const;

  // The order of the rows along a dimension of blocks of samples, or of several rows for each of theirs; null where it
  // is not known to be one.
  const Samples* find_stacked(const TensorId& id, std::int64_t extent) const;

  // The order of the rows along a dimension of ragged samples' rows, of which the ranks have so many of `extent`, or of as
  // many elements for each row; null where there is none.
  const Samples* find_ragged(const TensorId& id, std::int64_t extent, const std::vector<std::int64_t>& own) const;

  // True where some input of the micro-batch, of this extent, ends on the ranks at these lengths, or where they are what
  // a convolution with one stride makes of its extent and of its lengths.
  bool are_own_lengths(const TensorId& id, std::int64_t extent, const std::vector<std::int64_t>& own) const;
};

// One hash for each row along `dim` of a row-major tensor.
std::vector<std::uint64_t> hashes_of_rows(const std::byte* data, const Shape& shape, std::size_t dim, Dtype dtype);

// A model input that the ranks hold parts of. By coordinate on the micro-batch axes: the first rank's, null where none
// recorded it.
struct SlicedInput {
  const LogicalTensor* reference = nullptr;
  std::vector<const RankTrace*> ranks;
  std::vector<const Entry*> parts;
  bool is_shared = true;  // by all ranks of a coordinate: else further axes divide it
  std::size_t dim = 0;    // the one that is the sum of the parts, and larger than each
};

// True where integers are the reference's less one number on each rank, of the rows one rank after the other, or in this
// order where there is one: numbers that begin anew on each. Of pairs, such as edges from authors to papers, either of the
// two may count something else.
bool begins_anew(const SlicedInput& input, const Samples* order = nullptr);

// The order of the samples by all inputs that are the reference's, bit for bit, part by part. A part may end at the
// longest of the rank's own samples, where the reference's have nothing but one value behind it: padding. Integer inputs of any
// module are asked, and floating-point ones of whole models, whose rows may be computed (near_rows.h). Where some ranks hold other samples than the reference
// has, those that hold its samples tell the order. Of several that tell of one micro-batch and number of
// samples, one by which all ranks hold the reference's counts before others, and then the one with the most different.
// `lists` are what lists tell, of which the first of equal ones counts, behind inputs.
SampleOrders sample_orders(const std::map<TensorId, SlicedInput>& inputs,
                           const std::vector<std::pair<TensorId, Telling>>& lists);

// The reference's elements, row-major. Null where its inputs are split themselves, or sketched, which is not looked at.
const std::byte* elements_of(const LogicalTensor& reference);

// An element of a tensor of int32 or int64.
std::int64_t integer_at(const std::byte* data, std::int64_t index, Dtype dtype);

// True where the samples lie in stretches, in order of the rank.
bool are_contiguous(const Samples& samples);
// True where sample i lies on rank i mod `ranks`.
bool are_striped(const Samples& samples, std::int64_t ranks);

}  // namespace ttrace
