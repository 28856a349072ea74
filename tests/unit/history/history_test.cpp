#include "history/history.h"

#include <doctest/doctest.h>

#include <fstream>
#include <string_view>

#include "base/error.h"
#include "history/database.h"
#include "support/reports.h"
#include "support/temporary_directory.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("history");

namespace {

// A report in which `mlp` output is `ratio` times what is allowed.
Report report_with(double ratio) {
  Finding finding = wrong("mlp");
  finding.difference->difference_square = ratio * ratio * 0.0025 * 25;
  finding.verdict = ratio <= 1 ? Verdict::kPass : Verdict::kFail;
  Report report = report_of({}, 1);
  if (ratio <= 1) {
    report.passed = {finding};
  } else {
    report = report_of({finding}, 1);
  }
  return report;
}

CheckRecord run(const std::string& id, const std::string& commit = "c0ffee") {
  CheckRecord check;
  check.reference_run = "reference";
  check.candidate_run = id;
  check.git_commit = commit;
  return check;
}

}  // namespace

TEST_CASE("a history holds the checks in order, and each tensor's largest ratio") {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "h.sqlite";
  add_to_history(file, run("a"), report_with(0.25));
  add_to_history(file, run("b", "beef"), report_with(0.75));
  add_to_history(file, run("c"), report_with(4));
  const std::vector<CheckRecord> checks = read_checks(file);
  REQUIRE(checks.size() == 3);
  CHECK(checks[0].same);
  CHECK(*checks[0].worst == doctest::Approx(0.25));
  CHECK(checks[1].git_commit == "beef");
  CHECK_FALSE(checks[2].same);
  CHECK(checks[2].first_wrong == "mlp output");
  const std::vector<RatioRecord> ratios = read_ratios(file, "mlp");
  REQUIRE(ratios.size() == 3);
  CHECK(*ratios[2].ratio == doctest::Approx(4));
  CHECK(ratios[2].verdict == "fail");
  CHECK(read_ratios(file, "attention").empty());
}

TEST_CASE("growth is more than twice the largest ratio before, and is told once") {
  const auto growths = [](const std::vector<double>& ratios) {
    std::vector<RatioRecord> records;
    for (std::size_t i = 0; i < ratios.size(); ++i)
      records.push_back({static_cast<std::int64_t>(i + 1), "m", "output", ratios[i], "pass", "tp2"});
    return growths_of(records);
  };
  CHECK(growths({0.3, 0.5, 0.2, 0.55, 0.9}).empty());
  const std::vector<Growth> found = growths({0.3, 0.2, 0.7, 3});
  REQUIRE(found.size() == 1);
  CHECK(found[0].check == 3);
  CHECK(found[0].before == 0.3);
  CHECK(found[0].after == 0.7);
}

TEST_CASE("each candidate has a past of its own") {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "h.sqlite";
  const auto check = [&](const std::string& candidate, const std::string& id, double ratio) {
    CheckRecord record = run(id);
    record.candidate = candidate;
    add_to_history(file, record, report_with(ratio));
  };
  check("dp2", "a", 0.1);
  check("tp2", "b", 0.5);
  check("dp2", "c", 0.15);
  CHECK(growths_of(read_ratios(file, "")).empty());
  check("dp2", "d", 0.4);
  const std::vector<Growth> found = growths_of(read_ratios(file, ""));
  REQUIRE(found.size() == 1);
  CHECK(found[0].candidate == "dp2");
  CHECK(found[0].before == doctest::Approx(0.15));
  CHECK(read_checks(file)[1].candidate == "tp2");
}

TEST_CASE("the same run checked again replaces what was there") {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "h.sqlite";
  add_to_history(file, run("a"), report_with(4));
  add_to_history(file, run("a"), report_with(0.5));
  REQUIRE(read_checks(file).size() == 1);
  CHECK(read_checks(file)[0].same);
  CHECK(read_ratios(file, "").size() == 1);
}

