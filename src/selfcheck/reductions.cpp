// Reductions over ranks: the terms that ranks hold before an all-reduce (or a reduce-scatter) add up to what is
// recorded after it. Two pairs of tensors are known to be before and after one: the input and the output of a module,
// if the input is `partial` and the output is not; and the output of a module and that of the module around it, which
// may add its bias.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "align/holders.h"
#include "base/tensor_name.h"
#include "merge/values.h"
#include "selfcheck/relations.h"

namespace ttrace {
namespace {

// A tensor of terms, and the tensor that they must add up to.
struct Reduction {
  const LogicalTensor* terms = nullptr;
  const LogicalTensor* sum = nullptr;
  const LogicalTensor* bias = nullptr;  // may be null
};

std::int32_t term_count(const std::vector<Piece>& pieces) {
  std::int32_t last = 0;
  for (const Piece& piece : pieces) last = std::max(last, piece.term);
  return last + 1;
}

// Returns the first output that the module `around` returns after `inner`, which is the output of a module inside it.
const LogicalTensor* next_output(const Alignment& alignment, const LogicalTensor& inner, std::string_view around) {
  for (const LogicalTensor* output : find_calls(alignment, inner.id, Kind::kOutput, around)) {
    if (output->order > inner.order) return output;
  }
  return nullptr;
}

Reduction find_reduction(const Alignment& alignment, const LogicalTensor& terms) {
  const TensorId& id = terms.id;
  const TensorName name(id.name);
  Reduction reduction{&terms};
  if (id.kind == Kind::kInput) {
    reduction.sum = find_tensor(alignment, id, Kind::kOutput, name.without_member());
  } else if (const std::string_view around = owner_of(name.path); around != kRootModule) {
    reduction.sum = next_output(alignment, terms, around);
    reduction.bias = parameter_at(alignment, id, parameter_of(around, "bias"));
  }
  return reduction;
}

bool can_be_summed(const Reduction& reduction) {
  if (reduction.sum == nullptr || reduction.sum->shape != reduction.terms->shape) return false;
  if (!is_floating(reduction.sum->dtype) || !fits_in_memory(*reduction.sum) || !fits_in_memory(*reduction.terms)) {
    return false;
  }
  if (reduction.bias != nullptr && reduction.bias->shape != Shape{reduction.sum->shape.back()}) return false;
  return term_count(reduction.sum->pieces()) == 1;
}

// Returns one term's values, zero where none of its pieces lies.
Values values_of_term(const LogicalTensor& tensor, const std::vector<Piece>& pieces, std::int32_t term) {
  std::vector<Piece> own;
  std::copy_if(pieces.begin(), pieces.end(), std::back_inserter(own), [&](const Piece& p) { return p.term == term; });
  LogicalTensor one = tensor;
  one.pieces = [own] { return own; };
  return values_of(one);
}

struct TermSum {
  Values sum, magnitude;  // of the terms, and of their absolute values
  std::int64_t roundings = 0;
};

TermSum sum_terms(const Reduction& reduction) {
  const std::vector<Piece> pieces = reduction.terms->pieces();
  const std::int32_t terms = term_count(pieces);
  TermSum computed;
  computed.sum = computed.magnitude = Values(static_cast<std::size_t>(element_count(reduction.terms->shape)));
  const auto add = [&](const Values& values) {
    for (std::size_t i = 0; i < computed.sum.size(); ++i) {
      const double value = values[i % values.size()];
      computed.sum[i] += value;
      computed.magnitude[i] += std::fabs(value);
    }
  };
  for (std::int32_t term = 0; term < terms; ++term) add(values_of_term(*reduction.terms, pieces, term));
  if (reduction.bias != nullptr) add(values_of(*reduction.bias));
  computed.roundings = terms + (reduction.bias != nullptr ? 1 : 0);
  return computed;
}

void check_reduction(const Reduction& reduction, std::vector<Finding>& findings) {
  const LogicalTensor& tensor = *reduction.sum;
  const TermSum computed = sum_terms(reduction);
  const Values recorded = values_of(tensor);
  // Each addition rounds to the dtype by half a unit, in whatever order the terms were added.
  const double rounding = static_cast<double>(computed.roundings) * epsilon_of(tensor.dtype) / 2;
  std::int64_t wrong = 0, first = -1, finite = 0;
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    if (!std::isfinite(computed.sum[i])) continue;
    ++finite;
    if (std::fabs(recorded[i] - computed.sum[i]) <= rounding * computed.magnitude[i]) continue;
    if (wrong++ == 0) first = static_cast<std::int64_t>(i);
  }
  const std::string terms = to_string(reduction.terms->id);
  const auto add = [&](Verdict verdict, Reason reason, const std::string& what) -> Finding& {
    return findings.emplace_back(finding_about(tensor, verdict, reason, what));
  };
  if (finite == 0) {
    add(Verdict::kUntrusted, Reason::kNotCheckable, fmt::format("the sum over ranks of {} is not finite", terms));
  } else if (wrong == 0) {
    add(Verdict::kPass, Reason::kNone, fmt::format("is the sum over ranks of {}", terms));
  } else if (reduction.terms->id.kind == Kind::kOutput && wrong > finite / 2) {
    // The module around may compute anything from the output of the inner one, not just its sum.
    add(Verdict::kUntrusted, Reason::kNotCheckable, fmt::format("is more than the sum over ranks of {}", terms));
  } else {
    const auto at = static_cast<std::size_t>(first);
    add(Verdict::kFail, Reason::kSumDiffers,
        fmt::format("is not the sum over ranks of {}: {} of {} elements differ; the first is number {}, {:.6g}, not "
                    "{:.6g}",
                    terms, wrong, finite, first, recorded[at], computed.sum[at]))
        .ranks = ranks_holding(tensor, first);
  }
}

}  // namespace

void check_reductions(const Alignment& alignment, std::vector<Finding>& findings) {
  for (const auto& [id, tensor] : alignment.tensors) {
    if ((id.kind != Kind::kInput && id.kind != Kind::kOutput) || !is_floating(tensor.dtype)) continue;
    if (tensor.shape.empty() || element_count(tensor.shape) == 0 || term_count(tensor.pieces()) == 1) continue;
    const Reduction reduction = find_reduction(alignment, tensor);
    if (can_be_summed(reduction)) check_reduction(reduction, findings);
  }
}

}  // namespace ttrace
