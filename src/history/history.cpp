#include "history/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/annotation.h"
#include "history/database.h"

namespace ttrace {
namespace {

constexpr std::int64_t kApplicationId = 0x74747263;  // "ttrc"
constexpr std::int64_t kVersion = 2;
constexpr double kGrowth = 2;  // see Growth

constexpr std::string_view kSchema = R"(
create table checks (
  number integer primary key,  -- in the order in which they were added
  candidate text not null,     -- its name in `ttrace run`, or empty
  started text not null,       -- of the candidate's run, ISO 8601
  git_commit text not null,
  command text not null,
  reference_run text not null,
  candidate_run text not null,
  same integer not null,
  compared integer not null,
  failed integer not null,
  missing integer not null,
  first_wrong text not null,   -- `name kind`, or empty
  unique (reference_run, candidate_run)
);
create table tensors (
  id integer primary key,
  name text not null,
  kind text not null,
  unique (name, kind)
);
create table ratios (
  number integer not null references checks (number) on delete cascade,
  tensor integer not null references tensors (id),
  ratio real,                  -- rel_err / allowed, the largest; null: not measured
  verdict text not null,       -- pass, untrusted, missing, fail: the worst
  primary key (number, tensor)
) without rowid;
)";

std::int64_t read_pragma(Database& database, std::string_view name) {
  Statement statement = database.prepare(fmt::format("pragma {}", name));
  return statement.step() ? statement.integer(0) : 0;
}

// The columns of what the file defines, whether a table in it holds them, and triggers. An index of somebody's own
// changes nothing.
std::vector<std::string> definitions_of(Database& database) {
  Statement statement = database.prepare(
      "select format('%s %s %d %s %s %d %d', known.type, known.name, known.rootpage > 0, field.name, field.type,"
      " field.pk, field.hidden) from sqlite_schema as known left join pragma_table_xinfo(known.name) as field on true"
      " where known.type <> 'index' order by known.name, field.cid");
  std::vector<std::string> definitions;
  while (statement.step()) definitions.push_back(statement.text(0));
  return definitions;
}

// Refuses files of other programs, histories of another version, and what else calls itself one: a view in place of a
// table may have rows without end, a trigger may do anything.
void require_history(Database& database) {
  if (read_pragma(database, "application_id") != kApplicationId) database.fail("another program's file");
  const std::int64_t version = read_pragma(database, "user_version");
  if (version != kVersion) database.fail(fmt::format("version {}, this program knows {}", version, kVersion));
  Database empty(":memory:", Database::Mode::kWrite);
  empty.run(kSchema);
  if (definitions_of(database) != definitions_of(empty)) database.fail("other tables than those of a history");
}

void create_where_empty(Database& database) {
  if (read_pragma(database, "application_id") == 0 && read_pragma(database, "schema_version") == 0) {
    database.run(kSchema);
    database.run(fmt::format("pragma application_id = {}; pragma user_version = {}", kApplicationId, kVersion));
  }
  require_history(database);
}

std::string name_and_kind(const Finding& finding) {
  return fmt::format("{} {}", printable(finding.id.name), name_of(finding.id.kind));
}

// A tensor's largest ratio and worst verdict over micro-batches and iterations.
struct Worst {
  std::optional<double> ratio;
  Verdict verdict = Verdict::kPass;
};
using Tensors = std::map<std::pair<std::string, Kind>, Worst>;

int badness(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return 0;
    case Verdict::kUntrusted:
      return 1;
    case Verdict::kNotSeen:
      return 2;
    case Verdict::kMissing:
      return 3;
    case Verdict::kFail:
      return 4;
  }
  return 4;
}

void add_finding(const Finding& finding, Tensors& tensors) {
  if (finding.id.name.empty()) return;
  Worst& worst = tensors[{finding.id.name, finding.id.kind}];
  if (const auto ratio = ratio_of(finding)) worst.ratio = std::max(worst.ratio.value_or(0), *ratio);
  if (badness(finding.verdict) > badness(worst.verdict)) worst.verdict = finding.verdict;
}

// Waived findings count too: a waiver does not change how far off a tensor is.
Tensors tensors_of(const Report& report) {
  Tensors tensors;
  for (const Finding& finding : report.findings) add_finding(finding, tensors);
  for (const Finding& finding : report.passed) add_finding(finding, tensors);
  for (const WaivedFinding& waived : report.waived_findings) add_finding(waived.finding, tensors);
  return tensors;
}

std::int64_t insert_check(Database& database, const CheckRecord& check) {
  database.prepare("delete from checks where reference_run = ? and candidate_run = ?")
      .bind(0, check.reference_run)
      .bind(1, check.candidate_run)
      .run();
  database
      .prepare(
          "insert into checks (candidate, started, git_commit, command, reference_run, candidate_run, same, "
          "compared, failed, missing, first_wrong) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .bind(0, check.candidate)
      .bind(1, check.started)
      .bind(2, check.git_commit)
      .bind(3, check.command)
      .bind(4, check.reference_run)
      .bind(5, check.candidate_run)
      .bind(6, static_cast<std::int64_t>(check.same))
      .bind(7, check.compared)
      .bind(8, check.failed)
      .bind(9, check.missing)
      .bind(10, check.first_wrong)
      .run();
  return database.last_row();
}

void insert_ratios(Database& database, std::int64_t number, const Tensors& tensors) {
  Statement tensor = database.prepare("insert or ignore into tensors (name, kind) values (?, ?)");
  Statement ratio = database.prepare(
      "insert into ratios (number, tensor, ratio, verdict)"
      " select ?, id, ?, ? from tensors where name = ? and kind = ?");
  for (const auto& [key, worst] : tensors) {
    const std::string kind(name_of(key.second));
    tensor.bind(0, key.first).bind(1, kind).run();
    ratio.bind(0, number).bind(1, worst.ratio).bind(2, std::string(name_of(worst.verdict)));
    ratio.bind(3, key.first).bind(4, kind).run();
  }
}

}  // namespace

