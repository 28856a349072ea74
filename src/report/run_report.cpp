#include "report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <pugixml.hpp>

#include "base/count_of.h"
#include "report/json.h"
#include "report/proof.h"
#include "report/verdict_color.h"
#include "text/paint.h"
#include "text/table.h"
#include "text/wrap.h"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kWaivedShown = 10;
constexpr std::size_t kOthersShown = 4;  // of what is configured otherwise

std::int64_t count_candidates(const RunReport& report, RunVerdict verdict) {
  return std::count_if(report.candidates.begin(), report.candidates.end(),
                       [&](const CandidateReport& candidate) { return candidate.verdict() == verdict; });
}

std::string count_others(const RunReport& report, RunVerdict verdict) {
  const std::int64_t others = count_candidates(report, verdict) - 1;
  if (others <= 0) return "";
  return fmt::format(" ({} more candidate{}: {})", others, others == 1 ? "" : "s", name_of(verdict));
}

const CandidateReport* first_with(const RunReport& report, RunVerdict verdict) {
  const auto found = std::find_if(report.candidates.begin(), report.candidates.end(),
                                  [&](const CandidateReport& candidate) { return candidate.verdict() == verdict; });
  return found == report.candidates.end() ? nullptr : &*found;
}

constexpr std::array kTitles = {"candidate", "verdict",  "compared",  "fail",
                                "missing",   "not seen", "untrusted", "waived"};

TextTable::Row row_of(const CandidateReport& candidate) {
  TextTable::Row row = {candidate.name, std::string(name_of(candidate.verdict())), "-", "-", "-", "-", "-", "-"};
  if (!candidate.problem.empty()) return row;
  const Counts& counts = candidate.report.totals.counts;
  const std::int64_t numbers[] = {counts.compared, counts.fail,      counts.missing,
                                  counts.not_seen, counts.untrusted, candidate.report.totals.waived};
  for (std::size_t i = 0; i < std::size(numbers); ++i) row[2 + i] = fmt::format("{}", numbers[i]);
  return row;
}

std::string table_of(const RunReport& report) {
  std::vector<TableColumn> columns;
  for (const char* title : kTitles) columns.push_back({title, columns.size() < 2 ? Justify::kLeft : Justify::kRight});
  TextTable table(std::move(columns));
  for (const CandidateReport& candidate : report.candidates) table.add(row_of(candidate));
  return table.text();
}

std::string describe(const WaivedFinding& waived) {
  return fmt::format("{}: {} until {}: {}", to_string(waived.finding.id), name_of(waived.finding.reason),
                     waived.waiver.expires, waived.waiver.reason);
}

struct DetailLine {
  std::string text;
  bool is_command = false;  // one to copy, which stays whole
};

void add_waived(const CandidateReport& candidate, std::vector<DetailLine>& lines) {
  const std::vector<WaivedFinding>& waived = candidate.report.waived_findings;
  for (std::size_t i = 0; i < std::min(kWaivedShown, waived.size()); ++i) {
    lines.push_back({fmt::format("{}: waived: {}", candidate.name, describe(waived[i]))});
  }
  if (waived.size() > kWaivedShown) {
    lines.push_back({fmt::format("{}: ... and {} more waived: --json", candidate.name, waived.size() - kWaivedShown)});
  }
}

void add_overrides(const CandidateReport& candidate, std::vector<DetailLine>& lines) {
  for (const OverrideUse& use : candidate.report.proof.overrides) {
    if (use.covered > 0) lines.push_back({fmt::format("{}: {}", candidate.name, describe(use))});
  }
}

// Says where the module of the first root cause is; empty where nothing tells.
std::string source_of(const CandidateReport& candidate) {
  const std::vector<RootCause>& roots = candidate.report.explanation.roots;
  return roots.empty() ? "" : text_of(roots.front().source);
}

void add_questions(const CandidateReport& candidate, std::vector<DetailLine>& lines) {
  for (const Question& question : candidate.report.explanation.questions) {
    lines.push_back({fmt::format("{}: question about {}: {}", candidate.name, count_of(question.tensors, "tensor"),
                                 question.sentence)});
  }
}

