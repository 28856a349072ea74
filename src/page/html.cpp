#include "page/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "page/assemble.h"
#include "page/columns.h"
#include "page/history_json.h"
#include "page/packed.h"
#include "report/json.h"
#include "report/render.h"
#include "text/wrap.h"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

// Messages that only say in words what the columns hold are left out, and so are all from here on: a page stays small.
constexpr std::size_t kMostMessageBytes = 1 << 20;
constexpr std::size_t kMostRoots = 200;
constexpr std::size_t kWidestName = 80;      // of a headline
constexpr std::size_t kRowsInFull = 50'000;  // a longer table has what is judged, and leaves the rest to --csv

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_object(const Axes& axes) {
  Json list = Json::array();
  for (const Axis& axis : axes) list.push_back({{"name", axis.name}, {"size", axis.size}});
  return list;
}

Json to_object(const RunFacts& run) {
  Json factorings = Json::array();
  for (const Axes& axes : factorings_of(run.mesh)) factorings.push_back(to_object(axes));
  return {{"directory", printable(run.directory)},   {"run_id", printable(run.run_id)},
          {"command", printable(run.command)},       {"started", printable(run.started)},
          {"git_commit", printable(run.git_commit)}, {"python", printable(run.python)},
          {"torch", printable(run.torch)},           {"device", printable(run.device)},
          {"compute_dtype", run.compute_dtype},      {"world_size", run.world_size},
          {"factorings", std::move(factorings)},     {"aliases", run.mesh.aliases}};
}

Json to_object(const ToleranceFacts& tolerance) {
  return {{"file", printable(tolerance.file)},
          {"estimator", tolerance.estimator},
          {"compute_dtype", tolerance.compute_dtype},
          {"margin", tolerance.margin},
          {"epsilon", tolerance.epsilon},
          {"perturbed_runs", tolerance.perturbed_runs},
          {"tensors", tolerance.estimates.size()},
          {"notes", tolerance.notes}};
}

Json to_object(const ShardPicture& shards) {
  Json boxes = Json::array();
  for (const ShardBox& held : shards.boxes) boxes.push_back({held.box.start, held.box.size, held.replicas});
  return {{"ranks", shards.ranks}, {"boxes", std::move(boxes)}, {"left_out", shards.left_out}};
}

// Renders, by cell, the error in three digits: null where it is 0, -1 where it is not finite.
Json cells_of(const ErrorMap& map) {
  Json cells = Json::array();
  for (const double error : map.largest) {
    cells.push_back(std::isinf(error) ? Json(-1) : error == 0 ? Json(nullptr) : short_number(error));
  }
  return cells;
}

Json to_object(const Picture& picture) {
  Json json = {
      {"reference_shape", picture.reference_shape},          {"candidate_shape", picture.candidate_shape},
      {"reference_dtype", name_of(picture.reference_dtype)}, {"candidate_dtype", name_of(picture.candidate_dtype)},
      {"reference", to_object(picture.reference)},           {"candidate", to_object(picture.candidate)}};
  if (!picture.without_values.empty()) {
    json["without_values"] = picture.without_values;
    return json;
  }
  const ErrorMap& map = picture.map;
  json["map"] = {{"row_dim", map.row_dim},
                 {"column_dim", map.column_dim},
                 {"rows", map.rows},
                 {"columns", map.columns},
                 {"cells", cells_of(map)}};
  json["octaves"] = Json::array();
  for (const auto& [octave, count] : picture.octaves) json["octaves"].push_back({octave, count});
  json["equal"] = picture.equal;
  json["not_finite"] = picture.not_finite;
  json["worst"] = Json::array();
  for (const PicturedElement& worst : picture.worst) {
    json["worst"].push_back({{"index", worst.index},
                             {"rank", worst.rank},
                             {"reference", number(worst.reference)},
                             {"candidate", number(worst.candidate)}});
  }
  return json;
}

// A row of the table: a finding, what waives it, and where it stands in the report's list, if it does.
struct Row {
  const Finding* finding = nullptr;
  const Waiver* waiver = nullptr;
  std::optional<std::size_t> index;
};

