// Sets aside what differs and may be right all the same, so that no guess becomes a verdict: tensors whose place rests
// on their shapes alone, and what each rank draws, or takes of its own samples, by design.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "diagnose/diagnosis.h"

namespace ttrace {

// Makes untrusted the findings that leave a question open (what is missing stays so), and adds the questions to the
// report. `follows_from` is that of the report's roots. Returns false where there is none; else the roots are to be
// looked for again.
//
// other-names: what is wrong by its name alone (diagnose/other_names.h).
// other-microbatches: what is of a micro-batch, in iterations whose batch both sides cut otherwise
//   (diagnose/other_microbatches.h).
// unknown-loss-scale: the gradients of a micro-batch, and its loss, that are one multiple of the reference's, an integer
// or one over it, or the loss alone, while every update and value of a parameter passes that steps make of them; and
// gradients that the program may divide on the way to tensors of its own, which it steps with.
// own-numbers: a root that is the output of a module that draws random numbers, or in training takes the statistics of
// its batch while ranks run slices of it, and all that follows from it.
// guessed-placement: a root that is `guessed`, with what follows from it and is guessed as well, if one of these holds:
// - every gradient that a step takes, update and value of a parameter passes, and the error does not show that most of
//   the tensor is in its place, which a wrong part, or other rows, do not where the shapes alone say that it is padded;
// - its shards do not fit together;
// - another placement explains the error: its elements in another order, or terms of a sum from which nothing wrong
//   follows that is not guessed; of the forward pass, nothing of that pass, where the loss is right.
// near-unmeasured: all that is left, where tolerances that were not measured are exceeded by no more than the margin of
//   measured ones, or those of a few numbers that no perturbed run moved by no more than some roundings, nothing is wrong for another reason, and no root has a cause.
// possible-jump: all that is left, where it is of light iterations and may follow from a kink (diagnose/light_jumps.h).
// What none of them explains stays wrong. Of buffers that differ,
//
// own-statistics: what a normalisation takes of each rank's own samples, by its class, and constants from which
//   nothing wrong follows. They leave no question open, and are noted.
// own-numbers: what the iteration has changed otherwise on each rank, or by other micro-batches on each rank than in
//   the reference, where the copies are not terms of the reference's.
bool set_questions_aside(Report& report, std::span<const std::optional<std::size_t>> follows_from,
                         const Evidence& evidence);

}  // namespace ttrace
