// Reports about tensors whose names are what the input says: each rendering must parse, hold the name, and no byte that
// a terminal, a spreadsheet or an XML parser would obey.
#include <fmt/format.h>
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <vector>

#include "report/junit.h"
#include "report/render.h"
#include "support/mesh_trace.h"
#include "support/reports.h"
#include "target.h"

namespace ttrace::fuzz {
namespace {

void require(bool holds, const char* what) {
  if (!holds) fail_promise(what);
}

// The cells of a CSV file, by RFC 4180.
std::vector<std::vector<std::string>> cells_of(const std::string& csv) {
  std::vector<std::vector<std::string>> rows(1);
  rows.back().emplace_back();
  bool quoted = false;
  for (std::size_t i = 0; i < csv.size(); ++i) {
    std::string& cell = rows.back().back();
    if (quoted && csv[i] == '"' && i + 1 < csv.size() && csv[i + 1] == '"') {
      cell += csv[i++];
    } else if (csv[i] == '"') {
      quoted = !quoted;
    } else if (csv[i] == ',' && !quoted) {
      rows.back().emplace_back();
    } else if (csv[i] == '\n' && !quoted) {
      rows.emplace_back().emplace_back();
    } else {
      cell += csv[i];
    }
  }
  require(!quoted, "CSV: a quote that is not closed");
  rows.pop_back();
  return rows;
}

void check_text(const std::string& text) {
  require(
      printable(text.substr(0, text.size())) ==
          [&] {
            std::string escaped;
            for (const char c : text) escaped += c == '\n' ? std::string("\\x0a") : std::string(1, c);
            return escaped;
          }(),
      "text: a control character");
}

}  // namespace

Outcome fuzz_report(std::string_view bytes) {
  FuzzedDataProvider input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  std::vector<Finding> findings;
  std::vector<std::string> names;
  while (input.remaining_bytes() > 0 && findings.size() < 4) {
    std::string name = input.ConsumeRandomLengthString(400);
    if (name.empty()) name = "x";
    switch (input.ConsumeIntegral<std::uint8_t>() % 3) {
      case 0:
        findings.push_back(test::wrong(name));
        break;
      case 1:
        findings.push_back(test::missing(name));
        break;
      default:
        findings.push_back(test::untrusted(name));
    }
    findings.back().message += input.ConsumeRandomLengthString(100);
    names.push_back(name);
  }
  Report report = test::report_of(findings, 1);
  report.notes.push_back(input.ConsumeRemainingBytesAsString());
  report.runs.candidate = report.runs.reference = names.empty() ? "x" : names[0];

  check_text(to_text(report, {}));
  check_text(to_text(report, {10}));
  const nlohmann::json json = nlohmann::json::parse(to_json(report), nullptr, /*allow_exceptions=*/false);
  require(!json.is_discarded(), "JSON: does not parse");
  require(json.at("findings").size() == findings.size(), "JSON: another number of findings");
  pugi::xml_document xml;
  require(static_cast<bool>(xml.load_string(to_junit(report, {}).c_str())), "JUnit: does not parse");
  std::size_t cases = 0;
  for (const auto& suite : xml.select_nodes("//testcase")) cases += suite.node().attribute("name") ? 1 : 0;
  require(cases > 0, "JUnit: no test case");
  const auto rows = cells_of(to_csv(report));
  require(rows.size() == findings.size() + 1, "CSV: another number of rows");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    require(rows[i].size() == rows[0].size(), "CSV: another number of cells");
    const std::string& name = rows[i][0];
    require(!name.empty() && name.find_first_of("=+-@\t\r\n") != 0, "CSV: a formula");
    require(i == 0 || std::any_of(names.begin(), names.end(),
                                  [&](const std::string& known) {
                                    return name == printable(known) || name == "'" + printable(known);
                                  }),
            "CSV: another name");
  }
  return Outcome::kSame;
}

}  // namespace ttrace::fuzz
