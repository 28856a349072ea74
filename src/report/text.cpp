#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/proof.h"
#include "text/table.h"
#include "ttrace/report/render.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

std::string short_number(const std::optional<double>& value) { return value ? fmt::format("{:.3g}", *value) : "-"; }

// Shortens a list of ranks: `0-3,8`.
std::string short_ranks(const std::vector<std::int32_t>& ranks) {
  constexpr std::size_t kMostRanges = 4;
  std::vector<std::string> ranges;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    ranges.push_back(end - i == 1 ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    i = end;
  }
  if (ranges.size() > kMostRanges) {
    ranges.resize(kMostRanges);
    ranges.push_back("...");
  }
  return ranges.empty() ? "-" : fmt::format("{}", fmt::join(ranges, ","));
}

// Names the statistic that exceeds its tolerance, where it is not the norm: `exceeds-tolerance (scale)`.
std::string reason_of(const Finding& finding) {
  const std::string reason(name_of(finding.reason));
  return finding.exceeded == Statistic::kNorm ? reason : fmt::format("{} ({})", reason, name_of(finding.exceeded));
}

TextTable::Row row_of(const Finding& finding) {
  std::optional<double> rel_err;
  if (finding.difference) rel_err = finding.difference->rel_err();
  const bool measured = finding.difference.has_value();
  return {std::string(name_of(finding.verdict)),
          reason_of(finding),
          short_number(rel_err),
          short_number(finding.allowed),
          short_number(ratio_of(finding)),
          short_ranks(finding.ranks),
          measured ? to_string(finding.id) : finding.message};
}

std::string describe(const MissingGroup& group) {
  const std::string_view side = group.reason == Reason::kMissingInCandidate ? "candidate" : "reference";
  const std::string part = group.microbatch
                               ? fmt::format("micro-batch {} of iteration {}", *group.microbatch, group.iteration)
                               : fmt::format("iteration {}", group.iteration);
  return fmt::format("all of {} ({} tensors): not in the {}", part, group.tensors, side);
}

bool belongs_to(const Finding& finding, const MissingGroup& group) {
  return finding.reason == group.reason && finding.id.iteration == group.iteration &&
         (!group.microbatch || finding.id.microbatch == *group.microbatch);
}

const MissingGroup* group_of(const Report& report, const Finding& finding) {
  const auto found = std::find_if(report.missing_groups.begin(), report.missing_groups.end(),
                                  [&](const MissingGroup& group) { return belongs_to(finding, group); });
  return found == report.missing_groups.end() ? nullptr : &*found;
}

// Returns the findings in the order of their rows: what decides the verdict first, and last what a note sums up.
std::vector<const Finding*> wrong_first(const Report& report) {
  std::vector<const Finding*> findings;
  for (const Finding& finding : report.findings) findings.push_back(&finding);
  const auto rank = [](const Finding* finding) {
    if (is_wrong(*finding) || finding->reason == Reason::kNoTolerance) return 0;
    return finding->verdict == Verdict::kNotSeen ? 2 : 1;
  };
  std::stable_sort(findings.begin(), findings.end(),
                   [&](const Finding* a, const Finding* b) { return rank(a) < rank(b); });
  return findings;
}

// Makes a row of each finding; a group of missing tensors is one row, where its first tensor would be. Counts in
// `left_out` the rows beyond `most`.
std::vector<TextTable::Row> rows_of(const Report& report, std::size_t most, std::size_t& left_out) {
  std::vector<TextTable::Row> rows;
  std::vector<const MissingGroup*> mentioned;
  left_out = 0;
  for (const Finding* pointer : wrong_first(report)) {
    const Finding& finding = *pointer;
    const MissingGroup* group = group_of(report, finding);
    if (group != nullptr && std::find(mentioned.begin(), mentioned.end(), group) != mentioned.end()) continue;
    if (rows.size() == most) {
      ++left_out;
      if (group != nullptr) mentioned.push_back(group);
      continue;
    }
    rows.push_back(row_of(finding));
    if (group == nullptr) continue;
    mentioned.push_back(group);
    rows.back().back() = describe(*group);
  }
  return rows;
}

