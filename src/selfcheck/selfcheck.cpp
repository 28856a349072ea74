#include "ttrace/selfcheck/selfcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "selfcheck/identities.h"
#include "ttrace/error.h"
#include "ttrace/judge/judge.h"
#include "ttrace/judge/routing.h"

namespace ttrace {
namespace {

// What no identity holds to account, by kind.
void note_unchecked(const Alignment& alignment, const std::set<TensorId>& checked, Report& report) {
  std::map<Kind, std::int64_t> unchecked;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (!checked.contains(id)) ++unchecked[id.kind];
  }
  std::string text;
  std::int64_t all = 0;
  for (const auto& [kind, count] : unchecked) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name_of(kind));
    all += count;
  }
  if (all > 0)
    report.notes.push_back(fmt::format("{} tensors are in no identity, and were not checked: {}", all, text));
}

}  // namespace

bool fits_in_memory(const LogicalTensor& tensor) {
  return element_count(tensor.shape) <= std::int64_t{1} << 27 && !tensor.rows;
}

void check_replicas(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings) {
  std::vector<TensorPair> pairs;
  std::deque<LogicalTensor> held;  // of routed tokens only those rows that there are
  for (const auto& [id, tensor] : alignment.tensors) {
    const std::vector<Piece> pieces = tensor.pieces();
    const bool replicated = std::any_of(pieces.begin(), pieces.end(), [](const Piece& p) { return p.replica > 0; });
    if (!replicated) continue;
    const LogicalTensor* one = tensor.rows ? &held.emplace_back(keep_rows(tensor, *tensor.rows)) : &tensor;
    pairs.push_back({one, one});
  }
  const std::vector<Difference> differences = compare(pairs, {options.threads, {}});
  std::set<TensorId> on_known_ranks;  // then it is clear which copies differ
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::kFail && !finding.ranks.empty()) on_known_ranks.insert(finding.id);
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Finding finding = judge(pairs[i], differences[i], nullptr);
    if (finding.verdict == Verdict::kPass || !on_known_ranks.contains(finding.id))
      findings.push_back(std::move(finding));
  }
}

Report self_check(const Alignment& alignment, const SelfCheckOptions& options) {
  std::vector<Finding> findings;
  const std::string rank_by_rank = check_linears(alignment, options, findings);
  check_attention(alignment, options, findings);
  check_integer_linears(alignment, findings);
  check_embeddings(alignment, findings);
  check_embedding_bags(alignment, findings);
  check_accumulation(alignment, findings);
  check_reductions(alignment, findings);
  check_replicas(alignment, options, findings);
  if (findings.empty() && alignment.findings.empty()) {
    throw InputError(
        "nothing to check: expected linear modules with their inputs, weights and outputs, embeddings, "
        "parameters with their gradients, or tensors that several ranks hold");
  }
  std::set<TensorId> checked;
  for (const Finding& finding : findings) {
    if (finding.verdict != Verdict::kUntrusted) checked.insert(finding.id);
  }
  findings.insert(findings.end(), alignment.findings.begin(), alignment.findings.end());
  Report report;
  summarize_findings(std::move(findings), report);
  if (!alignment.tensors.empty()) {
    report.coverage = static_cast<double>(checked.size()) / static_cast<double>(alignment.tensors.size());
  }
  if (!rank_by_rank.empty()) report.notes.push_back(rank_by_rank);
  note_unchecked(alignment, checked, report);
  return report;
}

}  // namespace ttrace
