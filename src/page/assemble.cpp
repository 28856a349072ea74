#include "page/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/trace.h"
#include "page/page_template.h"
#include "text/wrap.h"

namespace ttrace {
namespace {

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// The template with these in their places.
std::string fill_template(const std::map<std::string_view, std::string>& values) {
  std::string page;
  std::string_view rest = kPageTemplate;
  while (true) {
    const std::size_t at = rest.find("{{");
    page += rest.substr(0, at);
    if (at == rest.npos) return page;
    rest.remove_prefix(at);
    const auto value =
        std::find_if(values.begin(), values.end(), [&](const auto& named) { return rest.starts_with(named.first); });
    page += value == values.end() ? rest.substr(0, 2) : std::string_view(value->second);
    rest.remove_prefix(value == values.end() ? 2 : value->first.size());
  }
}

constexpr std::size_t kMostOfSentence = 600;  // columns: a name in it may fill a page
constexpr std::array<std::string_view, 4> kContents = {"report", "run", "sdc", "history"};  // in order of PageContent

}  // namespace

std::string page_of(PageContent content, const std::string& headline, const std::string& sentence,
                    const std::string& data) {
  return fill_template({{kPageHeadline, escape_html(headline)},
                        {kPageSentence, escape_html(clipped(printable(sentence), kMostOfSentence))},
                        {kPageContent, std::string(kContents[static_cast<std::size_t>(content)])},
                        {kPageData, data}});
}

std::string with_length(const nlohmann::ordered_json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return fmt::format("{:08x}", text.size()) + text;
}

nlohmann::ordered_json short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0;
  const double scale = std::pow(10, 3 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) ? std::round(value * scale) / scale : value;
}

}  // namespace ttrace
