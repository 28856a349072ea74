// The page: a report as one HTML file that needs no server and no network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mesh.h"
#include "base/outcome.h"
#include "base/picture.h"
#include "history/history.h"
#include "report/run_report.h"
#include "sdc/report.h"

namespace ttrace {

// A run that was looked at. An empty text is not known.
struct RunFacts {
  std::string directory, run_id, command, started, git_commit, python, torch, device, compute_dtype;
  std::int32_t world_size = 1;
  Mesh mesh;
};

// Says where the tolerances come from.
struct ToleranceFacts {
  std::string file, estimator, compute_dtype;
  double margin = 0, epsilon = 0;
  std::size_t perturbed_runs = 0;
  std::vector<std::string> notes;
  // Holds, by kind and name, what rounding alone does: the larger of estimate and floor.
  std::map<std::pair<Kind, std::string>, double> estimates;
};

inline constexpr std::size_t kTensorsOnPage = 500;  // of a history: as many as a choice may have, and a page carry

// Holds what a page shows beside a report.
struct PageFacts {
  std::string command;  // that makes the report again
  std::optional<RunFacts> reference, candidate;
  std::optional<ToleranceFacts> tolerance;
  // Holds, by finding, the finding that it follows from (diagnose/root_causes.h); empty where nobody looked.
  std::vector<std::optional<std::size_t>> follows_from;
  std::vector<Picture> pictures;
};

// Renders a page of one report.
std::string to_html(const Report& report, const PageFacts& facts);

// Renders a page of a run: its candidates, and the page of each. `facts` has one element for each candidate; `history`
// is drawn beside them, unless it has no check.
std::string to_html(const RunReport& report, std::span<const PageFacts> facts, const History& history);

// Renders a page of what a suspect node did: the calls that computed wrongly, and how often and how much each type of
// submodule differs at each micro-step, on each rank. `command` makes the report again.
std::string to_html(const SdcReport& report, const std::string& command);

// Renders a page of ratios over many checks.
std::string to_html(const History& history);

}  // namespace ttrace
