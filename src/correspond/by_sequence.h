// Puts two runs of the same sequences in other batches into one index space: that of the tokens, sequence by sequence.
//
// A tensor with a row for each token of a batch, [batch, length, ..], becomes [tokens, ..], of all calls of a model in an
// iteration: the tokens of the sequences that both sides were given, in the reference's order, however each has padded,
// packed or divided them among calls. Which sequence of one side is which of the other, their tokens say. Nothing is
// copied: the pieces are cut.
#pragma once

#include <string>
#include <vector>

#include "base/alignment.h"
#include "correspond/token_streams.h"

namespace ttrace {

// Says what the tokens are of, and what could not be compared.
struct SequenceMapping {
  std::vector<std::string> notes;
  std::string partial;  // as `Runs::partial`; empty: both sides hold the same sequences
};

// Changes both alignments. `reference_streams` and `candidate_streams` are theirs, or those of the traces that they were
// translated from. Left out, and named in a note, are tensors without a dimension of tokens, with one of keys, or that
// were not recorded for every token; gradients of parameters of single micro-batches; masks, which say how a batch lies;
// and integer inputs that one side alone was given. Throws InputError where no sequence of one side is one of the other,
// and where a floating-point tensor has a row for each token on one side alone, or none has on both.
SequenceMapping map_by_sequence(const TokenStreams& reference_streams, const TokenStreams& candidate_streams,
                                Alignment& reference, Alignment& candidate);

}  // namespace ttrace
