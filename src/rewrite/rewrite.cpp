#include "ttrace/rewrite/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "merge/values.h"
#include "rewrite/scatter.h"
#include "ttrace/numeric/generator.h"

namespace ttrace {
namespace {

// Independent of the noise that `--perturb` makes of the same seed and identity.
std::vector<float> uniform_of(std::string_view purpose, std::uint64_t seed, const LogicalTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(element_count(tensor.shape)));
  const Shape start(tensor.shape.size(), 0);
  fill_uniform(seed, fmt::format("{}/{}", purpose, to_string(tensor.id)), tensor.shape, start, tensor.shape,
               values.data());
  return values;
}

// What a norm describes: finite, and of more than two different values.
bool is_of_many_values(const Values& values) {
  if (!std::isfinite(norm_of(values))) return false;
  const auto differs = [&](double value) { return value != values[0]; };
  const auto second = std::find_if(values.begin(), values.end(), differs);
  return std::any_of(second, values.end(), [&](double value) { return value != values[0] && value != *second; });
}

void generate(Values& values, std::uint64_t seed, const LogicalTensor& tensor) {
  const std::vector<float> uniform = uniform_of("rewrite", seed, tensor);
  const double norm = norm_of(values);
  std::copy(uniform.begin(), uniform.end(), values.begin());
  const double factor = norm / norm_of(values);
  for (double& value : values) value *= factor;
}

void perturb(Values& values, std::uint64_t seed, const LogicalTensor& tensor) {
  const std::vector<float> uniform = uniform_of("perturb", seed, tensor);
  const double epsilon = epsilon_of(tensor.dtype);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= 1 + epsilon * uniform[i];
}

std::optional<RewriteValues> values_for(Kind kind, const Rewriting& rewriting) {
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
  return values_for(layout.id.kind, rewriting).has_value();
}

std::vector<RewrittenShard> rewritten_shards(const LogicalTensor& reference, const LogicalTensor& layout,
                                             const Rewriting& rewriting) {
  Values values = values_of(reference);
  if (is_floating(reference.dtype)) {
    if (values_for(reference.id.kind, rewriting) == RewriteValues::kGenerated && is_of_many_values(values)) {
      generate(values, rewriting.seed, reference);
    }
    if (rewriting.perturb) perturb(values, *rewriting.perturb, reference);
  }
  return scatter(values, layout);
}

}  // namespace ttrace