TEST_CASE("a file of an earlier program is read, and added to") {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "h.sqlite";
  Database(file, Database::Mode::kWrite).run(R"(
    create table checks (number integer primary key, candidate text not null, started text not null,
      git_commit text not null, command text not null, reference_run text not null, candidate_run text not null,
      same integer not null, compared integer not null, failed integer not null, missing integer not null,
      first_wrong text not null, unique (reference_run, candidate_run));
    create table tensors (id integer primary key, name text not null, kind text not null, unique (name, kind));
    create table ratios (number integer not null references checks (number) on delete cascade,
      tensor integer not null references tensors (id), ratio real, verdict text not null,
      primary key (number, tensor)) without rowid;
    insert into checks values (1, 'tp2', '2026-01-31T00:00:00Z', 'c0ffee', 'train', 'r', 'a', 1, 4, 0, 0, '');
    insert into checks values (2, 'tp2', '2026-02-01T00:00:00Z', 'beef', 'train', 'r', 'b', 0, 4, 1, 0, 'mlp output');
    insert into tensors values (1, 'mlp', 'output');
    insert into ratios values (1, 1, 0.25, 'pass'), (2, 1, 4, 'fail');
    pragma application_id = 0x74747263; pragma user_version = 2)");
  add_to_history(file, run("c"), report_with(0.5));
  const std::vector<CheckRecord> checks = read_checks(file);
  REQUIRE(checks.size() == 3);
  CHECK(checks[0].same);
  CHECK_FALSE(checks[1].same);
  CHECK(checks[1].first_wrong == "mlp output");
  CHECK(checks[2].same);
  const std::vector<RatioRecord> ratios = read_ratios(file, "mlp");
  REQUIRE(ratios.size() == 3);
  CHECK(ratios[0].verdict == "pass");
  CHECK(ratios[1].verdict == "fail");
}

TEST_CASE("what is no history is refused, and left as it is") {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "h.sqlite";
  CHECK_THROWS_AS(read_checks(file), InputError);
  std::ofstream(file)
      << "not a database, but long enough to have a header of one hundred bytes or more, which SQLite reads first";
  CHECK_THROWS_AS(add_to_history(file, run("a"), report_with(0.5)), InputError);
  CHECK_THROWS_AS(read_checks(file), InputError);
  CHECK_THROWS_AS(add_to_history(directory.path() / "nowhere" / "h.sqlite", run("a"), report_with(0.5)), InputError);
}

TEST_CASE("what calls itself a history and has other tables is refused") {
  // A view may have rows without end, a trigger do anything; an index of somebody's own does no harm.
  const auto refusal = [](std::string_view change) -> std::string {
    const test::TemporaryDirectory directory;
    const auto file = directory.path() / "h.sqlite";
    add_to_history(file, run("a"), report_with(0.5));
    Database(file, Database::Mode::kWrite).run(change);
    try {
      read_checks(file);
      read_ratios(file, "");
      add_to_history(file, run("b"), report_with(0.5));
    } catch (const InputError& error) {
      const std::string text = error.what();
      return text.substr(text.find(": ") + 2);
    }
    return "";
  };
  const std::string expected = "; expected a history that `ttrace check --history` made";
  for (const char* change :
       {"drop table ratios", "create table more (a)", "alter table checks add column more",
        "create trigger t after insert on checks begin delete from tensors; end",
        "drop table ratios; create view ratios as with recursive r (number, tensor, ratio, verdict) as"
        " (select 1, 1, 0.5, 'pass' union all select number, tensor, ratio, verdict from r) select * from r",
        "drop table tensors; create table tensors (id integer primary key, name text as (hex(id)), kind text)"}) {
    CAPTURE(change);
    CHECK(refusal(change) == "other tables than those of a history" + expected);
  }
  CHECK(refusal("create index i on ratios (ratio)") == "");
  CHECK(refusal("pragma user_version = 3") == "version 3, this program knows 2" + expected);
  CHECK(refusal("pragma application_id = 1") == "another program's file" + expected);
}

TEST_SUITE_END();
