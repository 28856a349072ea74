// Writes logical tensors to files that other programs read, for `ttrace export`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// `iteration-0/microbatch-2/output/layers.0.mlp`; parameters have no micro-batch, a recomputed tensor says
// `output-recompute`. Escaped as `printable` does, with slashes of the name.
std::string export_key(const TensorId& id);

// Writes each tensor under its key, one in memory at a time. The name of the file decides on its format:
//
//   .safetensors   the format of the Hugging Face library, in the recorded dtypes
//   .npz           NumPy's; it knows no bfloat16 and no fp8, which become float32
//
// The elements are the recorded bits, but where a tensor is a sum of terms, or was recorded with a scale: that is
// computed in, and written as, float64. Throws InputError for another name of file, for two tensors of one key, and
// where the file can't be written; what was there before stays then.
void export_tensors(const std::vector<const LogicalTensor*>& tensors, const std::filesystem::path& output);

}  // namespace ttrace
