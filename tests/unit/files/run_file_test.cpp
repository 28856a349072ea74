#include "files/run_file.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "files/read_run_file.h"

namespace {

using namespace ttrace;

constexpr const char* kFile = R"(
reference: {command: python train.py, inputs: [train.py]}
candidates:
  - name: tp{tp}-pp{pp}{sp}
    matrix: {tp: [1, 2], pp: [1, 2], sp: ["", -sp], exclude: [{tp: 1, pp: 1}, {tp: 1, sp: -sp}]}
    command: torchrun --nproc-per-node {ranks} train.py --tp {tp} -{sp}
    axes: tp={tp},pp={pp},cp=tp/ep={tp},edp={pp}
  - {name: listed, command: [python, "a b", "{{}}"]}
  - {name: "shell{n}", matrix: {n: [007]}, command: A=1 python train.py | cat}
waivers:
  - {pattern: router, kinds: [output], candidates: [tp*], reason: issue 1, expires: 2030-01-31}
  - {pattern: "**", reason: issue 2, expires: 2029-12-31}
)";

std::vector<std::string> names_of(const std::vector<Job>& jobs) {
  std::vector<std::string> names;
  for (const Job& job : jobs) names.push_back(job.name);
  return names;
}

std::vector<int> lines_of(const std::vector<Waiver>& waivers) {
  std::vector<int> lines;
  for (const Waiver& waiver : waivers) lines.push_back(waiver.line);
  return lines;
}

}  // namespace

TEST_SUITE_BEGIN("files");

TEST_CASE("a matrix gives a candidate for each combination that is left, with its values and number of ranks") {
  const RunFile file = parse_run_file(kFile, "ttrace.yaml");
  const std::vector<Job> jobs = candidate_jobs(file);
  CHECK(names_of(jobs) ==
        std::vector<std::string>{"tp1-pp2", "tp2-pp1", "tp2-pp1-sp", "tp2-pp2", "tp2-pp2-sp", "listed", "shell007"});
  using Words = std::vector<std::string>;
  CHECK(jobs[4].command == Words{"torchrun", "--nproc-per-node", "4", "train.py", "--tp", "2", "--sp"});
  CHECK(jobs[4].axes == "tp=2,pp=2,cp=tp/ep=2,edp=2");
  CHECK(jobs[5].command == Words{"python", "a b", "{}"});
  // A command that is more than words needs a shell.
  CHECK(jobs[6].command == Words{"/bin/sh", "-c", "A=1 python train.py | cat"});
  CHECK(file.reference.command == Words{"python", "train.py"});
}

