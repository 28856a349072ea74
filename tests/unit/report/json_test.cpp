#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "report/render.h"
#include "support/reports.h"

using namespace ttrace;
using namespace ttrace::test;
using Json = nlohmann::ordered_json;

TEST_SUITE_BEGIN("report");

TEST_CASE("the JSON report of two equal runs") {
  CHECK(to_json(report_of({}, 3)) == R"({
  "schema": "ttrace-report/5",
  "verdict": "same",
  "strict": false,
  "reference": "runs/reference",
  "candidate": "runs/candidate",
  "counts": {
    "compared": 3,
    "pass": 3,
    "fail": 0,
    "untrusted": 0,
    "missing": 0,
    "not_seen": 0
  },
  "tests": 0,
  "waived": 0,
  "placed_by_shape": 0,
  "coverage": 0.0,
  "proof": null,
  "overrides": [],
  "instead": null,
  "next": null,
  "first_wrong": null,
  "root_cause": null,
  "roots": [],
  "questions": [],
  "wrong_in_second_run": null,
  "findings": [],
  "notes": []
}
)");
}

TEST_CASE("the JSON report of a difference") {
  Report report = report_of({untrusted("w"), wrong("mlp")}, 1);
  report.findings[1].ranks = {3};
  report.notes = {"a note"};
  const std::string text = to_json(report);
  const std::string wrong_tensor = R"({
      "name": "mlp",
      "kind": "output",
      "iteration": 0,
      "microbatch": 1,
      "pass": "forward",
      "verdict": "fail",
      "reason": "exceeds-tolerance",
      "rel_err": 0.1,
      "allowed": 0.05,
      "ratio": 2.0,
      "exceeded": "rel_err",
      "statistics": {},
      "worst": {
        "index": [
          1
        ],
        "rank": 3,
        "local_index": [
          0
        ],
        "reference": 4.0,
        "candidate": 4.5,
        "abs": 0.5
      },
      "ranks": [
        3
      ],
      "message": "mlp output, iteration 0, micro-batch 1: rel_err 0.1, allowed 0.05"
    })";
  const std::string untrusted_tensor = R"({
      "name": "w",
      "kind": "param_grad",
      "iteration": 0,
      "microbatch": 0,
      "pass": "forward",
      "verdict": "untrusted",
      "reason": "all-zero",
      "rel_err": null,
      "allowed": null,
      "ratio": null,
      "exceeded": null,
      "statistics": {},
      "worst": null,
      "ranks": [],
      "message": "w param_grad, iteration 0, micro-batch 0: zero on both sides"
    })";
  CHECK(text.find("  \"findings\": [\n    " + untrusted_tensor + ",\n    " + wrong_tensor + "\n  ],\n") !=
        std::string::npos);
  const Json json = Json::parse(text);
  CHECK(json["verdict"] == "different");
  CHECK(json["first_wrong"] == json["findings"][1]);
  CHECK(json["root_cause"] == json["first_wrong"]);
  CHECK(json["notes"] == Json{"a note"});
  CHECK(json["counts"].dump() == R"({"compared":3,"pass":1,"fail":1,"untrusted":1,"missing":0,"not_seen":0})");
}

TEST_CASE("a finding about a rank is about no tensor") {
  const Json json = Json::parse(to_json(report_of({missing_rank()}, 1)));
  CHECK(
      json["findings"][0].dump() ==
      R"({"name":"","kind":null,"iteration":null,"microbatch":null,"pass":null,"verdict":"missing",)"
      R"("reason":"missing-rank","rel_err":null,"allowed":null,"ratio":null,"exceeded":null,"statistics":{},"worst":null,"ranks":[2],)"
      R"("message":"rank 2 has no file"})");
}

TEST_CASE("a tensor of no micro-batch has none in JSON, and a recomputed one says so") {
  Finding weight = untrusted("w");
  weight.id.microbatch = kNoMicrobatch;
  weight.id.pass = Pass::kRecompute;
  const Json json = Json::parse(to_json(report_of({weight}, 1)));
  CHECK(json["findings"][0]["microbatch"] == nullptr);
  CHECK(json["findings"][0]["pass"] == "recompute");
}

TEST_CASE("numbers that JSON does not have are null") {
  Finding finding = wrong("mlp");
  finding.difference->reference_square = 0;
  finding.difference->worst_reference = std::numeric_limits<double>::quiet_NaN();
  finding.difference->worst_candidate = -std::numeric_limits<double>::infinity();
  finding.difference->max_abs = std::numeric_limits<double>::infinity();
  const Json json = Json::parse(to_json(report_of({finding}, 1)))["findings"][0];
  CHECK(json["rel_err"] == nullptr);
  CHECK(json["ratio"] == nullptr);
  CHECK(json["allowed"] == 0.05);
  CHECK(json["worst"]["reference"] == nullptr);
  CHECK(json["worst"]["candidate"] == nullptr);
  CHECK(json["worst"]["abs"] == nullptr);
  finding = wrong("mlp");
  finding.allowed = 0;
  CHECK(Json::parse(to_json(report_of({finding}, 1)))["findings"][0]["ratio"] == nullptr);
}

TEST_CASE("untrusted tensors pass in JSON, unless the check is strict or nothing else was compared") {
  Report report = report_of({untrusted("w")}, 1);
  CHECK(Json::parse(to_json(report))["verdict"] == "same");
  report.strict = true;
  CHECK(Json::parse(to_json(report))["verdict"] == "different");
  CHECK(Json::parse(to_json(report))["strict"] == true);
  CHECK(Json::parse(to_json(report))["root_cause"] == nullptr);
  CHECK(Json::parse(to_json(report_of({untrusted("w")}, 0)))["verdict"] == "could-not-look");
  CHECK(Json::parse(to_json(report_of({}, 0)))["verdict"] == "could-not-look");
}

TEST_CASE("names come back from JSON as they were, except for bytes that are no UTF-8") {
  const std::string name = "m\x1b[2J\n\"\\\xc3\xa9";
  CHECK(Json::parse(to_json(report_of({wrong(name)}, 1)))["findings"][0]["name"] == name);
  CHECK(Json::parse(to_json(report_of({wrong("m\xff")}, 1)))["findings"][0]["name"] == "m\xef\xbf\xbd");
  const std::string text = to_json(report_of({wrong(name)}, 1));
  for (const char c : text) CHECK((c == '\n' || static_cast<unsigned char>(c) >= 0x20));
}
