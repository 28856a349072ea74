#include "ttrace/selfcheck/selfcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "selfcheck/identities.h"
#include "ttrace/error.h"
#include "ttrace/judge/judge.h"

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
  for (const auto& [id, tensor] : alignment.tensors) {
    const std::vector<Piece> pieces = tensor.pieces();
    const bool replicated = std::any_of(pieces.begin(), pieces.end(), [](const Piece& p) { return p.replica > 0; });
    if (replicated) pairs.push_back({&tensor, &tensor});
  }
  const std::vector<Difference> differences = compare(pairs, {options.threads, {}});
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    findings.push_back(judge(pairs[i], differences[i], nullptr));
  }
}

Report self_check(const Alignment& alignment, const SelfCheckOptions& options) {
  std::vector<Finding> findings;
  check_linears(alignment, options, findings);
  check_embeddings(alignment, findings);
  check_accumulation(alignment, findings);
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
  settle(std::move(findings), report);
  if (!alignment.tensors.empty()) {
    report.coverage = static_cast<double>(checked.size()) / static_cast<double>(alignment.tensors.size());
  }
  note_unchecked(alignment, checked, report);
  return report;
}

}  // namespace ttrace