TEST_CASE("a mistake in a matrix is refused with the line that has it") {
  const auto message = [](const std::string& candidate) -> std::string {
    try {
      candidate_jobs(parse_run_file("reference: {command: a}\ncandidates:\n" + candidate, "t.yaml"));
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const std::pair<std::string, std::string> cases[] = {
      {"- {name: a, command: b, where: tp > 1}",
       "t.yaml:3: a candidate has an unknown key 'where'; expected command, axes, inputs, timeout, name, matrix, "
       "annotations, tolerance, parameters"},
      {"- {name: a, command: b, matrix: {ranks: [1]}}",
       "t.yaml:3: 'ranks' is the number of ranks in axes; expected another name"},
      {"- {name: a, command: b, matrix: {t p: [1]}}",
       "t.yaml:3: 't p' is no name of a variable; expected letters, digits, _ and -"},
      {"- {name: a, command: b, matrix: {tp: 1}}", "t.yaml:3: 'tp' is no list of words; expected one"},
      {"- name: a\n  command: b\n  matrix:\n    exclude: {tp: 1}",
       "t.yaml:6: 'exclude' is no list; expected one of mappings"},
      {"- name: a\n  command: b\n  matrix:\n    exclude:\n    - {tp: 1, tp: 1}",
       "t.yaml:7: an entry of 'exclude' has 'tp' twice; expected it once"},
      {"- name: a\n  command: b\n  matrix:\n    include:\n    - {}",
       "t.yaml:7: an entry of 'include' is empty; expected `name: value`"},
      {"- name: a{tp}\n  command: b\n  matrix:\n    tp: [1]\n    include:\n    - {tp: 1}\n    - {tp: 1, flag: -x}",
       "t.yaml:9: include: 'flag' is no variable and used nowhere; expected {flag} in the candidate"},
      {"- {name: a, command: 'b {tp * pp}', matrix: {tp: [1], pp: [1]}}",
       "t.yaml:3: '{tp * pp}' is none of [pp, tp]; expected one, or {{ and }} for braces"},
      {"- {name: a, command: 'b {ranks}', matrix: {tp: [1]}}",
       "t.yaml:3: '{ranks}' is none of [tp]; expected one, or {{ and }} for braces"},
  };
  for (const auto& example : cases) {
    const auto& candidate = example.first;
    CAPTURE(candidate);
    CHECK(message(candidate) == example.second);
  }
}

TEST_CASE("a matrix's value never reaches a shell as more than words") {
  const auto jobs_of = [](const std::string& command) {
    const std::string matrix = "matrix: {n: [1, 2], flags: [\"--tp 2 --sp\", \"$(touch x); y\"]}";
    return candidate_jobs(parse_run_file(
        "reference: {command: a}\ncandidates:\n  - {name: \"c{n}\", " + matrix + ", command: " + command + "}\n",
        "t.yaml"));
  };
  CHECK_THROWS_WITH_AS(jobs_of("\"a {n} {flags} | tee log\""),
                       "t.yaml:3: {flags} in 'command' is '$(touch x); y', which a shell would not take as it is; "
                       "expected letters, digits, spaces and . _ - / = , : + @ %, or the command as a list of words: "
                       "[python, train.py, ...]",
                       InputError);
  // A list of words meets no shell; then only the names are the same.
  CHECK_THROWS_WITH_AS(jobs_of("[a, \"{flags}\"]"), doctest::Contains("two candidates are called 'c1'"), InputError);
}

TEST_CASE("a candidate's parameters of the annotations are filled in, and come after the file's") {
  const RunFile file = parse_run_file(
      "reference: {command: a}\n"
      "annotations: megatron_gpt\n"
      "parameters: {cp_layout: zigzag, tied_to: null, heads: [1, 2]}\n"
      "candidates:\n"
      "- {name: '{layout}', command: b, matrix: {layout: [zigzag, striped]}, parameters: {cp_layout: '{layout}'}}\n",
      "t.yaml");
  using Words = std::vector<std::string>;
  CHECK(file.annotations.settings == Words{"cp_layout=zigzag", "tied_to=null", "heads=[1, 2]"});
  const AnnotationSource annotations = annotations_for(file, candidate_jobs(file)[1]);
  CHECK(annotations.file == "megatron_gpt");
  CHECK(annotations.settings == Words{"cp_layout=zigzag", "tied_to=null", "heads=[1, 2]", "cp_layout=striped"});
}

TEST_CASE("a shell is left out only where it would do nothing") {
  for (const char* line :
       {"A=1 train", "train $A", "exec train", "train 'a b'", "train; train", "train *", "~/train", " "}) {
    CAPTURE(line);
    CHECK(without_needless_shell(shell_command(line)) == shell_command(line));
  }
  CHECK(without_needless_shell(shell_command("  train  --a=b ")) == std::vector<std::string>{"train", "--a=b"});
  CHECK(without_needless_shell({"/bin/bash", "-c", "a"}) == std::vector<std::string>{"/bin/bash", "-c", "a"});
}

TEST_CASE("a waiver holds for its candidates, through its last day") {
  const RunFile file = parse_run_file(kFile, "ttrace.yaml");
  CHECK(lines_of(waivers_for(file, "tp2-pp1", "2029-12-31")) == std::vector<int>{11, 12});
  CHECK(lines_of(waivers_for(file, "listed", "2029-12-31")) == std::vector<int>{12});
  CHECK(lines_of(waivers_for(file, "tp2-pp1", "2030-01-31")) == std::vector<int>{11});
  CHECK(waivers_for(file, "tp2-pp1", "2030-02-01").empty());
}

TEST_CASE("a waiver that has expired, or that nothing needs, is reported") {
  const RunFile file = parse_run_file(kFile, "ttrace.yaml");
  std::set<std::string> all;
  for (const Job& job : candidate_jobs(file)) all.insert(job.name);
  using Lines = std::vector<std::string>;
  CHECK(waiver_remarks(file, {11, 12}, all, "2029-12-31").empty());
  CHECK(waiver_remarks(file, {11}, all, "2030-01-01") ==
        Lines{"ttrace.yaml:12: the waiver of '**' expired on 2029-12-31 and waives nothing: issue 2"});
  CHECK(waiver_remarks(file, {12}, all, "2029-12-31") ==
        Lines{"ttrace.yaml:11: the waiver of 'router' waived nothing; remove it (issue 1)"});
  // A candidate that was not looked at may need it.
  all.erase("tp2-pp1");
  CHECK(waiver_remarks(file, {12}, all, "2029-12-31").empty());
}

TEST_CASE("days are those of the calendar") {
  for (const char* day : {"2027-01-31", "2028-02-29"}) CHECK(is_date(day));
  for (const char* day :
       {"", "2027-1-31", "2027-02-29", "2027-13-01", "27-01-31", "2027-01-31T", "2027-00-10", "2027--1-1"}) {
    CAPTURE(day);
    CHECK(!is_date(day));
  }
}

TEST_CASE("a second run of what differs is taken unless the file forbids it") {
  const std::string file = kFile;
  CHECK(parse_run_file(file, "ttrace.yaml").localize);
  CHECK_FALSE(parse_run_file(file + "localize: false\n", "ttrace.yaml").localize);
  CHECK_THROWS_WITH_AS(parse_run_file(file + "localize: 1\n", "t.yaml"),
                       "t.yaml:13: 'localize' is '1'; expected true or false", InputError);
}

TEST_CASE("tolerances of rewritten runs are no use to candidates that compute from their own values") {
  CHECK_THROWS_WITH_AS(parse_run_file(std::string(kFile) + "estimator: rewritten\n", "t.yaml"),
                       "t.yaml:13: estimator is 'rewritten'; expected one of input, modules", InputError);
}

TEST_CASE("a waiver of everything or for years is refused, unless the file accepts overrides") {
  const auto refusal_of = [](const std::string& pattern, const std::string& expires) {
    RunFile file = parse_run_file(kFile, "ttrace.yaml");
    file.waivers = {{pattern, {}, {}, "issue 1", expires, 11}};
    file.accept_overrides = true;
    CHECK_NOTHROW(require_modest_waivers(file, "2029-01-31"));
    file.accept_overrides = false;
    try {
      require_modest_waivers(file, "2029-01-31");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal_of("router", "2030-02-01").empty());
  CHECK(refusal_of("router", "2020-01-01").empty());  // has expired
  CHECK(refusal_of("router", "2030-02-02") ==
        "ttrace.yaml:11: the waiver of 'router' expires on 2030-02-02; expected a day in the next 366, or "
        "accept_overrides: true");
  CHECK(refusal_of("**", "2029-02-01") ==
        "ttrace.yaml:11: the waiver of '**' matches every tensor; expected a pattern with a name in it, or "
        "accept_overrides: true");
}

TEST_SUITE_END();