std::string table_of(const std::vector<TextTable::Row>& rows) {
  TextTable table({{"verdict"}, {"reason"}, {"rel_err"}, {"allowed"}, {"ratio"}, {"ranks"}, {"tensor"}}, 2);
  for (const TextTable::Row& row : rows) table.add(row);
  return table.text();
}

std::string describe_root(const Report& report) {
  const Finding* root = report.root_cause();
  if (root == nullptr) return "";
  if (const MissingGroup* group = group_of(report, *root)) {
    return fmt::format("first missing: {}\n", describe(*group));
  }
  if (root->id.name.empty()) return fmt::format("first: {}\n", printable(root->message));
  // The message begins with the tensor's identity, which the line before it shows already.
  const std::string id = to_string(root->id);
  std::string_view what = root->message;
  if (what.starts_with(id + ": ")) what.remove_prefix(id.size() + 2);
  return fmt::format("first {} tensor: {}\n  {}\n", root->verdict == Verdict::kMissing ? "missing" : "wrong",
                     printable(id), printable(what));
}

std::string describe_second_run(const Report& report) {
  if (!report.wrong_in_second_run) return "";
  const std::int64_t wrong = report.counts.fail + report.counts.missing;
  const char* const nothing =
      *report.wrong_in_second_run > 0
          ? ""
          : ": no module is wrong by itself; the error needs values that only the run makes, or grows out of rounding";
  return fmt::format("second run, modules given the reference's values: {} of {} wrong tensors are left{}\n",
                     *report.wrong_in_second_run, wrong, nothing);
}

std::string describe_roots(const Report& report) {
  std::string text;
  std::size_t shown = 0;
  for (const RootCause& root : report.roots) {
    if (!root.examined) continue;
    if (shown == 1) text += "also wrong, and not because of it:\n";
    const std::string standing = root.standing ? fmt::format(" ({})", name_of(*root.standing)) : "";
    text += shown++ == 0 ? fmt::format("cause{}: {}\n", standing, root.sentence)
                         : fmt::format("  {}{}\n", standing.empty() ? "" : standing.substr(1) + " ", root.sentence);
  }
  if (report.roots.size() > shown) text += fmt::format("  ... and {} more\n", report.roots.size() - shown);
  return text;
}

// Returns what the verdict leaves open; empty where nothing.
std::string describe_open(const Report& report) {
  if (report.counts.compared == 0 && report.counts.not_seen == 0) return "nothing could be compared";
  if (report.lacks_proof()) return describe_lack_of_proof(report);
  std::vector<std::string_view> kinds;
  for (const Kind kind : report.unseen_kinds()) kinds.push_back(name_of(kind));
  if (!kinds.empty()) {
    return fmt::format("no {} passed, and {} tensors were not seen", fmt::join(kinds, ", no "), report.counts.not_seen);
  }
  if (report.counts.pass == 0) return "nothing trusted was compared";
  return fmt::format("{} tensors were not seen (--strict)", report.counts.not_seen);
}

// Returns why the verdict is not `same` if no tensor is wrong; empty if one is.
std::string reason_without_finding(const Report& report) {
  if (report.root_cause() != nullptr && report.counts.compared > 0) return "";
  if (report.verdict() == RunVerdict::kCouldNotLook) return describe_open(report);
  if (report.counts.compared == 0) return "nothing could be compared";
  if (report.lacks_tolerance()) return "the tolerance file does not list a tensor that differs";
  return "untrusted tensors count as failed (--strict)";
}

std::string headline(const Report& report) {
  const std::string reason = report.same() ? "" : reason_without_finding(report);
  const bool in_part = report.same() && !report.partial.empty();
  return fmt::format("{}{}{}{}", name_of(report.verdict()), in_part ? ", of what both traces hold" : "",
                     reason.empty() ? "" : ": ", reason);
}

