// Tests whether a normalisation over the last dimension took the statistics of each rank's part of it alone, as one does
// whose input is cut along that dimension (tensor parallelism) and that is not told.
//
// The input was recorded, and with w and b the module's weight and bias, the rank that has the columns J of a row x holds
//
//   x / sqrt(mean_J(x^2) + eps) w                        of a norm by the root mean square
//   (x - mean_J(x)) / sqrt(var_J(x) + eps) w + b         of one by mean and deviation
//
// Nothing is fitted; eps is one of those that programs use.
#include <array>
#include <cmath>
#include <string>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

constexpr auto kProgramsEps =
    std::to_array({1e-5, 1e-6, 0x1p-23, 0x1p-52, 1e-8, 1e-12, 0.0});  // torch's defaults, and those of models

struct RowStatistics {
  double mean = 0, mean_square = 0;
  double variance() const { return std::max(0.0, mean_square - mean * mean); }
};

RowStatistics statistics_of(std::span<const double> values) {
  RowStatistics of;
  for (const double value : values) {
    of.mean += value / static_cast<double>(values.size());
    of.mean_square += value * value / static_cast<double>(values.size());
  }
  return of;
}

// A parameter of the module, one number a column; `otherwise` in each where it has none of that size.
Values parameter_by_column(const Suspect& suspect, std::string_view last, double otherwise) {
  const TensorId& id = suspect.reference.id;
  TensorId parameter = id.with_kind(Kind::kParam);
  parameter.microbatch = kNoMicrobatch;
  parameter.name = parameter_of(TensorName(id.name.get()).path, last);
  const auto width = static_cast<std::size_t>(suspect.reference.shape.back());
  const LogicalTensor* tensor = find_tensor(suspect.evidence.reference, parameter);
  if (tensor == nullptr || !is_floating(tensor->dtype) || tensor->shape != Shape{suspect.reference.shape.back()})
    return Values(width, otherwise);
  return values_of(*tensor);
}

// What ranks hold whose norms take the statistics of their own part of a row.
class NormOfParts {
 public:
  NormOfParts(const Suspect& suspect, Values given)
      : suspect_(suspect),
        given_(std::move(given)),
        weight_(parameter_by_column(suspect, "weight", 1)),
        bias_(parameter_by_column(suspect, "bias", 0)) {}

  Values predict(bool by_mean, double eps) const {
    Values predicted = suspect_.reference_values;
    for (const LocalTensor& part : suspect_.parts) {
      const auto width = static_cast<std::size_t>(part.shape.back());
      for (std::size_t start = 0; start < part.positions.size(); start += width) {
        normalise(std::span(part.positions).subspan(start, width), by_mean, eps, predicted);
      }
    }
    return predicted;
  }

 private:
  void normalise(std::span<const std::int64_t> places, bool by_mean, double eps, Values& predicted) const {
    Values row;
    for (const std::int64_t place : places) {
      if (place >= 0) row.push_back(given_[static_cast<std::size_t>(place)]);
    }
    const RowStatistics of = statistics_of(row);
    const double deviation = std::sqrt((by_mean ? of.variance() : of.mean_square) + eps), mean = by_mean ? of.mean : 0;
    for (const std::int64_t place : places) {
      if (place < 0) continue;
      const std::size_t at = static_cast<std::size_t>(place), column = at % weight_.size();
      predicted[at] = (given_[at] - mean) / deviation * weight_[column] + bias_[column];
    }
  }

  const Suspect& suspect_;
  Values given_, weight_, bias_;
};

}  // namespace

std::optional<Diagnosis> normalised_by_part(const Suspect& suspect) {
  const LogicalTensor& reference = suspect.reference;
  if (reference.id.kind != Kind::kOutput || reference.shape.empty() || suspect.parts.empty()) return std::nullopt;
  const std::int64_t width = reference.shape.back(),
                     own = suspect.parts[0].shape.empty() ? 0 : suspect.parts[0].shape.back();
  if (own < 2 || own >= width) return std::nullopt;
  const LogicalTensor* given = find_tensor(suspect.evidence.reference, reference.id.with_kind(Kind::kInput));
  if (given == nullptr || !is_comparable(*given, reference)) return std::nullopt;
  const NormOfParts norm(suspect, values_of(*given));
  for (const bool by_mean : {false, true}) {
    for (const double eps : kProgramsEps) {
      const std::string what = fmt::format(
          "each rank normalises its {} of the {} numbers of a row by {} of these alone, which is not made over the "
          "ranks",
          own, width, by_mean ? "the mean and deviation" : "the root mean square");
      if (auto found = suspect.explained_by(Cause::kOwnSamples, norm.predict(by_mean, eps), what)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
