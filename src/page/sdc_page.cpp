#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "page/assemble.h"
#include "page/html.h"
#include "page/packed.h"
#include "sdc/json.h"

namespace ttrace {
namespace {

constexpr std::size_t kOriginsOnPage = 200;
constexpr std::size_t kRanksDrawn = 12;  // more colours nobody tells apart

// Says at which micro-steps a rank's part of a type of submodule differs.
struct RankSeries {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();  // [micro-step, frequency, severity]
  double frequency_sum = 0;
};

using MicroStep = std::pair<std::int32_t, std::int32_t>;  // iteration, micro-batch
using TypeKey = std::pair<std::string, Direction>;

std::map<MicroStep, std::size_t> numbered_microsteps(const SdcReport& report) {
  std::map<MicroStep, std::size_t> numbers;
  for (const SubmoduleStep& step : report.submodules) numbers.emplace(MicroStep(step.iteration, step.microbatch), 0);
  std::size_t next = 0;
  for (auto& [step, number] : numbers) number = next++;
  return numbers;
}

// The types that differ anywhere, each with its ranks: those that differ most.
nlohmann::ordered_json drawn_types(const SdcReport& report, const std::map<MicroStep, std::size_t>& microsteps) {
  std::map<TypeKey, std::map<std::int32_t, RankSeries>> types;
  for (const SubmoduleStep& step : report.submodules) {
    const std::size_t at = microsteps.at({step.iteration, step.microbatch});
    for (const auto& [rank, mismatch] : step.ranks) {
      if (mismatch.differing == 0) continue;
      const double frequency = static_cast<double>(mismatch.differing) / static_cast<double>(mismatch.elements);
      RankSeries& series = types[{step.type, step.direction}][rank];
      series.points.push_back({at, short_number(frequency), short_number(mismatch.severity)});
      series.frequency_sum += frequency;
    }
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (auto& [key, ranks] : types) {
    std::vector<std::pair<double, std::int32_t>> order;
    for (const auto& [rank, series] : ranks) order.emplace_back(-series.frequency_sum, rank);
    std::sort(order.begin(), order.end());
    order.resize(std::min(order.size(), kRanksDrawn));
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    nlohmann::ordered_json drawn = nlohmann::ordered_json::array();
    for (const auto& [sum, rank] : order) {
      drawn.push_back({{"rank", rank}, {"points", std::move(ranks[rank].points)}});
    }
    list.push_back({{"type", printable(key.first)},
                    {"direction", name_of(key.second)},
                    {"ranks", std::move(drawn)},
                    {"ranks_left_out", ranks.size() - order.size()}});
  }
  return list;
}

}  // namespace

std::string to_html(const SdcReport& report, const std::string& command) {
  const std::map<MicroStep, std::size_t> microsteps = numbered_microsteps(report);
  nlohmann::ordered_json json = to_object(report);
  json["command"] = printable(command);
  json["origins_left_out"] = report.origins.size() - std::min(report.origins.size(), kOriginsOnPage);
  while (json["origins"].size() > kOriginsOnPage) json["origins"].erase(kOriginsOnPage);
  json["microsteps"] = nlohmann::ordered_json::array();
  for (const auto& [step, number] : microsteps) json["microsteps"].push_back({step.first, step.second});
  json["drawn"] = drawn_types(report, microsteps);
  const RunVerdict verdict = same_or_different(report.same());
  const std::string headline = fmt::format("{}: {}", name_of(verdict), sentence_of(report));
  return page_of(PageContent::kSdc, headline, "", pack(with_length(json)));
}

}  // namespace ttrace
