// `ttrace history`: how far each tensor was from what it may differ by, over the checks that a file remembers.
#include "history/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "page/html.h"
#include "text/table.h"
#include "workflow/report_files.h"

namespace ttrace::cli {
namespace {

constexpr std::size_t kGrowthsShown = 10, kTensorsShown = 20;
constexpr std::size_t kCommitShown = 10;  // characters

struct HistoryOptions {
  std::string file, tensor, html;
  bool json = false;
};

std::string short_number(const std::optional<double>& value) { return value ? fmt::format("{:.3g}", *value) : "-"; }

std::string or_dash(const std::string& text) { return text.empty() ? "-" : printable(text); }

std::string commit_of(const CheckRecord& check) { return or_dash(check.git_commit.substr(0, kCommitShown)); }

std::string text_of(const std::vector<CheckRecord>& checks) {
  TextTable table({{"check", Justify::kRight},
                   {"started"},
                   {"commit"},
                   {"verdict"},
                   {"candidate"},
                   {"largest", Justify::kRight},
                   {"of"},
                   {"first wrong"}});
  for (const CheckRecord& check : checks) {
    table.add({fmt::format("{}", check.number), or_dash(check.started), commit_of(check),
               std::string(name_of(same_or_different(check.same))), or_dash(check.candidate), short_number(check.worst),
               or_dash(check.worst_tensor), or_dash(check.first_wrong)});
  }
  return table.text();
}

// The commit of a check; none where another program has taken the check away since the list of checks was read.
std::string commit_of(const std::vector<CheckRecord>& checks, std::int64_t number) {
  const auto found =
      std::find_if(checks.begin(), checks.end(), [&](const CheckRecord& check) { return check.number == number; });
  return found == checks.end() ? "-" : commit_of(*found);
}

std::string text_of(const std::vector<CheckRecord>& checks, const std::vector<Growth>& growths) {
  if (growths.empty()) return "";
  std::string text = "\ngrew to more than twice their largest ratio before:\n";
  for (std::size_t i = 0; i < std::min(kGrowthsShown, growths.size()); ++i) {
    const Growth& growth = growths[i];
    const std::string candidate = growth.candidate.empty() ? "" : printable(growth.candidate) + ": ";
    text += fmt::format("  {}{} {}: {:.3g} -> {:.3g} in check {}, commit {}\n", candidate, printable(growth.name),
                        growth.kind, growth.before, growth.after, growth.check, commit_of(checks, growth.check));
  }
  if (growths.size() > kGrowthsShown) {
    text += fmt::format("  ... and {} more: --tensor PATTERN, --json\n", growths.size() - kGrowthsShown);
  }
  return text;
}

std::string text_of(const std::vector<RatioRecord>& ratios) {
  std::string text;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < ratios.size();) {
    const RatioRecord& first = ratios[i];
    const bool show = shown++ < kTensorsShown;
    if (show) text += fmt::format("\n{} {}\n", printable(first.name), printable(first.kind));
    for (; i < ratios.size() && ratios[i].name == first.name && ratios[i].kind == first.kind; ++i) {
      if (!show) continue;
      text += fmt::format("  check {:>4}: {:>8}  {}\n", ratios[i].check, short_number(ratios[i].ratio),
                          printable(ratios[i].verdict));
    }
  }
  if (shown > kTensorsShown) text += fmt::format("\n... and {} more tensors: --json\n", shown - kTensorsShown);
  return text;
}

using Json = nlohmann::ordered_json;

Json number(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::string json_of(const std::vector<CheckRecord>& checks, const std::vector<RatioRecord>& ratios) {
  Json json;
  json["schema"] = "ttrace-history/2";
  json["checks"] = Json::array();
  for (const CheckRecord& check : checks) {
    json["checks"].push_back({{"check", check.number},
                              {"candidate", check.candidate},
                              {"started", check.started},
                              {"git_commit", check.git_commit},
                              {"command", check.command},
                              {"reference_run", check.reference_run},
                              {"candidate_run", check.candidate_run},
                              {"verdict", name_of(same_or_different(check.same))},
                              {"compared", check.compared},
                              {"fail", check.failed},
                              {"missing", check.missing},
                              {"first_wrong", check.first_wrong},
                              {"largest_ratio", number(check.worst)},
                              {"largest_tensor", check.worst_tensor}});
  }
  json["tensors"] = Json::array();
  for (const RatioRecord& ratio : ratios) {
    Json& list = json["tensors"];
    if (list.empty() || list.back()["name"] != ratio.name || list.back()["kind"] != ratio.kind) {
      list.push_back({{"name", ratio.name}, {"kind", ratio.kind}, {"ratios", Json::array()}});
    }
    list.back()["ratios"].push_back(
        {{"check", ratio.check}, {"ratio", number(ratio.ratio)}, {"verdict", ratio.verdict}});
  }
  json["grew"] = Json::array();
  for (const Growth& growth : growths_of(ratios)) {
    json["grew"].push_back({{"name", growth.name},
                            {"kind", growth.kind},
                            {"candidate", growth.candidate},
                            {"check", growth.check},
                            {"before", growth.before},
                            {"after", growth.after}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int run(const HistoryOptions& options) {
  ReportFiles files;
  files.add("--html", options.html,
            [&] { return to_html(read_history(options.file, options.tensor, kTensorsOnPage)); });
  const std::vector<CheckRecord> checks = read_checks(options.file);
  const std::vector<RatioRecord> ratios = read_ratios(options.file, options.tensor);
  if (!options.tensor.empty() && ratios.empty()) {
    throw InputError(
        fmt::format("--tensor '{}': no tensor's name matches; expected a name, what follows one of its "
                    "dots, or a glob",
                    options.tensor));
  }
  files.write([&] {
    if (options.json) return json_of(checks, ratios);
    return text_of(checks) + (options.tensor.empty() ? "" : text_of(ratios)) + text_of(checks, growths_of(ratios));
  });
  return kExitSame;
}

}  // namespace

void add_history(CLI::App& app, Run& run_command) {
  auto options = std::make_shared<HistoryOptions>();
  CLI::App* history = app.add_subcommand("history", "Show how tensors' ratios moved over many checks");
  history->add_option("FILE", options->file, "The history: an SQLite file that `ttrace check --history FILE` made")
      ->required();
  history->add_option("--tensor", options->tensor, "Show the ratios of tensors whose name matches this glob or suffix")
      ->type_name("PATTERN");
  history->add_flag("--json", options->json, "JSON on stdout, with every ratio");
  add_option(*history, option::kHtml, options->html);
  history->footer(R"(A ratio is rel_err / allowed: 1 is as much as the tensor may differ by. A check
has the largest of each tensor, over micro-batches and iterations. A tensor grew
where its ratio is more than twice the largest that the same candidate had
before.

Examples:
  ttrace check --reference reference --candidate candidate -t tolerance.yaml \
    --history ttrace.sqlite
  ttrace history ttrace.sqlite
  ttrace history ttrace.sqlite --tensor 'layers.3.mlp.**'
  ttrace history ttrace.sqlite --html page.html       # ratios as curves
  sqlite3 ttrace.sqlite 'select * from checks'

Exit codes: 0 done, 2 the file can't be read.)");
  history->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