std::vector<Row> rows_of(const Report& report) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < report.findings.size(); ++i) rows.push_back({&report.findings[i], nullptr, i});
  for (const Finding& finding : report.passed) rows.push_back({&finding, nullptr, {}});
  for (const WaivedFinding& waived : report.waived_findings) rows.push_back({&waived.finding, &waived.waiver, {}});
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return executes_before(*a.finding, *b.finding); });
  return rows;
}

// The message without the tensor's identity, which it begins with; empty where the columns say it all.
std::string message_of(const Finding& finding) {
  const bool is_plain = finding.reason == Reason::kExceedsTolerance && finding.exceeded == Statistic::kNorm;
  if (finding.difference && is_plain) return "";
  const std::string identity = to_string(finding.id) + ": ";
  return finding.message.starts_with(identity) ? finding.message.substr(identity.size()) : finding.message;
}

class Messages {
 public:
  // The message, or nothing where it does not fit any more. One that was shown already is always shown.
  Json admit(const std::string& message) {
    if (message.empty()) return nullptr;
    std::string text = printable(message);
    if (known_.contains(text)) return text;
    if (bytes_ + text.size() > kMostMessageBytes) return nullptr;
    bytes_ += text.size();
    known_.insert(text);
    return text;
  }

 private:
  std::set<std::string> known_;
  std::size_t bytes_ = 0;
};

Json measured(const Difference& difference) {
  return {{"elements", difference.elements},
          {"differing", difference.differing},
          {"reference_norm", number(std::sqrt(difference.reference_square))},
          {"candidate_norm", number(std::sqrt(difference.candidate_square))},
          {"one_minus_cosine", number(difference.one_minus_cosine())},
          {"max_abs", number(difference.max_abs)}};
}

// The fields of a row: those of the JSON report, what --csv has beside them, and what the page draws.
Json fields_of(const Row& row, const PageFacts& facts, bool is_one_of_many) {
  const Finding& finding = *row.finding;
  Json json = to_object(finding);
  json["name"] = printable(finding.id.name);
  json.erase("message");
  if (json["worst"].is_object()) json["worst"].erase("local_index");
  if (finding.difference) json.update(measured(*finding.difference));
  if (is_one_of_many) {
    for (const char* key : {"worst", "differing", "reference_norm", "candidate_norm", "one_minus_cosine"})
      json.erase(key);
  }
  if (facts.tolerance) {
    const auto& estimates = facts.tolerance->estimates;
    const auto at = estimates.find({finding.id.kind, finding.id.name});
    if (at != estimates.end()) json["estimate"] = at->second;
  }
  if (row.waiver != nullptr) json["waived"] = printable(row.waiver->reason) + " (until " + row.waiver->expires + ")";
  return json;
}

// Says in a few words what the verdict is, and where the first error lies.
std::string headline_of(const Report& report) {
  if (report.same()) return printable(sentence_of(report));
  std::string verdict(name_of(report.verdict()));
  const Finding* subject = subject_of(report);
  if (subject == nullptr) return verdict;
  if (subject->id.name.empty()) return fmt::format("{}: {}", verdict, name_of(subject->reason));  // about ranks
  const std::string name = clipped(printable(subject->id.name), kWidestName);
  const bool is_missing = subject->verdict == Verdict::kMissing;
  return fmt::format("{}: {} {}{}", verdict, name, name_of(subject->id.kind), is_missing ? " is missing" : "");
}

std::string headline_of(const RunReport& report) {
  const RunVerdict verdict = report.verdict();
  const auto alike =
      std::ranges::count_if(report.candidates, [&](const auto& one) { return one.verdict() == verdict; });
  const std::size_t all = report.candidates.size();
  if (verdict == RunVerdict::kSame) return fmt::format("same: {} candidate{}", all, all == 1 ? "" : "s");
  if (alike == 0) return std::string(name_of(verdict));
  return fmt::format("{}: {} of {} candidate{}", name_of(verdict), alike, all, all == 1 ? "" : "s");
}

