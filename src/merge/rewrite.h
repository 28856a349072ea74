// Module-wise rewriting (TTrace, section 4.3): the modules of a run are given other values in place of their own
// inputs, and in backward in place of their own output gradients. So every module of two programs starts from the same
// values, and no error travels from one module to the next. The values are those that the reference recorded, or
// generated ones of the same norm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

enum class RewriteValues : std::uint8_t {
  kRecorded,   // the reference's values
  kGenerated,  // values of the consistent generator, with the norm of the reference's
};

// Says which tensors are rewritten, and with which values. Integers are never generated: they are token ids, positions
// and routes.
struct Rewriting {
  std::optional<RewriteValues> activations;  // floating inputs and output gradients of all modules
  std::optional<RewriteValues> parameters;   // parameters, before an iteration
  bool integers = false;                     // integer inputs, with the recorded values
  std::uint64_t seed = 0;                    // of the generated values
  // Multiplies each rewritten floating-point element by 1 + eps * u, with u in [-1, 1) from the generator with this
  // seed, and the eps of the tensor's dtype. Such a run shows how far each module by itself responds to rounding.
  std::optional<std::uint64_t> perturb;
};

// One rank's rewritten tensor: `bytes` are in `entry`'s dtype and shape, row-major.
struct RewrittenShard {
  std::int32_t rank = 0;
  const Entry* entry = nullptr;  // of the run's own tensor
  std::vector<std::byte> bytes;
};

// True for a tensor of a run that `rewriting` asks for.
bool is_rewritten(const LogicalTensor& layout, const Rewriting& rewriting);

// Returns `reference`'s values as the shards that the run has of the same logical tensor, `layout`. Of several terms
// the first holds the whole value, the others 0. Padding keeps `layout`'s bytes. A tensor that a norm does not describe
// keeps its recorded values instead of generated ones: one that is not finite, or has at most two different values (a
// mask, a constant). The shapes must be equal, and neither tensor may have `rows`.
std::vector<RewrittenShard> rewritten_shards(const LogicalTensor& reference, const LogicalTensor& layout,
                                             const Rewriting& rewriting);

}  // namespace ttrace