// Adds what may be why a candidate differs; not its command, which the file has.
void add_what_is_otherwise(const CandidateReport& candidate, std::vector<DetailLine>& lines) {
  const Report& report = candidate.report;
  if (report.verdict() != RunVerdict::kDifferent) return;
  std::vector<std::string> texts;
  for (const OtherAttribute& other : report.explanation.configured) {
    texts.push_back(fmt::format("{}: {}", other.module, text_of(other)));
  }
  for (const OtherSurrounding& other : report.runs.surroundings) {
    if (other.what != "command") texts.push_back(text_of(other));
  }
  for (std::size_t i = 0; i < std::min(kOthersShown, texts.size()); ++i) {
    lines.push_back({fmt::format("{}: configured otherwise: {}", candidate.name, texts[i])});
  }
  if (texts.size() > kOthersShown) {
    lines.push_back({fmt::format("{}: ... and {} more: --json", candidate.name, texts.size() - kOthersShown)});
  }
}

// Returns the candidate that the last line is about: the first that differs, else the first that could not be checked.
// Null if all are the same.
const CandidateReport* candidate_of_sentence(const RunReport& report) {
  const CandidateReport* different = first_with(report, RunVerdict::kDifferent);
  return different != nullptr ? different : first_with(report, RunVerdict::kCouldNotLook);
}

std::string source_of_sentence(const RunReport& report) {
  const CandidateReport* candidate = report.problem.empty() ? candidate_of_sentence(report) : nullptr;
  return candidate == nullptr || !candidate->problem.empty() ? "" : source_of(*candidate);
}

std::string outcome_sentence(const CandidateReport& candidate) {
  if (!candidate.problem.empty()) return "could-not-look: " + candidate.problem;
  return sentence_of(candidate.report);
}

// Returns the lines between the table and the last sentence: waived findings, other candidates' outcomes, notes.
std::vector<DetailLine> detail_lines(const RunReport& report) {
  std::vector<DetailLine> lines;
  for (const CandidateReport& candidate : report.candidates) {
    add_waived(candidate, lines);
    add_overrides(candidate, lines);
    if (candidate.verdict() == RunVerdict::kSame) continue;
    if (&candidate != candidate_of_sentence(report)) {
      lines.push_back({fmt::format("{}: {}", candidate.name, outcome_sentence(candidate))});
      if (const std::string source = candidate.problem.empty() ? source_of(candidate) : ""; !source.empty()) {
        lines.back().text += fmt::format(" ({})", source);
      }
    }
    if (!candidate.problem.empty()) continue;
    add_questions(candidate, lines);
    add_what_is_otherwise(candidate, lines);
    lines.push_back({fmt::format("{}: all findings: {}", candidate.name, candidate.report.advice.all_findings), true});
  }
  for (const std::string& note : report.notes) lines.push_back({"note: " + note});
  return lines;
}

Json waived_to_json(const Report& report) {
  Json list = Json::array();
  for (const WaivedFinding& waived : report.waived_findings) {
    Json json = to_object(waived.finding);
    json["waiver"] = {{"line", waived.waiver.line},
                      {"pattern", waived.waiver.pattern},
                      {"reason", waived.waiver.reason},
                      {"expires", waived.waiver.expires}};
    list.push_back(std::move(json));
  }
  return list;
}

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

// Escapes control characters, and every character that Markdown or HTML gives a meaning.
std::string escape_markdown(const std::string& text) {
  constexpr std::string_view kSpecial = "\\`*_{}[]<>()#|~&!";
  std::string result;
  for (const char c : printable(text))
    result += kSpecial.find(c) == kSpecial.npos ? std::string(1, c) : fmt::format("\\{}", c);
  return result;
}

std::string markdown_row(const CandidateReport& candidate) {
  const TextTable::Row row = row_of(candidate);
  const Finding* first = candidate.problem.empty() ? candidate.report.first_wrong() : nullptr;
  std::string text =
      fmt::format("| {} | {} |", escape_markdown(row[0]), row[1] == "same" ? row[1] : "**" + row[1] + "**");
  for (std::size_t i = 2; i < row.size(); ++i) text += fmt::format(" {} |", row[i]);
  return text + fmt::format(" {} |\n", first == nullptr ? "" : escape_markdown(to_string(first->id)));
}

}  // namespace

