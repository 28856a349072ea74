#include <fmt/format.h>

#include "page/assemble.h"
#include "page/history_json.h"
#include "page/html.h"
#include "page/packed.h"

namespace ttrace {

nlohmann::ordered_json to_object(const History& history) {
  nlohmann::ordered_json json = {{"file", printable(history.file)}, {"tensors", history.tensors}};
  json["checks"] = nlohmann::ordered_json::array();
  for (const CheckRecord& check : history.checks) {
    json["checks"].push_back({{"check", check.number},
                              {"candidate", printable(check.candidate)},
                              {"started", printable(check.started)},
                              {"commit", printable(check.git_commit)},
                              {"verdict", name_of(same_or_different(check.same))},
                              {"compared", check.compared},
                              {"fail", check.failed},
                              {"missing", check.missing},
                              {"first_wrong", printable(check.first_wrong)},
                              {"largest", check.worst ? short_number(*check.worst) : nlohmann::ordered_json()},
                              {"largest_tensor", printable(check.worst_tensor)}});
  }
  json["series"] = nlohmann::ordered_json::array();
  const RatioRecord* previous = nullptr;
  for (const RatioRecord& ratio : history.ratios) {
    if (previous == nullptr || previous->name != ratio.name || previous->kind != ratio.kind) {
      json["series"].push_back(
          {{"name", printable(ratio.name)}, {"kind", ratio.kind}, {"ratios", nlohmann::ordered_json::array()}});
    }
    previous = &ratio;
    json["series"].back()["ratios"].push_back(
        {ratio.check, ratio.ratio ? short_number(*ratio.ratio) : nlohmann::ordered_json(), printable(ratio.verdict)});
  }
  json["grew"] = nlohmann::ordered_json::array();
  for (const Growth& growth : history.growths) {
    json["grew"].push_back({{"name", printable(growth.name)},
                            {"kind", growth.kind},
                            {"candidate", printable(growth.candidate)},
                            {"check", growth.check},
                            {"before", short_number(growth.before)},
                            {"after", short_number(growth.after)}});
  }
  return json;
}

std::string to_html(const History& history) {
  const std::size_t checks = history.checks.size();
  const std::string headline = fmt::format("{} check{} of {}", checks, checks == 1 ? "" : "s", printable(history.file));
  return page_of(PageContent::kHistory, headline, "", pack(with_length(to_object(history))));
}

}  // namespace ttrace
