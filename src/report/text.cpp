#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/count_of.h"
#include "base/estimator.h"
#include "base/tensor_name.h"
#include "report/module_groups.h"
#include "report/proof.h"
#include "report/render.h"
#include "report/verdict_color.h"
#include "text/paint.h"
#include "text/readable.h"
#include "text/table.h"
#include "text/wrap.h"

namespace ttrace {
namespace {

std::string short_number(const std::optional<double>& value) { return value ? fmt::format("{:.3g}", *value) : "-"; }

// A text has room for so much.
constexpr std::size_t kMostRootsOfSummary = 3, kMostGroups = 8, kMostNotesOfSummary = 5, kMostKinds = 3,
                      kMostOthers = 4;
constexpr std::size_t kFewFindings = 10;  // that are worth reading even where the check lacks something
constexpr std::size_t kIndent = 2, kWidestModule = 56, kWidthOfNumbers = 29;

std::string short_ranks(const std::vector<std::int32_t>& ranks) {
  return ranks.empty() ? "-" : short_list({ranks.begin(), ranks.end()});
}

// Breaks each of the lines.
std::string lines_wrapped(const std::string& lines, const TextStyle& style) {
  std::string text;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin);
    text += wrapped(lines.substr(begin, end - begin), style.width, 2 * kIndent) + "\n";
    begin = end + 1;
  }
  return text;
}

// Returns `label: text` in lines, the label painted.
std::string paragraph(std::string_view label, const std::string& text, const TextStyle& style) {
  const std::string lines = wrapped(fmt::format("{}: {}", label, printable(text)), style.width, kIndent);
  return painted(label, Color::kLabel, style.color) + lines.substr(label.size()) + "\n";
}

// Returns the text in lines that are indented.
std::string indented(const std::string& text, const TextStyle& style) {
  return wrapped(std::string(kIndent, ' ') + printable(text), style.width, 2 * kIndent) + "\n";
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
  const auto found = std::find_if(report.totals.missing_groups.begin(), report.totals.missing_groups.end(),
                                  [&](const MissingGroup& group) { return belongs_to(finding, group); });
  return found == report.totals.missing_groups.end() ? nullptr : &*found;
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

std::string describe_first(const Report& report, const TextStyle& style) {
  const Finding* first = report.first_wrong();
  if (first == nullptr) return "";
  if (const MissingGroup* group = group_of(report, *first)) return paragraph("first missing", describe(*group), style);
  if (first->id.name.empty()) return paragraph("first", first->message, style);
  // The message begins with the tensor's identity, which the line before it shows already.
  const std::string id = to_string(first->id);
  std::string_view what = first->message;
  if (what.starts_with(id + ": ")) what.remove_prefix(id.size() + 2);
  const bool cause_says_it =
      !report.explanation.roots.empty() && report.explanation.roots.front().sentence.find(what) != std::string::npos;
  return paragraph(first->verdict == Verdict::kMissing ? "first missing tensor" : "first wrong tensor", id, style) +
         (cause_says_it ? "" : indented(std::string(what), style));
}

std::string describe_second_run(const Report& report, const TextStyle& style) {
  if (!report.explanation.wrong_in_second_run) return "";
  const std::int64_t wrong = report.totals.counts.fail + report.totals.counts.missing;
  const char* const nothing =
      *report.explanation.wrong_in_second_run > 0
          ? ""
          : ": no module is wrong by itself; the error needs values that only the run makes, or grows out of rounding";
  return paragraph(
      "second run, modules given the reference's values",
      fmt::format("{} of {} wrong tensors are left{}", *report.explanation.wrong_in_second_run, wrong, nothing), style);
}

// Lists what is configured otherwise; a cause above may have said it of one module.
std::string describe_configured(const Report& report, const TextStyle& style) {
  const std::vector<OtherAttribute>& others = report.explanation.configured;
  std::string text;
  for (std::size_t i = 0; i < std::min(others.size(), kMostOthers); ++i) {
    const std::string more = others[i].modules > 1 ? fmt::format(", and {} more", others[i].modules - 1) : "";
    text +=
        paragraph("configured otherwise", fmt::format("{}{}: {}", others[i].module, more, text_of(others[i])), style);
  }
  if (others.size() > kMostOthers) text += fmt::format("  ... and {} more: --json\n", others.size() - kMostOthers);
  return text;
}

// Lists what surrounds the runs otherwise, where that may be why they differ.
std::string describe_surroundings(const Report& report, const TextStyle& style) {
  const std::vector<OtherSurrounding>& others = report.runs.surroundings;
  if (others.empty() || report.verdict() != RunVerdict::kDifferent) return "";
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min(others.size(), kMostOthers); ++i) texts.push_back(text_of(others[i]));
  if (others.size() > kMostOthers) texts.push_back(fmt::format("and {} more (--json)", others.size() - kMostOthers));
  return paragraph("surroundings", fmt::format("{}", fmt::join(texts, "; ")), style);
}

