#include "selfcheck/selfcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "align/recorded_bits.h"
#include "base/count_of.h"
#include "base/error.h"
#include "judge/judge.h"
#include "judge/routing.h"
#include "selfcheck/relations.h"
#include "step/step.h"

namespace ttrace {
namespace {

// Counts, by kind, the tensors that no relation was tested on.
void note_unchecked(const Alignment& alignment, const std::set<TensorId>& checked, Report& report) {
  std::map<Kind, std::int64_t> unchecked;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (!checked.contains(id)) ++unchecked[id.kind];
  }
  std::string text;
  std::int64_t total = 0;
  for (const auto& [kind, count] : unchecked) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name_of(kind));
    total += count;
  }
  if (total > 0)
    report.notes.push_back(fmt::format("{} in no relation, and not checked: {}", count_was(total, "tensor"), text));
}

// A program that steps its parameters by hand says of no step, and the whole job counts as one iteration. Returns the
// alignment without what is behind the first micro-batch, where its weights are not known; nothing where they are.
std::optional<Alignment> without_moved_weights(const Alignment& alignment, const Trace* trace) {
  const bool says_steps = trace == nullptr || std::ranges::any_of(trace->ranks, [](const RankTrace& rank) {
                            return !rank.optimizer_steps.empty();
                          });
  const auto has = [&](Kind kind) {
    return std::ranges::any_of(alignment.tensors, [kind](const auto& item) { return item.first.kind == kind; });
  };
  const bool are_moved = !says_steps && has(Kind::kParamAfter) && !has(Kind::kParamDelta);
  if (!are_moved) return std::nullopt;
  Alignment first = alignment;
  std::erase_if(first.tensors, [](const auto& item) { return item.first.microbatch > 0; });
  return first;
}

}  // namespace

bool fits_in_memory(const LogicalTensor& tensor) {
  return element_count(tensor.shape) <= std::int64_t{1} << 27 && !tensor.rows;
}

bool is_unplaced(const LogicalTensor& tensor) {
  if (tensor.annotated || is_parameter_kind(tensor.id.kind)) return false;
  const RecordedBits bits = recorded_bits_of(tensor);
  return std::any_of(bits.begin(), bits.end(), [&](const auto& one) { return one.second != bits.front().second; });
}

void check_replicas(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings) {
  std::vector<TensorPair> pairs;
  std::deque<LogicalTensor> routed;  // tensors of routed tokens, without the rows that no rank holds
  for (const auto& [id, tensor] : alignment.tensors) {
    const std::vector<Piece> pieces = tensor.pieces();
    const bool replicated = std::any_of(pieces.begin(), pieces.end(), [](const Piece& p) { return p.replica > 0; });
    if (!replicated) continue;
    const LogicalTensor* one = tensor.rows ? &routed.emplace_back(keep_rows(tensor, *tensor.rows)) : &tensor;
    pairs.push_back({one, one});
  }
  const std::vector<Difference> differences =
      options.compare ? options.compare(pairs, {options.threads, {}}) : compare(pairs, {options.threads, {}});
  std::set<TensorId> on_known_ranks;  // another relation named the wrong ranks already
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::kFail && !finding.ranks.empty()) on_known_ranks.insert(finding.id);
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Finding finding = judge(pairs[i], differences[i], nullptr);
    if (finding.verdict == Verdict::kFail && finding.reason == Reason::kReplicasDisagree &&
        is_unplaced(*pairs[i].candidate)) {
      finding = finding_about(*pairs[i].candidate, Verdict::kUntrusted, Reason::kNotCheckable,
                              "the ranks hold different values, and no annotation says whether these are parts of it, "
                              "terms of a sum, or copies that must be equal");
    }
    if (finding.verdict == Verdict::kPass || !on_known_ranks.contains(finding.id))
      findings.push_back(std::move(finding));
  }
}

namespace {

Report check_all(const Alignment& alignment, const SelfCheckOptions& options) {
  std::vector<Finding> findings;
  const std::vector<std::string> linears_notes = check_linears(alignment, options, findings);
  const std::vector<std::string> attention_notes = check_attention(alignment, options, findings);
  check_integer_linears(alignment, findings);
  check_embeddings(alignment, findings);
  check_embedding_bags(alignment, findings);
  check_accumulation(alignment, findings);
  check_reductions(alignment, findings);
  check_replicas(alignment, options, findings);
  StepCheck steps;
  if (options.trace != nullptr) steps = check_steps(*options.trace, alignment, options.threads, options.replay);
  findings.insert(findings.end(), steps.findings.begin(), steps.findings.end());
  if (findings.empty() && alignment.findings.empty()) {
    throw InputError(
        "nothing to check: expected linear modules with their inputs, weights and outputs, embeddings, "
        "parameters with their gradients, or tensors that several ranks hold");
  }
  std::set<TensorId> checked;
  for (const Finding& finding : findings) {
    if (finding.verdict != Verdict::kUntrusted) checked.insert(finding.id);
  }
  std::copy_if(alignment.findings.begin(), alignment.findings.end(), std::back_inserter(findings),
               [&](const Finding& finding) { return !is_not_seen(alignment, finding); });
  Report report;
  summarize_findings(std::move(findings), report);
  if (steps.coverage.parameters > 0) report.totals.steps = steps.coverage;
  if (!alignment.tensors.empty()) {
    report.totals.coverage = static_cast<double>(checked.size()) / static_cast<double>(alignment.tensors.size());
  }
  report.notes.insert(report.notes.end(), linears_notes.begin(), linears_notes.end());
  report.notes.insert(report.notes.end(), attention_notes.begin(), attention_notes.end());
  note_unchecked(alignment, checked, report);
  return report;
}

}  // namespace

Report self_check(const Alignment& alignment, const SelfCheckOptions& options) {
  const std::optional<Alignment> first = without_moved_weights(alignment, options.trace);
  if (!first) return check_all(alignment, options);
  Report report = check_all(*first, options);
  report.notes.insert(report.notes.begin(),
                      "no step of an optimizer was seen, and parameters changed, maybe between micro-batches: only the "
                      "first of each iteration was checked");
  return report;
}

}  // namespace ttrace