std::string count_of(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// Which optimizer steps were checked by themselves, and why others were not; empty where no trace says of any.
std::string describe_steps(const Report& report) {
  if (!report.steps) return "";
  const StepCoverage& steps = *report.steps;
  std::vector<std::string_view> classes;
  for (const std::string& optimizer : steps.optimizers) classes.push_back(last_component(optimizer));
  std::string text =
      fmt::format("optimizer steps checked: {} of {} parameters, {}{}{}\n", steps.parameters_checked, steps.parameters,
                  count_of(static_cast<std::int64_t>(steps.iterations.size()), "iteration"),
                  classes.empty() ? "" : ", ", printable(fmt::format("{}", fmt::join(classes, ", "))));
  if (steps.updates_regressed > 0) {
    std::vector<std::string_view> regressed;
    for (const std::string& optimizer : steps.regressed_optimizers) regressed.push_back(last_component(optimizer));
    text += fmt::format("  {} judged by regression on the reference's{}\n", count_of(steps.updates_regressed, "update"),
                        regressed.empty() ? "" : printable(fmt::format(": {}", fmt::join(regressed, ", "))));
  }
  for (const auto& [reason, updates] : steps.not_checkable) {
    text += fmt::format("  {} not checked: {}\n", count_of(updates, "update"), printable(reason));
  }
  return text;
}

std::string totals(const Report& report) {
  const Counts& counts = report.counts;
  return fmt::format("{} compared: {} pass, {} fail, {} untrusted; {} missing{}{}\n", counts.compared, counts.pass,
                     counts.fail, counts.untrusted, counts.missing,
                     counts.not_seen > 0 ? fmt::format(", {} not seen", counts.not_seen) : "",
                     report.waived > 0 ? fmt::format(", {} waived", report.waived) : "");
}

// One line for each override that covers a tensor.
std::string describe_overrides(const Report& report) {
  std::string text;
  for (const OverrideUse& use : report.overrides) {
    if (use.covered > 0) text += printable(describe(use)) + "\n";
  }
  return text;
}

}  // namespace

std::string sentence_of(const Report& report) {
  const Finding* first = report.root_cause();
  if (first == nullptr) return headline(report);
  if (const MissingGroup* group = group_of(report, *first)) return describe(*group);
  const bool known =
      !report.roots.empty() && (report.wrong_in_second_run || &report.findings[report.roots[0].finding] == first);
  return known ? report.roots[0].sentence : first->message;
}

std::string to_text(const Report& report, std::size_t most_findings) {
  const std::string proof = report.proofs ? fmt::format("proof: {}\n", describe_proof(*report.proofs)) : "";
  const std::string partial = report.partial.empty() ? "" : printable(report.partial) + "\n";
  if (!report.instead.empty() && most_findings < report.findings.size()) {
    return fmt::format("{}: {}\n{}\nall findings: {}\n\n{}", name_of(report.verdict()), printable(report.instead),
                       partial, printable(report.command_for_all), totals(report));
  }
  std::string text =
      headline(report) + "\n" + partial + describe_root(report) + describe_second_run(report) + describe_roots(report);
  std::size_t left_out = 0;
  const std::vector<TextTable::Row> rows = rows_of(report, most_findings, left_out);
  if (!rows.empty()) text += "\nfindings, wrong ones first, in order of execution:\n" + table_of(rows);
  if (left_out > 0) text += fmt::format("  ... and {} more: {}\n", left_out, printable(report.command_for_all));
  std::vector<std::string> notes = report.notes;
  if (!report.instead.empty()) notes.insert(notes.begin(), report.instead);
  if (!notes.empty()) text += '\n';
  for (const std::string& note : notes) text += fmt::format("note: {}\n", printable(note));
  if (!rows.empty() || !notes.empty()) text += '\n';
  return text + describe_overrides(report) + describe_steps(report) + proof + totals(report);
}

}  // namespace ttrace
