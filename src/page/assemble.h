// Puts a page together: the template, a headline, data.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ttrace {

// Says what the browser makes of the data: src/page/web/main.ts has a page for each.
enum class PageContent { kReport, kRun, kSdc, kHistory };

// Renders the page. `headline` has a few words, which are its title, too; `sentence` is what a browser shows that runs
// no scripts; `data` is what `pack` gave, one line for each part.
std::string page_of(PageContent content, const std::string& headline, const std::string& sentence,
                    const std::string& data);

// Returns a JSON text after its length in 8 hexadecimal digits.
std::string with_length(const nlohmann::ordered_json& json);

// Returns a number in four digits, for what is drawn: null where it is not finite.
nlohmann::ordered_json short_number(double value);

}  // namespace ttrace
