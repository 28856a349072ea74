#include "record/perturbation.h"

#include <fmt/format.h>

#include "ttrace/align/locate.h"
#include "ttrace/numeric/generator.h"

namespace ttrace {
namespace {

std::string key_of(const TensorId& id) {
  const std::string batch = id.microbatch == kNoMicrobatch ? "-" : fmt::format("{}", id.microbatch);
  return fmt::format("{}/{}/{}/{}", id.iteration, batch, name_of(id.kind), id.name);
}

}  // namespace

void fill_perturbation(const Annotations& annotations, const RunDescription& run, std::uint64_t seed,
                       const TensorId& local_id, const Shape& local_shape, float* out) {
  Location location{local_id, local_shape, {Shape(local_shape.size(), 0), local_shape}};
  if (run.world_size > 1 && !annotations.path.empty()) {
    location = locate(annotations, run.mesh, run.coordinates, local_id, local_shape);
  }
  fill_uniform(seed, key_of(location.id), location.shape, location.box.start, location.box.size, out);
}

}  // namespace ttrace