std::string describe_root(const RootCause& root, bool is_first, const TextStyle& style) {
  const std::string standing = root.standing ? std::string(name_of(*root.standing)) : "";
  const std::string source = text_of(root.source);
  std::string text;
  if (is_first) {
    text = paragraph(standing.empty() ? "cause" : fmt::format("cause ({})", standing), root.sentence, style);
  } else {
    text = indented((standing.empty() ? "" : fmt::format("({}) ", standing)) + root.sentence, style);
  }
  if (source.empty()) return text;
  const std::size_t indent = is_first ? kIndent : 2 * kIndent;
  return text + std::string(indent, ' ') + painted(source, Color::kPlace, style.color) + "\n";
}

// Says how a further root stands to those before it. A second run has seen of some that they are wrong by themselves.
std::string_view describe_apart(const RootCause& root) {
  const bool is_seen = root.standing == Standing::kConfirmed || root.standing == Standing::kFound;
  if (is_seen || root.apart == Apart::kByItself) return "also wrong, and not because of it:";
  if (root.apart == Apart::kSourcesAgree) return "also wrong, though what it was computed from agrees:";
  return "also wrong; what it was computed from was not compared:";
}

std::string describe_roots(const Report& report, std::size_t most, const TextStyle& style) {
  std::string text;
  std::size_t shown = 0;
  std::string_view last;
  for (const RootCause& root : report.explanation.roots) {
    if (!root.examined || shown == most) continue;
    if (const std::string_view apart = describe_apart(root); shown > 0 && apart != last) {
      text += painted(apart, Color::kLabel, style.color) + "\n";
      last = apart;
    }
    text += describe_root(root, shown++ == 0, style);
  }
  if (report.explanation.roots.size() > shown)
    text += fmt::format("  ... and {} more\n", report.explanation.roots.size() - shown);
  return text;
}

std::string describe_questions(const Report& report, const TextStyle& style) {
  std::string text;
  for (const Question& question : report.explanation.questions) {
    text += paragraph(fmt::format("question about {}", count_of(question.tensors, "tensor")), question.sentence, style);
  }
  return text;
}