// The report as the page reads it: the JSON text, then the columns that it describes.
std::string encode(const Report& report, const PageFacts& facts) {
  const std::vector<Row> rows = rows_of(report);
  std::map<std::size_t, std::size_t> row_of_finding;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].index) row_of_finding[*rows[i].index] = i;
  }
  Columns columns(rows.size());
  Messages messages;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json fields = fields_of(rows[i], facts, rows.size() > kRowsInFull);
    for (const auto& [key, value] : fields.items()) columns.set(i, key, value);
    columns.set(i, "message", messages.admit(message_of(*rows[i].finding)));
    const std::optional<std::size_t> index = rows[i].index;
    if (!index || *index >= facts.follows_from.size() || !facts.follows_from[*index]) continue;
    columns.set(i, "follows_from", row_of_finding.at(*facts.follows_from[*index]));
  }

  Json json = to_object_without_findings(report);
  json.erase("first_wrong");  // the page has it in its table
  json["headline"] = headline_of(report);
  json["sentence"] = printable(sentence_of(report));
  json["command"] = printable(facts.command);
  if (facts.reference) json["reference_run"] = to_object(*facts.reference);
  if (facts.candidate) json["candidate_run"] = to_object(*facts.candidate);
  if (facts.tolerance) json["tolerance"] = to_object(*facts.tolerance);
  json["roots_left_out"] = report.explanation.roots.size() - std::min(report.explanation.roots.size(), kMostRoots);
  while (json["roots"].size() > kMostRoots) json["roots"].erase(kMostRoots);
  for (std::size_t i = 0; i < json["roots"].size(); ++i) {
    json["roots"][i]["row"] = row_of_finding.at(report.explanation.roots[i].finding);
  }
  std::map<TensorId, std::size_t> row_of_tensor;
  for (std::size_t i = 0; i < rows.size(); ++i) row_of_tensor.emplace(rows[i].finding->id, i);
  json["pictures"] = Json::array();
  for (const Picture& picture : facts.pictures) {
    const auto at = row_of_tensor.find(picture.id);
    if (at == row_of_tensor.end()) continue;
    json["pictures"].push_back(to_object(picture));
    json["pictures"].back()["row"] = at->second;
  }
  json["rows"] = rows.size();
  json["columns"] = columns.describe();
  return with_length(json) + columns.bytes();
}

Json index_of(const RunReport& report) {
  Json json;
  json["verdict"] = name_of(report.verdict());
  json["problem"] = report.problem.empty() ? Json(nullptr) : Json(printable(report.problem));
  json["candidates"] = Json::array();
  for (const CandidateReport& candidate : report.candidates) {
    const bool looked = candidate.problem.empty();
    const Json object = looked ? to_object_without_findings(candidate.report) : Json::object();
    const bool has_root = looked && !object["roots"].empty();
    json["candidates"].push_back({{"name", printable(candidate.name)},
                                  {"command", printable(candidate.command)},
                                  {"verdict", name_of(candidate.verdict())},
                                  {"problem", looked ? Json(nullptr) : Json(printable(candidate.problem))},
                                  {"sentence", looked ? Json(printable(sentence_of(candidate.report))) : Json(nullptr)},
                                  {"source", has_root ? object["roots"][0]["source"] : Json(nullptr)},
                                  {"next", looked ? object["next"] : Json(nullptr)},
                                  {"counts", looked ? object["counts"] : Json(nullptr)},
                                  {"waived", candidate.report.totals.waived}});
  }
  json["notes"] = report.notes;
  return json;
}

}  // namespace

std::string to_html(const Report& report, const PageFacts& facts) {
  return page_of(PageContent::kReport, headline_of(report), sentence_of(report), pack(encode(report, facts)));
}

std::string to_html(const RunReport& report, std::span<const PageFacts> facts, const History& history) {
  Json index = index_of(report);
  if (!history.checks.empty()) index["history"] = to_object(history);
  std::string data = pack(with_length(index));
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateReport& candidate = report.candidates[i];
    data += "\n" + (candidate.problem.empty() ? pack(encode(candidate.report, facts[i])) : "-");
  }
  return page_of(PageContent::kRun, headline_of(report), sentence_of(report), data);
}

}  // namespace ttrace