void add_to_history(const std::filesystem::path& file, CheckRecord check, const Report& report) {
  check.same = report.same();
  check.compared = report.totals.counts.compared;
  check.failed = report.totals.counts.fail;
  check.missing = report.totals.counts.missing;
  if (const Finding* first = report.first_wrong()) {
    check.first_wrong = first->id.name.empty() ? first->message : name_and_kind(*first);
  }
  Database database(file, Database::Mode::kWrite);
  database.run("pragma foreign_keys = on");
  database.run("begin immediate");
  create_where_empty(database);
  insert_ratios(database, insert_check(database, check), tensors_of(report));
  database.run("commit");
}

std::vector<CheckRecord> read_checks(const std::filesystem::path& file) {
  Database database(file, Database::Mode::kRead);
  require_history(database);
  Statement statement = database.prepare(
      "select number, started, git_commit, command, reference_run, candidate_run, same, compared, failed, missing,"
      " first_wrong, candidate from checks order by number");
  Statement worst = database.prepare(
      "select ratio, name || ' ' || kind from ratios join tensors on id = tensor where number = ? and ratio is not null"
      " order by ratio desc, name, kind limit 1");
  std::vector<CheckRecord> checks;
  while (statement.step()) {
    CheckRecord& check = checks.emplace_back();
    check.number = statement.integer(0);
    check.started = statement.text(1);
    check.git_commit = statement.text(2);
    check.command = statement.text(3);
    check.reference_run = statement.text(4);
    check.candidate_run = statement.text(5);
    check.same = statement.integer(6) != 0;
    check.compared = statement.integer(7);
    check.failed = statement.integer(8);
    check.missing = statement.integer(9);
    check.first_wrong = statement.text(10);
    check.candidate = statement.text(11);
    if (worst.bind(0, check.number).step()) {
      check.worst = worst.number(0);
      check.worst_tensor = worst.text(1);
    }
    worst.run();
  }
  return checks;
}

std::vector<RatioRecord> read_ratios(const std::filesystem::path& file, const std::string& pattern) {
  Database database(file, Database::Mode::kRead);
  require_history(database);
  Statement statement = database.prepare(
      "select number, name, kind, ratio, verdict, candidate from ratios join tensors on id = tensor"
      " join checks using (number) order by name, kind, number");
  std::vector<RatioRecord> ratios;
  while (statement.step()) {
    RatioRecord record{statement.integer(0), statement.text(1), statement.text(2),
                       statement.number(3),  statement.text(4), statement.text(5)};
    if (pattern.empty() || matches(pattern, record.name)) ratios.push_back(std::move(record));
  }
  return ratios;
}

std::vector<Growth> growths_of(const std::vector<RatioRecord>& ratios) {
  std::vector<Growth> growths;
  for (std::size_t i = 0; i < ratios.size();) {
    struct Past {
      std::optional<double> largest;
      bool grew = false;
    };
    std::map<std::string, Past> pasts;  // by candidate
    const RatioRecord& first = ratios[i];
    for (; i < ratios.size() && ratios[i].name == first.name && ratios[i].kind == first.kind; ++i) {
      if (!ratios[i].ratio) continue;
      const double ratio = *ratios[i].ratio;
      Past& past = pasts[ratios[i].candidate];
      if (!past.grew && past.largest && ratio > kGrowth * *past.largest) {
        growths.push_back({first.name, first.kind, ratios[i].candidate, ratios[i].check, *past.largest, ratio});
        past.grew = true;
      }
      past.largest = std::max(past.largest.value_or(0), ratio);
    }
  }
  std::stable_sort(growths.begin(), growths.end(), [](const Growth& a, const Growth& b) { return a.after > b.after; });
  return growths;
}

History read_history(const std::filesystem::path& file, const std::string& pattern, std::size_t most) {
  History history{file.string(), read_checks(file), read_ratios(file, pattern), {}, 0};
  history.growths = growths_of(history.ratios);
  using Key = std::pair<std::string, std::string>;  // name and kind
  std::map<Key, double> interest;                   // the largest ratio; of what grew, more than that of any other
  for (const RatioRecord& ratio : history.ratios) {
    double& largest = interest[{ratio.name, ratio.kind}];
    largest = std::max(largest, ratio.ratio.value_or(0));
  }
  history.tensors = interest.size();
  for (const Growth& growth : history.growths) {
    interest[{growth.name, growth.kind}] = std::numeric_limits<double>::infinity();
  }
  if (interest.size() <= most) return history;
  std::vector<std::pair<double, Key>> order;
  for (const auto& [key, largest] : interest) order.emplace_back(-largest, key);
  std::sort(order.begin(), order.end());
  std::set<Key> shown;
  for (std::size_t i = 0; i < most; ++i) shown.insert(order[i].second);
  std::erase_if(history.ratios, [&](const RatioRecord& ratio) { return !shown.contains({ratio.name, ratio.kind}); });
  return history;
}

}  // namespace ttrace
