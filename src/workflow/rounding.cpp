#include "workflow/rounding.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/lookup.h"
#include "base/parallel_for.h"
#include "merge/rounded.h"

namespace ttrace {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kShort = {
    std::pair("bf16", "bfloat16"), std::pair("fp16", "float16"), std::pair("fp32", "float32")};

Dtype dtype_of(const std::string& word) {
  std::string_view name = word;
  for (const auto& [brief, full] : kShort) {
    if (word == brief) name = full;
  }
  if (const auto dtype = dtype_from_name(name); dtype && is_floating(*dtype)) return *dtype;
  throw InputError(fmt::format("--rounded-to {}: expected a floating dtype, such as bf16 or float16", printable(word)));
}

// A candidate of one piece that is the reference rounded is what that rounding gives: nothing needs to be made.
// What is too large for the dtype is compared as it is.
LogicalTensor rounded_as(const LogicalTensor& reference, const LogicalTensor& candidate) {
  if (candidate.pieces().size() != 1 || !is_rounded(reference, candidate, RoundingMode::kNearest)) {
    return rounded_to(reference, candidate.dtype).value_or(reference);
  }
  LogicalTensor rounded = reference;
  rounded.dtype = candidate.dtype;
  rounded.scale = candidate.scale;
  rounded.pieces = candidate.pieces;
  rounded.bytes = candidate.bytes;
  return rounded;
}

}  // namespace

std::string round_reference(Alignment& reference, const Alignment& candidate, const std::string& word, int threads) {
  const Dtype dtype = dtype_of(word);
  std::vector<std::pair<LogicalTensor*, const LogicalTensor*>> pairs;
  for (auto& [id, tensor] : reference.tensors) {
    const LogicalTensor* other = find_tensor(candidate, id);
    if (other != nullptr && other->dtype == dtype && is_narrower(tensor, *other)) pairs.emplace_back(&tensor, other);
  }
  if (pairs.empty()) {
    throw InputError(
        fmt::format("--rounded-to {}: no tensor of the candidate is {} where the reference's is wider; expected one, "
                    "or no such option",
                    word, name_of(dtype)));
  }
  parallel_for(pairs.size(), threads, [&](std::size_t i) {
    const auto& [tensor, other] = pairs[i];
    *tensor = rounded_as(*tensor, *other);
  });
  return fmt::format("{} of the reference's tensors are compared as rounded to {}, such as {}", pairs.size(),
                     name_of(dtype), to_string(pairs.front().second->id));
}

std::optional<std::string> told_rounding(const Report& report, const Alignment& reference, const Alignment& candidate) {
  for (const RootCause& root : report.explanation.roots) {
    if (root.diagnosis != Cause::kCoarserPrecision) continue;
    const TensorId& id = report.findings[root.finding].id;
    const LogicalTensor *trusted = find_tensor(reference, id), *other = find_tensor(candidate, id);
    if (trusted != nullptr && other != nullptr && is_narrower(*trusted, *other)) {
      return std::string(name_of(other->dtype));
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
