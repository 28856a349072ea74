// Module-wise rewriting (TTrace, section 4.3): what the modules of a run are given in place of their own inputs, and in
// backward of their own output gradients, so that every module of two programs starts from the same values and no error
// travels from one to the next. Values are those that the reference recorded, or generated ones of the same norm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

enum class RewriteValues : std::uint8_t {
  kRecorded,   // as the reference holds them
  kGenerated,  // from the consistent generator, with the norm of what the reference holds
};

// What is rewritten, and with what. Integers are never generated: they are token ids, positions, routes.
struct Rewriting {
  std::optional<RewriteValues> activations;  // floating inputs and output gradients of all modules
  std::optional<RewriteValues> parameters;   // before an iteration
  bool integers = false;                     // integer inputs, as recorded
  std::uint64_t seed = 0;                    // of the generated values
  // Multiplies what is rewritten in floating point elementwise by 1 + eps * u, u in [-1, 1) from the generator with
  // this seed, eps of the tensor's dtype: a run that shows how far each module by itself answers to rounding.
  std::optional<std::uint64_t> perturb;
};

// One rank's tensor as rewritten: the bytes of `entry`'s dtype and shape, row-major.
struct RewrittenShard {
  std::int32_t rank = 0;
  const Entry* entry = nullptr;  // of the layout
  std::vector<std::byte> bytes;
};

// True for a tensor of a run that `rewriting` asks for.
bool is_rewritten(const LogicalTensor& layout, const Rewriting& rewriting);

// The shards of `reference`'s values in the layout that the run has of the same logical tensor. Partial values:
// the first term holds all, the others 0. Padding is as in `layout`. Generated values are the recorded ones where a
// norm says nothing of a tensor: not finite, or of at most two different values (masks, constants).
// The shapes are equal; neither has `rows`, which are where routing put them.
std::vector<RewrittenShard> rewritten_shards(const LogicalTensor& reference, const LogicalTensor& layout,
                                             const Rewriting& rewriting);

}  // namespace ttrace
