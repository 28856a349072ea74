// Tests how running statistics follow the samples of a module's input. With momentum m, and f = n / (n - 1) or 1, a batch of
// n values a channel, of which the mean is e and the variance v, makes of them
//
//   mean      (1 - m) before + m e
//   variance  (1 - m) before + m f v
//
// Both factors, (1 - m) and m f, are fitted to the reference's, which must be met, and to the candidate's. Of modules that
// are called once in the iteration.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "diagnose/hypothesis.h"
#include "diagnose/slices.h"

namespace ttrace {
namespace {

// Of the input's channels.
struct Moments {
  double count = 0;  // values a channel
  Values means, variances;
};

std::optional<Moments> moments_of(const LogicalTensor& input, std::size_t dim) {
  const Slices slices(input.shape, dim);
  Moments moments{static_cast<double>(slices.outer * slices.inner), {}, {}};
  if (moments.count < 2) return std::nullopt;
  const Values values = values_of(input);
  for (std::int64_t c = 0; c < slices.extent; ++c) {
    double sum = 0, square = 0;
    const auto for_each = [&](auto&& visit) {
      for (std::int64_t o = 0; o < slices.outer; ++o) {
        for (std::int64_t i = 0; i < slices.inner; ++i) {
          visit(values[static_cast<std::size_t>((o * slices.extent + c) * slices.inner + i)]);
        }
      }
    };
    for_each([&](double value) { sum += value; });
    const double mean = sum / moments.count;
    for_each([&](double value) { square += (value - mean) * (value - mean); });
    moments.means.push_back(mean);
    moments.variances.push_back(square / moments.count);
  }
  return moments;
}

// The only input of the module in the iteration, with a dimension of as many channels; null where there are several.
const LogicalTensor* find_only_input(const Suspect& suspect) {
  const std::string module(owner_of(suspect.candidate.id.name.get()));
  const LogicalTensor* only = nullptr;
  for (const auto& [id, tensor] : suspect.evidence.candidate.tensors) {
    const bool is_its = id.kind == Kind::kInput && id.iteration == suspect.candidate.id.iteration &&
                        TensorName(id.name).path == module && is_floating(tensor.dtype);
    if (!is_its) continue;
    if (only != nullptr || !is_small(tensor) || tensor.shape.size() < 2) return nullptr;
    only = &tensor;
  }
  return only;
}

// after = kept * before + taken * statistic
struct Following {
  double kept = 0, taken = 0;

  double momentum() const { return 1 - kept; }
  double times() const { return taken / momentum(); }
};

Values followed(const Following& by, const Values& before, const Values& statistic) {
  Values after(before.size());
  for (std::size_t i = 0; i < after.size(); ++i) after[i] = by.kept * before[i] + by.taken * statistic[i];
  return after;
}

// By least squares. Where it was zero before, nothing tells what is kept of that.
std::optional<Following> fit_following(const Values& after, const Values& before, const Values& statistic) {
  constexpr double kAlikeAngle = 1e-6;  // square of the sine between the two
  const double bb = dot_of(before, before), bs = dot_of(before, statistic), ss = dot_of(statistic, statistic);
  const double ba = dot_of(before, after), sa = dot_of(statistic, after);
  if (!(ss > 0)) return std::nullopt;
  if (bb == 0) return Following{1 - sa / ss, sa / ss};
  const double determinant = bb * ss - bs * bs;
  if (!(determinant > kAlikeAngle * bb * ss)) return std::nullopt;
  return Following{(ba * ss - sa * bs) / determinant, (sa * bb - ba * bs) / determinant};
}

// `n / (n - 1) of 16 values`, as far as the factor is one.
std::string describe_times(double times) {
  constexpr double kNearWhole = 1e-2;
  if (std::abs(times - 1) < 1e-4) return "as it is";
  const double count = times / (times - 1);
  if (times < 1 || std::abs(count - std::round(count)) > kNearWhole * count) return fmt::format("{:.4g} times", times);
  return fmt::format("{:.4g} times, n / (n - 1) of n = {:.0f}", times, count);
}

std::string describe_following(std::string_view what, const Following& right, const Following& wrong, double count) {
  constexpr double kNear = 1e-3;
  if (std::abs(wrong.momentum() - right.momentum()) > kNear * std::abs(right.momentum())) {
    return fmt::format(
        "it takes {:.4g} of the {} of the module's input, the reference's {:.4g}: another momentum, or it "
        "is updated more often",
        wrong.momentum(), what, right.momentum());
  }
  return fmt::format("it takes the {} of the module's input ({:.0f} values a channel) {}, the reference's takes it {}",
                     what, count, describe_times(wrong.times()), describe_times(right.times()));
}

}  // namespace

std::optional<Diagnosis> follows_samples_otherwise(const Suspect& suspect) {
  const TensorId& id = suspect.candidate.id;
  if (id.kind != Kind::kBufferAfter || suspect.finding.reason == Reason::kReplicasDisagree) return std::nullopt;
  if (suspect.candidate.shape.size() != 1) return std::nullopt;
  const LogicalTensor* before = find_tensor(suspect.evidence.candidate, id.with_kind(Kind::kBuffer));
  const LogicalTensor* input = find_only_input(suspect);
  if (before == nullptr || input == nullptr || !is_comparable(*before, suspect.candidate)) return std::nullopt;
  const Values was = values_of(*before);
  for (const std::size_t dim : {std::size_t{1}, input->shape.size() - 1}) {
    if (input->shape[dim] != suspect.candidate.shape[0]) continue;
    const std::optional<Moments> moments = moments_of(*input, dim);
    if (!moments) continue;
    for (const auto& [what, statistic] :
         {std::pair("mean", &moments->means), std::pair("variance", &moments->variances)}) {
      const auto right = fit_following(suspect.reference_values, was, *statistic);
      const auto wrong = fit_following(suspect.candidate_values, was, *statistic);
      if (!right || !wrong) continue;
      const double left = relative_distance(followed(*right, was, *statistic), suspect.reference_values);
      if (!(left <= suspect.bound)) continue;
      if (auto found = suspect.explained_by(Cause::kOtherAverage, followed(*wrong, was, *statistic),
                                            describe_following(what, *right, *wrong, moments->count))) {
        return found;
      }
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