// Returns the kinds of the group's wrong tensors in at most `room` columns, the first of them where they are many.
std::string short_kinds(const ModuleGroup& group, std::size_t room) {
  std::vector<std::string_view> names;
  for (const Kind kind : group.kinds) names.push_back(name_of(kind));
  std::string text;
  for (std::size_t shown = std::min(names.size(), kMostKinds); shown > 0; --shown) {
    const std::size_t left_out = names.size() - shown;
    text = fmt::format("{}{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                       left_out > 0 ? fmt::format(" and {} more", left_out) : "", group.is_missing ? " (missing)" : "");
    if (width_of(text) <= room) break;
  }
  return clipped(text, room);
}

// One line for each group of modules with wrong tensors; empty where there is none.
std::string describe_groups(const Report& report, const TextStyle& style) {
  const std::vector<ModuleGroup> groups = groups_of(report);
  if (groups.empty()) return "";
  const auto right = Justify::kRight;
  TextTable table({{"wrong", right}, {"of", right}, {"ratio", right}, {"module"}, {"kinds"}}, kIndent);
  const std::size_t most = std::min(kWidestModule, style.width / 2);
  std::size_t widest = std::string_view("module").size();
  for (std::size_t i = 0; i < std::min(groups.size(), kMostGroups); ++i) {
    widest = std::max(widest, std::min(most, width_of(printable(groups[i].name))));
  }
  const std::size_t room = style.width - std::min(style.width, widest + kWidthOfNumbers);  // for the kinds
  for (std::size_t i = 0; i < std::min(groups.size(), kMostGroups); ++i) {
    const ModuleGroup& group = groups[i];
    table.add({fmt::format("{}", group.wrong), fmt::format("{}", group.tensors),
               group.ratio > 0 ? fmt::format("{:.3g}", group.ratio) : "-", clipped(printable(group.name), widest),
               short_kinds(group, room)});
  }
  const std::string title =
      wrapped("wrong tensors by module, in order of execution (--all lists them):", style.width, kIndent);
  std::string text = painted(title, Color::kLabel, style.color) + "\n";
  text += table.text();
  if (groups.size() <= kMostGroups) return text;
  std::int64_t wrong = 0;
  for (std::size_t i = kMostGroups; i < groups.size(); ++i) wrong += groups[i].wrong;
  return text + fmt::format("  ... and {} in {} more\n", wrong, groups.size() - kMostGroups);
}

// One line for each verdict and reason of findings that are not wrong, with the first of them.
std::string describe_unproved(const Report& report, const TextStyle& style) {
  std::map<std::pair<Verdict, Reason>, std::vector<const Finding*>> findings;
  for (const Finding& finding : report.findings) {
    if (!is_wrong(finding)) findings[{finding.verdict, finding.reason}].push_back(&finding);
  }
  std::string text;
  for (const auto& [key, some] : findings) {
    const Finding& first = *some.front();
    text +=
        paragraph(name_of(key.first),
                  fmt::format("{} {}{}{}", some.size(), name_of(key.second), some.size() == 1 ? ": " : ", the first ",
                              first.id.name.empty() ? first.message : to_string(first.id)),
                  style);
  }
  return text;
}

// Returns what the verdict leaves open; empty where nothing.
std::string describe_open(const Report& report) {
  if (report.first_wrong() != nullptr) return "the candidate is not whole";  // a rank lacks, with what it would hold
  if (report.totals.counts.compared == 0 && report.totals.counts.not_seen == 0) return "nothing could be compared";
  if (const auto& questions = report.explanation.questions; !questions.empty()) {
    std::int64_t tensors = 0;
    for (const Question& question : questions) tensors += question.tensors;
    return fmt::format("{} differ{}, and may be right: what would tell was not said", count_of(tensors, "tensor"),
                       tensors == 1 ? "s" : "");
  }
  if (report.lacks_proof()) return describe_lack_of_proof(report);
  std::vector<std::string_view> kinds;
  for (const Kind kind : report.unseen_kinds()) kinds.push_back(name_of(kind));
  if (!kinds.empty()) {
    return fmt::format("no {} passed, and {} not seen", fmt::join(kinds, ", no "),
                       count_was(report.totals.counts.not_seen, "tensor"));
  }
  if (report.totals.counts.pass == 0) return "nothing trusted was compared";
  if (report.runs.failed) return fmt::format("{}; nothing of it is wrong", *report.runs.failed);
  if (report.totals.counts.not_seen == 0) return "modules are configured otherwise (--strict)";
  return fmt::format("{} not seen (--strict)", count_was(report.totals.counts.not_seen, "tensor"));
}

// Returns why the verdict is not `same` if no tensor is wrong; empty if one is.
std::string reason_without_finding(const Report& report) {
  if (report.verdict() == RunVerdict::kCouldNotLook) return describe_open(report);
  if (report.first_wrong() != nullptr && report.totals.counts.compared > 0) return "";
  if (report.totals.counts.compared == 0) return "nothing could be compared";
  if (report.lacks_tolerance()) return "the tolerance file does not list a tensor that differs";
  return "untrusted tensors count as failed (--strict)";
}

// Says what a verdict of `same` does not say by that word alone.
std::string reservations(const Report& report) {
  if (!report.same()) return "";
  const auto& margin = report.proof.margin;
  return fmt::format(
      "{}{}{}{}{}", report.explanation.configured.empty() ? "" : ", with modules that are configured otherwise",
      report.runs.partial ? ", of what both traces hold" : "", report.runs.sketched ? ", as far as sketches show" : "",
      report.proof.unmeasured ? ", within tolerances that were not measured" : "",
      margin ? fmt::format(", within tolerances of margin {} (default {})", *margin, kDefaultMargin) : "");
}

std::string headline(const Report& report) {
  const std::string reason = report.same() ? "" : reason_without_finding(report);
  return fmt::format("{}{}{}{}", name_of(report.verdict()), reservations(report), reason.empty() ? "" : ": ", reason);
}

// Says which optimizer steps were checked by themselves, and why others were not; empty where no trace says of any.
std::string describe_steps(const Report& report) {
  if (!report.totals.steps) return "";
  const StepCoverage& steps = *report.totals.steps;
  std::vector<std::string_view> classes;
  for (const std::string& optimizer : steps.optimizers) classes.push_back(last_component(optimizer));
  std::string text = fmt::format("optimizer steps checked: {} of {} parameters, {}{}{}\n", steps.parameters_checked,
                                 std::max(steps.trained, steps.parameters),
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
  for (const std::string& which : steps.untrained) text += fmt::format("  {}\n", which);
  return text;
}

std::string totals(const Report& report) {
  const Counts& counts = report.totals.counts;
  return fmt::format("{} compared: {} pass, {} fail, {} untrusted; {} missing{}{}\n", counts.compared, counts.pass,
                     counts.fail, counts.untrusted, counts.missing,
                     counts.not_seen > 0 ? fmt::format(", {} not seen", counts.not_seen) : "",
                     report.totals.waived > 0 ? fmt::format(", {} waived", report.totals.waived) : "");
}

// One line for each override that covers a tensor.
std::string describe_overrides(const Report& report) {
  std::string text;
  for (const OverrideUse& use : report.proof.overrides) {
    if (use.covered > 0) text += printable(describe(use)) + "\n";
  }
  return text;
}

std::string_view mark_of(RunVerdict verdict) {
  if (verdict == RunVerdict::kSame) return "\u2713 ";
  return verdict == RunVerdict::kDifferent ? "\u2717 " : "? ";
}

// Returns the verdict, painted, with a clause behind it.
std::string verdict_with(const Report& report, const std::string& clause, const TextStyle& style, std::size_t width) {
  const RunVerdict verdict = report.verdict();
  const std::string name = fmt::format("{}{}", style.unicode ? mark_of(verdict) : "", name_of(verdict));
  const std::string lines =
      wrapped(name + reservations(report) + (clause.empty() ? "" : ": " + printable(clause)), width, kIndent);
  return painted(name, color_of(verdict), style.color) + lines.substr(name.size()) + "\n";
}

std::string verdict_of(const Report& report, const TextStyle& style) {
  const std::string clause = report.same() ? "" : reason_without_finding(report);
  return verdict_with(report, clause, style, style.width);
}

// Names the first tensor that differs, unless what the check lacks names it already.
std::string name_first(const Report& report) {
  const Finding* first = report.first_wrong();
  if (first == nullptr) return "";
  if (const MissingGroup* group = group_of(report, *first)) return describe(*group);
  const bool is_named = report.advice.instead->find(to_string(first->id)) != std::string::npos;
  return is_named && !first->id.name.empty() ? "" : first->message;
}

std::string one_line(const Report& report, const TextStyle& style) {
  const std::string clause = report.same() ? "" : reason_without_finding(report);
  std::string sentence = report.first_wrong() == nullptr ? clause : sentence_of(report);
  if (report.advice.instead) {
    const std::string first = name_first(report);
    sentence = *report.advice.instead + (first.empty() ? "" : "; first that differs: " + first);
  }
  return verdict_with(report, sentence, style, std::string::npos);
}

// Commands are there to be copied: they stay whole.
std::string command_line(std::string_view label, const std::string& command, const TextStyle& style) {
  return painted(fmt::format("{}:", label), Color::kLabel, style.color) + " " + printable(command) + "\n";
}

// Says what to do before the findings are worth reading.
std::string describe_instead(const Report& report, const TextStyle& style) {
  std::string text = verdict_with(report, *report.advice.instead, style, style.width);
  if (const std::string first = name_first(report); !first.empty()) {
    text += paragraph("first that differs", first, style);
  }
  text += '\n';
  if (report.advice.next) text += command_line("next", *report.advice.next, style);
  return text + command_line("all findings", report.advice.all_findings, style);
}

std::string describe_findings(const Report& report, std::size_t most, const TextStyle& style) {
  std::size_t left_out = 0;
  const std::vector<TextTable::Row> rows = rows_of(report, most, left_out);
  std::string text;
  if (!rows.empty()) {
    text = painted("findings, wrong ones first, in order of execution:", Color::kLabel, style.color) + "\n";
    text += table_of(rows);
  }
  if (left_out > 0) text += fmt::format("  ... and {} more: {}\n", left_out, printable(report.advice.all_findings));
  return text;
}

std::string describe_notes(const Report& report, std::size_t most, const TextStyle& style) {
  std::string text = report.advice.instead ? paragraph("note", *report.advice.instead, style) : "";
  const std::size_t shown = std::min(report.notes.size(), most);
  for (std::size_t i = 0; i < shown; ++i) text += paragraph("note", report.notes[i], style);
  if (report.notes.size() > shown) text += fmt::format("  ... and {} more: -v\n", report.notes.size() - shown);
  return text;
}

}  // namespace

const Finding* subject_of(const Report& report) {
  const Finding* first = report.first_wrong();
  if (first == nullptr || group_of(report, *first) != nullptr) return first;
  const bool has_confirmed_root = !report.explanation.roots.empty() && report.explanation.wrong_in_second_run;
  return has_confirmed_root ? &report.findings[report.explanation.roots[0].finding] : first;
}

std::string sentence_of(const Report& report) {
  const Finding* subject = subject_of(report);
  if (subject == nullptr) return headline(report);
  if (const MissingGroup* group = group_of(report, *subject)) return describe(*group);
  const auto& roots = report.explanation.roots;
  return !roots.empty() && &report.findings[roots[0].finding] == subject ? roots[0].sentence : subject->message;
}

std::string to_text(const Report& report, const TextOptions& options) {
  const TextStyle& style = options.style;
  if (options.quiet) return one_line(report, style);
  std::string reserved;
  for (const auto* sentence : {&report.runs.partial, &report.runs.sketched, &report.proof.unmeasured}) {
    if (*sentence) reserved += lines_wrapped(printable(**sentence) + "\n", style);
  }
  if (report.advice.instead && report.findings.size() > options.findings.value_or(kFewFindings)) {
    return describe_instead(report, style) + reserved + "\n" + totals(report);
  }
  const std::size_t most_roots = options.findings ? report.explanation.roots.size() : kMostRootsOfSummary;
  const std::string head = verdict_of(report, style) + reserved + describe_first(report, style) +
                           describe_second_run(report, style) + describe_roots(report, most_roots, style) +
                           describe_configured(report, style) + describe_questions(report, style) +
                           describe_surroundings(report, style);
  std::string middle;
  const auto add = [&](const std::string& block) { middle += block.empty() ? "" : "\n" + block; };
  if (options.findings) {
    add(describe_findings(report, *options.findings, style));
  } else {
    add(describe_groups(report, style));
    add(describe_unproved(report, style));
  }
  add(describe_notes(report, options.findings ? report.notes.size() + 1 : kMostNotesOfSummary, style));
  if (!options.findings && report.advice.next) add(command_line("next", *report.advice.next, style));
  const std::string proof = report.proof.by_kind
                                ? fmt::format("proof: {}{}\n", describe_proof(*report.proof.by_kind),
                                              report.proof.unmeasured ? ", by what was not measured" : "")
                                : "";
  const std::string tail = describe_overrides(report) + describe_steps(report) + proof + totals(report);
  return head + middle + (middle.empty() ? "" : "\n") + lines_wrapped(tail, style);
}

}  // namespace ttrace
