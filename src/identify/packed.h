// Packed sequences (torch's PackedSequence): the rows of a batch of sequences of several lengths, step by step, and in
// each step those of the sequences that go on, the longest first.
//
// A module is given one, or returns one, as up to four tensors: the rows (`rnn:0.0`), how many sequences each step has
// (`rnn:0.1`), which of the samples each of them is (`rnn:0.2`), and the inverse of that (`rnn:0.3`). Of a rank's slice
// of the samples all four are other ones than the reference's: the rows of its samples lie among each other as its own
// numbers say, and these say which of the reference's rows each row is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/alignment.h"
#include "identify/census.h"
#include "identify/ranks.h"
#include "identify/samples.h"

namespace ttrace {

struct Microbatches;

// Which of the reference's rows the ranks hold, rank after rank.
struct PackedRows {
  Samples rows;                         // empty: nothing tells
  bool told = false;                    // by the bytes of the inputs, or a rule; else by the lengths alone
  Samples samples;                      // of the reference, rank after rank, where there are rows
  std::int64_t steps = 0;               // of the reference's longest sample
  std::vector<std::int64_t> own_steps;  // of each rank's
  std::vector<std::int64_t> lengths;    // of the reference's samples
  std::vector<std::int64_t> counts;     // how many samples each rank has
};

struct PackedSequences {
  std::map<TensorId, PackedRows> rows;  // by the input or output, of the forward
  std::set<TensorId> own_numbers;       // what counts within the rank's own samples

  const PackedRows* find(
      TensorId id) const;  // of an input, an output or the gradient of one; null: it is no packed one
  bool has_own_numbers(TensorId id) const;
};

// The tensor of the rows beside one of how many sequences each step has, by its name; nothing for any other.
std::optional<TensorId> rows_of_packed(const TensorId& steps);

// The packed sequences of both sides, where the ranks run slices of the micro-batches. Where the order of the samples is
// known and some sample has another length than in the reference, it is none.
PackedSequences packed_sequences_of(const RankTable& table, const Census& census, const Microbatches& microbatches,
                                    const ModelLayout& layout);

// Adds what packed sequences tell of tensors beside them, where no input does: the order of the samples, and how long the
// ranks' own parts are once they are padded to the longest.
void add_orders(const PackedSequences& packed, SampleOrders& orders);

}  // namespace ttrace
