#include "merge/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "merge/scatter.h"
#include "merge/values.h"
#include "numeric/generator.h"

namespace ttrace {
namespace {

// Returns uniform values in [-1, 1). They are independent of the noise that `--perturb` makes of the same seed and
// identity, since `purpose` goes into the generator's name.
std::vector<float> uniform_values(std::string_view purpose, std::uint64_t seed, const LogicalTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(element_count(tensor.shape)));
  const Shape start(tensor.shape.size(), 0);
  fill_uniform(seed, fmt::format("{}/{}", purpose, to_string(tensor.id)), tensor.shape, start, tensor.shape,
               values.data());
  return values;
}

// True for a tensor that a norm describes: one that is finite and has more than two different values.
bool has_many_values(const Values& values) {
  if (!std::isfinite(norm_of(values))) return false;
  const auto differs = [&](double value) { return value != values[0]; };
  const auto second = std::find_if(values.begin(), values.end(), differs);
  return std::any_of(second, values.end(), [&](double value) { return value != values[0] && value != *second; });
}

void generate(Values& values, std::uint64_t seed, const LogicalTensor& tensor) {
  const std::vector<float> uniform = uniform_values("rewrite", seed, tensor);
  const double norm = norm_of(values);
  std::copy(uniform.begin(), uniform.end(), values.begin());
  const double factor = norm / norm_of(values);
  for (double& value : values) value *= factor;
}

void perturb(Values& values, std::uint64_t seed, const LogicalTensor& tensor) {
  const std::vector<float> uniform = uniform_values("perturb", seed, tensor);
  const double epsilon = epsilon_of(tensor.dtype);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= 1 + epsilon * uniform[i];
}

std::optional<RewriteValues> values_to_rewrite(Kind kind, const Rewriting& rewriting) {
  switch (kind) {
    case Kind::kParam:
      return rewriting.parameters;
    case Kind::kInput:
    case Kind::kGradOutput:
      return rewriting.activations;
    default:
      return std::nullopt;
  }
}

}  // namespace

bool is_rewritten(const LogicalTensor& layout, const Rewriting& rewriting) {
  if (!is_floating(layout.dtype)) return rewriting.integers && layout.id.kind == Kind::kInput;
  return values_to_rewrite(layout.id.kind, rewriting).has_value();
}

std::vector<RewrittenShard> rewritten_shards(const LogicalTensor& reference, const LogicalTensor& layout,
                                             const Rewriting& rewriting) {
  Values values = values_of(reference);
  if (is_floating(reference.dtype)) {
    if (values_to_rewrite(reference.id.kind, rewriting) == RewriteValues::kGenerated && has_many_values(values)) {
      generate(values, rewriting.seed, reference);
    }
    if (rewriting.perturb) perturb(values, *rewriting.perturb, reference);
  }
  return scatter(values, layout);
}

}  // namespace ttrace