RunVerdict CandidateReport::verdict() const {
  if (!problem.empty()) return RunVerdict::kCouldNotLook;
  return report.verdict();
}

RunVerdict RunReport::verdict() const {
  if (count_candidates(*this, RunVerdict::kDifferent) > 0) return RunVerdict::kDifferent;
  const bool looked = problem.empty() && !candidates.empty() && count_candidates(*this, RunVerdict::kCouldNotLook) == 0;
  return looked ? RunVerdict::kSame : RunVerdict::kCouldNotLook;
}

std::string sentence_of(const RunReport& report) {
  if (!report.problem.empty()) return fmt::format("could-not-look: {}", report.problem);
  if (const CandidateReport* candidate = candidate_of_sentence(report)) {
    return fmt::format("{}: {}{}", candidate->name, outcome_sentence(*candidate),
                       count_others(report, candidate->verdict()));
  }
  const std::size_t candidates = report.candidates.size();
  if (candidates == 0) return "could-not-look: no candidate";
  return fmt::format("{} candidate{} what the reference computes.", candidates,
                     candidates == 1 ? " computes" : "s compute");
}

std::string to_text(const RunReport& report, const TextOptions& options) {
  const TextStyle& style = options.style;
  const std::string source = options.quiet ? "" : source_of_sentence(report);
  const std::string sentence =
      source.empty() ? sentence_of(report) : fmt::format("{} ({})", sentence_of(report), source);
  std::string last = painted(wrapped(printable(sentence), options.quiet ? std::string::npos : style.width),
                             color_of(report.verdict()), style.color) +
                     "\n";
  if (options.quiet) return last;
  std::string text = report.candidates.empty() ? "" : table_of(report) + "\n";
  const std::vector<DetailLine> lines = detail_lines(report);
  for (const DetailLine& line : lines) {
    text += (line.is_command ? printable(line.text) : wrapped(printable(line.text), style.width, 2)) + "\n";
  }
  if (!lines.empty()) text += '\n';
  return text + last;
}

std::string to_json(const RunReport& report) {
  Json json;
  json["schema"] = "ttrace-run/4";
  json["verdict"] = name_of(report.verdict());
  json["sentence"] = sentence_of(report);
  json["problem"] = or_null(report.problem);
  json["candidates"] = Json::array();
  for (const CandidateReport& candidate : report.candidates) {
    const bool looked = candidate.problem.empty();
    json["candidates"].push_back({{"name", candidate.name},
                                  {"command", candidate.command},
                                  {"verdict", name_of(candidate.verdict())},
                                  {"problem", or_null(candidate.problem)},
                                  {"waived", waived_to_json(candidate.report)},
                                  {"report", looked ? to_object(candidate.report) : Json(nullptr)}});
  }
  json["notes"] = report.notes;
  return to_text(json);
}

std::string to_markdown(const RunReport& report) {
  std::string text =
      fmt::format("### ttrace: {}\n\n{}\n", name_of(report.verdict()), escape_markdown(sentence_of(report)));
  if (!report.candidates.empty()) {
    text += "\n|";
    for (const char* title : kTitles) text += fmt::format(" {} |", title);
    text += " first wrong |\n|---|---|--:|--:|--:|--:|--:|--:|---|\n";
  }
  for (const CandidateReport& candidate : report.candidates) text += markdown_row(candidate);
  std::vector<DetailLine> lines = detail_lines(report);
  if (const std::string source = source_of_sentence(report); !source.empty()) {
    lines.insert(lines.begin(), {fmt::format("{}: {}", candidate_of_sentence(report)->name, source)});
  }
  if (!lines.empty()) text += '\n';
  for (const DetailLine& line : lines) text += fmt::format("- {}\n", escape_markdown(line.text));
  return text;
}

}  // namespace ttrace
