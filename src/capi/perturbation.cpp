#include "capi/perturbation.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "align/locate.h"
#include "numeric/generator.h"

namespace ttrace {
namespace {

std::string generator_key(const TensorId& id) {
  const std::string batch = id.microbatch == kNoMicrobatch ? "-" : fmt::format("{}", id.microbatch);
  return fmt::format("{}/{}/{}/{}", id.iteration, batch, name_of(id.kind), id.name);
}

// Writes the values of `slice.whole` to where `slice.local` lies in a row-major tensor of `shape`.
void fill_slice(std::uint64_t seed, const std::string& key, const Shape& whole, const Slice& slice, const Shape& shape,
                float* out) {
  std::vector<float> values(static_cast<std::size_t>(element_count(slice.local.size)));
  fill_uniform(seed, key, whole, slice.whole.start, slice.whole.size, values.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), position = 0, stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      position += (slice.local.start[d] + rest % slice.local.size[d]) * stride;
      rest /= slice.local.size[d];
      stride *= shape[d];
    }
    out[position] = values[i];
  }
}

}  // namespace

void fill_perturbation(const Annotations& annotations, const RunDescription& run, std::uint64_t seed,
                       const TensorId& local_id, const Shape& local_shape, float* out) {
  if (run.world_size == 1 || annotations.path.empty()) {
    return fill_uniform(seed, generator_key(local_id), local_shape, Shape(local_shape.size(), 0), local_shape, out);
  }
  const Location location = locate(annotations, run.mesh, run.coordinates, local_id, local_shape);
  std::fill_n(out, element_count(local_shape), 0.0f);  // padding
  for (const Slice& slice : location.slices) {
    fill_slice(seed, generator_key(location.id), location.shape, slice, local_shape, out);
  }
}

}  // namespace ttrace
