// Places tensors by their shapes, where neither a rule nor the recording program says how they lie.
//
// A program that splits a tensor over an axis by code of its own (parallel linears, a scattered sequence) leaves parts
// whose sizes add up to the reference's. Where exactly one assignment of axes to dimensions explains the shapes that
// all ranks recorded under a name, the tensor lies so. This is a deduction about the program, not about its numbers:
// whatever it says is compared with the reference, and where it is wrong (blocks that are stacked, an order of its own)
// the tensor fails, with a sentence that says how it was placed. Three things tell assignments apart that fit equally
// well:
// - ranks that would hold copies must hold the same bits;
// - a gradient follows its value, the kinds of a parameter its value (as they follow a rule);
// - an axis splits what it splits elsewhere: where tokens told that dp splits the 8 samples, of two dimensions it
//   splits the one of 8.
// Parts that are together longer than the reference, where no assignment explains their sizes otherwise, are halos,
// each with the last elements of the one before it, where the bytes of all neighbours say so; else the reference's and
// padding behind it: a vocabulary, or a sequence, that was made to divide by the ranks.
// A parameter may be several blocks, each of which an axis splits by itself, as query, key and value are in one matrix:
// its bits say so where they are the reference's. Parameters beside it, what its module returns, and what is made of all
// of these, lie as it does.
// What is still open then is taken as replicated, so that it does not fit the reference, and the finding names the
// lines that would say it. Axes that split one dimension nest as the ranks are numbered, the slowest outermost.
//
// The same goes for the axes whose ranks run slices of every micro-batch (`order: slices`), of all tensors of a
// micro-batch: a rule need not name these. What a slice does not split was given to all ranks, so that its gradient, as
// the loss and a parameter's gradient, is a sum with a term from each slice.
#pragma once

#include "identify/identity.h"

namespace ttrace {

// Replaces the placements of groups about which the shapes say more. `layout.reference` may be null: then shapes say
// nothing. `annotations` are those of the grouping.
void place_by_shape(Grouping& grouping, const RankTable& table, const ResolvedAnnotations& annotations,
                    const ModelLayout& layout);

}  // namespace ttrace
